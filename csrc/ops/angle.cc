// Angles from sines, cosines and tangents: the inverses of the circular functions. The leading part
// of each result is carried as an exact pair, corrections below an eighth of it are rounded, so
// that the last addition is the only full rounding; measured errors are below 1 unit in the last
// place in float32 and float64. 16-bit floats compute in float32.
#include <limits>
#include <span>

#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

// tan(pi / 8): below it, atan is its polynomial.
constexpr double kTanEighth = 0.41421356237309503;

// Fits at Chebyshev points, with the largest error relative to the function.
// (atan(t) / t - 1) / t^2 in t^2, |t| <= tan(pi / 8): 2^-33.4 and 2^-58.2.
constexpr double kAtan32[] = {-0x1.5555554bfd993p-2, 0x1.99997aefc3eb5p-3,  -0x1.248a0f9e7dbe8p-3,
                              0x1.c57a94756983fp-4,  -0x1.613c1c599a50fp-4, 0x1.9d60fa5068fb4p-5};
constexpr double kAtan64[] = {-0x1.5555555555555p-2, 0x1.9999999999952p-3,  -0x1.249249248d739p-3,
                              0x1.c71c71c2fc236p-4,  -0x1.745d165c497f3p-4, 0x1.3b1392a9c2d8bp-4,
                              -0x1.110e84aa36d9dp-4, 0x1.e199c62156609p-5,  -0x1.ac7858539e493p-5,
                              0x1.74d3a7b43351ap-5,  -0x1.1b1992aa413c9p-5, 0x1.0a997ba33c1dbp-6};
// (asin(s) / s - 1) / s^2 in s^2, |s| <= 1 / 2: 2^-34.0 and 2^-58.6.
constexpr double kAsin32[] = {0x1.5555555c0171dp-3, 0x1.33331ecf8b70bp-4, 0x1.6dc0f007c13e8p-5,
                              0x1.efedf83ab6506p-6, 0x1.82db23768c84fp-6, 0x1.5a80a068e3ee2p-7,
                              0x1.fb7ca379d49c6p-6};
constexpr double kAsin64[] = {0x1.5555555555555p-3,  0x1.3333333333388p-4, 0x1.6db6db6dac1e0p-5,
                              0x1.f1c71c7a52ba3p-6,  0x1.6e8ba123e494cp-6, 0x1.1c4efce23019fp-6,
                              0x1.c990ad3d8fdcap-7,  0x1.7b027ee1dd585p-7, 0x1.3b49de7121487p-7,
                              0x1.31622469ce5adp-7,  0x1.8f193743418ffp-9, 0x1.406192d124629p-6,
                              -0x1.3b416bb7d9257p-6, 0x1.e529c6fce9bb4p-6};

bool is_double(Reg x) { return x.dtype() == DType::kFloat64; }

Reg horner(Reg z, std::span<const double> coefficients) {
  Reg p = tile::constant_like(z, coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) {
    p = fma(p, z, tile::constant_like(z, coefficients[i]));
  }
  return p;
}

/// Unevaluated hi + lo.
struct Pair {
  Reg hi, lo;
};

// Exact where |a| >= |b|, or a is 0.
Pair fast_sum(Reg a, Reg b) {
  const Reg s = a + b;
  return {s, b - (s - a)};
}

Pair single(Reg x) { return {x, tile::constant_like(x, 0.0)}; }

Pair select(Reg condition, Pair a, Pair b) {
  return {tile::select(condition, a.hi, b.hi), tile::select(condition, a.lo, b.lo)};
}

// A quarter of pi, `count` times.
Pair quarters(Reg count) {
  const double hi = is_double(count) ? 0x1.921fb54442d18p-1 : 0x1.921fb6p-1;
  const double lo = is_double(count) ? 0x1.1a62633145c07p-55 : -0x1.777a5cp-26;
  const Reg quarter = tile::constant_like(count, hi);
  const Reg product = count * quarter;
  return {product, fma(count, tile::constant_like(count, lo), fms(count, quarter, product))};
}

// base + term + rest, where base is 0 or at least |term|.
Reg total(Pair base, Reg term, Reg rest) {
  const Pair sum = fast_sum(base.hi, term);
  return sum.hi + (sum.lo + (rest + base.lo));
}

// base + atan(n / d) for |n / d| <= tan(pi / 8).
Reg angle(Pair base, Pair n, Pair d) {
  const Reg q = n.hi / d.hi;
  const Reg low = (fnma(q, d.hi, n.hi) + fnma(q, d.lo, n.lo)) / d.hi;  // what q lacks
  const Reg z = q * q;
  const Reg p = is_double(z) ? horner(z, kAtan64) : horner(z, kAtan32);
  return total(base, q, fma(q * z, p, fnma(low, z, low)));
}

// atan(a) is pi/4 + atan((a - 1) / (a + 1)), and pi/2 - atan(1 / a).
Reg atan(Reg x) {
  constexpr double kFar = 0x1p60;  // beyond, the result is pi/2
  const Reg a = tile::at_most(abs(x), kFar);
  const Reg one = tile::constant_like(a, 1.0);
  const Reg high = a > 2.414213562373095;  // tan(3 pi / 8)
  const Reg middle = a > kTanEighth;
  const Pair n = select(high, single(-one), select(middle, fast_sum(-one, a), single(a)));
  const Pair d = select(high, single(a), select(middle, fast_sum(one, a), single(one)));
  const Reg count = select(high, 2.0, select(middle, one, 0.0));
  return odd(x, angle(quarters(count), n, d));
}

/// For a = |x|: asin(a) = s + rest where a is small, else acos(a) = 2 (s + rest).
struct HalfAngle {
  Reg is_small, s, rest;
};

HalfAngle half_angle(Reg a) {
  const Reg is_small = a <= 0.5;
  const Reg z = select(is_small, a * a, (1.0 - a) * 0.5);
  const Reg s = select(is_small, a, sqrt(z));
  const Reg lacking = fnma(s, s, z) / tile::at_least(s + s, 1e-30);  // of the rounded root
  const Reg p = is_double(z) ? horner(z, kAsin64) : horner(z, kAsin32);
  return {is_small, s, fma(s * z, p, select(is_small, 0.0, lacking))};
}

Reg asin(Reg x) {
  const HalfAngle h = half_angle(abs(x));
  const Reg factor = select(h.is_small, 1.0, tile::constant_like(x, -2.0));
  const Reg count = select(h.is_small, 0.0, tile::constant_like(x, 2.0));
  return odd(x, total(quarters(count), h.s * factor, h.rest * factor));
}

Reg acos(Reg x) {
  const HalfAngle h = half_angle(abs(x));
  const Reg below = x < 0.0;
  const Reg one = tile::constant_like(x, 1.0);
  const Reg small_factor = select(below, one, -1.0);
  const Reg factor = select(h.is_small, small_factor, small_factor * -2.0);
  const Reg count = select(h.is_small, 2.0, select(below, one * 4.0, 0.0));
  return total(quarters(count), h.s * factor, h.rest * factor);
}

Reg is_infinite(Reg size) { return tile::equal(size, kInfinity); }

// Also of -0.
Reg has_minus(Reg x) { return (x < 0.0) | (1.0 / x < 0.0); }

// A factor that keeps sums of numbers up to `size` finite, and quotients of small ones exact.
Reg scale_for(Reg size) {
  const double large = is_double(size) ? 0x1p1000 : 0x1p120;
  const double small = is_double(size) ? 0x1p-800 : 0x1p-80;
  const Reg up = tile::constant_like(size, is_double(size) ? 0x1p600 : 0x1p60);
  return select(size > large, 0x1p-10, select(size < small, up, 1.0));
}

// In the first eighth of the circle the angle of (x, y), else its distance from an axis.
Reg atan2(tile::Builder& t, Reg y, Reg x) {
  Reg ay = abs(y), ax = abs(x);
  const Reg far_y = is_infinite(ay), far_x = is_infinite(ax);
  const Reg far = far_y | far_x;  // what is finite is nothing beside it
  const Reg one = tile::constant_like(x, 1.0);
  ay = select(far, select(far_y, one, 0.0), ay);
  ax = select(far, select(far_x, one, 0.0), ax);
  const Reg steep = ay > ax;
  Reg large = select(steep, ay, ax), small = select(steep, ax, ay);
  const Reg factor = scale_for(large);
  large = select(tile::equal(large, 0.0), 1.0, large * factor);
  small = small * factor;

  const Reg middle = small > large * kTanEighth;
  const Reg backward = has_minus(x);
  const Pair n = select(middle, fast_sum(-large, small), single(small));
  const Pair d = select(middle, fast_sum(large, small), single(large));
  const Reg sign = select(steep ^ backward, -one, 1.0);
  const Reg m = select(middle, one, 0.0);
  const Reg count = select(backward, select(steep, m + 2.0, 4.0 - m), select(steep, 2.0 - m, m));
  const Reg r = angle(quarters(count), {n.hi * sign, n.lo * sign}, d);
  const Reg signed_r = select(has_minus(y), -r, r);
  return select(t.isnan(x), x, select(t.isnan(y), y, signed_r));
}

// A function of float32 or float64, of narrower floats in float32.
Reg in_full(Reg x, Reg (*function)(Reg)) {
  const bool is_narrow = x.dtype() == DType::kFloat16 || x.dtype() == DType::kBFloat16;
  return is_narrow ? cast(function(cast(x, DType::kFloat32)), x.dtype()) : function(x);
}

// The slope of asin; inf at both ends.
Value inverse_cosine(Value x) { return 1.0 / sqrt((1.0 - x) * (1.0 + x)); }

void define_inverses(OpFamily& ops) {
  floating(ops.def("asin")
               .python("Asin", {"Arcsin"})
               .doc("The angle from -pi/2 to pi/2 of which x is the sine, within 1 unit in the "
                    "last place; NaN beyond 1. The gradient at -1 and 1 is inf.")
               .formula("\\arcsin x"))
      .pointwise([](tile::Builder&, Reg x) { return in_full(x, asin); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * inverse_cosine(g.in("input")); })
      .sample("input", -0.95, 0.95)
      .points({0.0, -0.0});

  floating(ops.def("acos")
               .python("Acos", {"Arccos"})
               .doc("The angle from 0 to pi of which x is the cosine, within 1 unit in the last "
                    "place; NaN beyond 1. The gradient at -1 and 1 is -inf.")
               .formula("\\arccos x"))
      .pointwise([](tile::Builder&, Reg x) { return in_full(x, acos); })
      .gradient([](GradBuilder& g) { g.d("input") = -(g.dout() * inverse_cosine(g.in("input"))); })
      .sample("input", -0.95, 0.95)
      .points({0.0, -0.0});

  floating(ops.def("atan")
               .python("Atan", {"Arctan"})
               .doc("The angle from -pi/2 to pi/2 of which x is the tangent, within 1 unit in the "
                    "last place.")
               .formula("\\arctan x"))
      .pointwise([](tile::Builder&, Reg x) { return in_full(x, atan); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() / (square(g.in("input")) + 1.0); })
      .sample("input", -4.0, 4.0)
      .points({0.0, -0.0, 1.0, -1.0});
}

void define_atan2(OpFamily& ops) {
  binary_cases(
      ops.def("atan2")
          .python("Atan2", {"Arctan2"})
          .doc("The angle from -pi to pi of the point (x, y) from the first axis, within 1 unit "
               "in the last place, as C has it for zeros and infinities. At the origin the "
               "gradient is NaN.")
          .formula("\\arg(x + i y)")
          .input("y", kTensor)
          .input("x", kTensor)
          .output("output", computed())
          .promote_float()
          .pointwise([](tile::Builder& t, Reg y, Reg x) {
            const DType dtype = x.dtype();
            const bool is_narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
            if (!is_narrow) return atan2(t, y, x);
            return cast(atan2(t, cast(y, DType::kFloat32), cast(x, DType::kFloat32)), dtype);
          })
          .gradient([](GradBuilder& g) {
            // Squares are taken of numbers at most 1: else they may be too large, or all 0.
            const Value size = maximum(abs(g.in("x")), abs(g.in("y")));
            const Value unit = ir::apply("stop_gradient", {size});
            const Value x = g.in("x") / unit, y = g.in("y") / unit;
            const Value scaled = g.dout() / (square(x) + square(y)) / unit;
            if (g.wants("y")) g.d("y") = scaled * x;
            if (g.wants("x")) g.d("x") = -(scaled * y);
          }),
      "y", "x");
}

}  // namespace

void define_angle(OpFamily& ops) {
  define_inverses(ops);
  define_atan2(ops);
}

}  // namespace mithril::ops

// The elementary functions, written once over a lane type V: straight-line code of IEEE operations
// (add, sub, mul, div, sqrt, fma), compare and select, and integer add, sub, and, or, xor, shift on
// the bits, in places an element of a table. No libm, no conversion between floats and integers:
// integers enter and leave through 1.5 * 2^mantissa. One text gives the same bits on every lane
// type: scalars (tile/scalar_lane.h), vectors (backends/cpu/machine/lanes.h), and symbols
// (tile/expand.cc), which write basic instructions instead of computing. Needs -ffp-contract=off,
// round to nearest.
//
// A lane type V of element T has: T, the bits I and the mask M; V(T), I(bits); + - * /, < and ==;
// fma, fms (ab - c), fnma (c - ab), sqrt, select(M, V, V); bits(V), V::from_bits(I), I's + - & | ^,
// V::shl<n>(I), V::shr<n>(I) (logical); at_least(x, c) = c > x ? c : x and at_most(x, c) =
// c < x ? c : x; V::lookup(Table, I), of binary32; otherwise(M, V a, f): a, and f() where not M;
// replace_huge(V, Reduced<V>). It may have a `scale`, a `gelu_far` and a
// `gelu_tanh_far` of its own, of equal bits.
//
// Error control: every function keeps the part that carries the leading bits exact (as a pair) and
// rounds only corrections of at most 2^-3 of the result, so the final addition is the only full
// rounding. Largest errors: 0.92 ULP over all float32 inputs, 0.98 over millions of float64 ones;
// tests/cpp/tile/accuracy.inc has them by function, with the inputs.
//
// Methods: Cody & Waite and Payne & Hanek reductions; Dekker's Fast2Sum and Knuth's TwoSum (Muller
// et al., Handbook of Floating-Point Arithmetic, ch. 4); the split of log at 2/3 and its form
// f - f^2/2 + ... as in fdlibm; t = 1 / (a + c) for erfc as in Shepherd & Laframboise (1981).
#pragma once
#include "tile/math_coefficients.h"
#include "tile/tables.h"

// Calls between the parts would make vector code several times slower.
#define MITHRIL_TILE_INLINE inline __attribute__((always_inline))

namespace mithril::tile::math {

template <class V>
struct Pair {
  V hi, lo;
};  // unevaluated hi + lo
template <class V>
using FormatOf = Format<typename V::T>;
template <class V>
using CoefficientsOf = Coefficients<typename V::T>;
template <class V>
using LimitsOf = Limits<typename V::T>;

template <class V>
MITHRIL_TILE_INLINE V negate(V x) {
  return V::from_bits(bits(x) ^ typename V::I(FormatOf<V>::sign));
}
template <class V>
MITHRIL_TILE_INLINE V absolute(V x) {
  return V::from_bits(bits(x) & typename V::I(FormatOf<V>::sign - 1));
}
template <class V>
MITHRIL_TILE_INLINE V with_sign_of(V magnitude, V x) {
  return V::from_bits(bits(magnitude) | (bits(x) & typename V::I(FormatOf<V>::sign)));
}

// Horner: fewest operations; independent tiles supply the parallelism.
template <class V, int n>
MITHRIL_TILE_INLINE V horner(V x, const typename V::T (&c)[n]) {
  V p = c[n - 1];
#pragma GCC unroll 32
  for (int i = n - 2; i >= 0; --i) p = fma(p, x, V(c[i]));
  return p;
}

// Nearest even integral for |x| < 2^(mantissa - 1); the sign of zero is lost.
template <class V>
MITHRIL_TILE_INLINE V round_integral(V x) {
  return (x + V(FormatOf<V>::magic)) - V(FormatOf<V>::magic);
}

// 2^n for integral n in the normal range: the biased exponent sits in the low bits of magic + bias
// + n.
template <class V>
MITHRIL_TILE_INLINE V power_of_two(V n) {
  using F = FormatOf<V>;
  return V::from_bits(V::template shl<F::mantissa>(bits(n + V(F::magic + F::bias))));
}

// x * 2^n with one rounding, |n| <= 2 bias + 100, x near 1: two exact-or-final multiplications.
// AVX-512 has it in one instruction, with the same result.
template <class V>
MITHRIL_TILE_INLINE V scale(V x, V n) {
  using F = FormatOf<V>;
  typename V::I both = bits(n + V(F::magic + 2 * F::bias)), first = V::template shr<1>(both),
                second = both - first;
  return x * V::from_bits(V::template shl<F::mantissa>(first)) *
         V::from_bits(V::template shl<F::mantissa>(second));
}

// Exact sums: fast_sum when |a| >= |b| or when s - a is exact anyway; two_sum always.
template <class V>
MITHRIL_TILE_INLINE Pair<V> fast_sum(V a, V b) {
  V s = a + b;
  return {s, b - (s - a)};
}
template <class V>
MITHRIL_TILE_INLINE Pair<V> two_sum(V a, V b) {
  V s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
template <class V>
MITHRIL_TILE_INLINE Pair<V> product(V a, V b) {
  V p = a * b;
  return {p, fms(a, b, p)};
}

// (hi + lo) / (d.hi + d.lo): one division, one correction.
template <class V>
MITHRIL_TILE_INLINE Pair<V> divide(Pair<V> n, Pair<V> d) {
  V inverse = V(1) / d.hi, q = n.hi * inverse;
  V rest = fnma(q, d.hi, n.hi) + fnma(q, d.lo, n.lo);
  return {q, rest * inverse};
}

// x = n ln2 + r, |r| <= ln2 / 2. Cody and Waite with fma: ln2_hi has all the bits of the format,
// and x - n ln2_hi is still exact, because it is a multiple of ulp(ln2_hi) / 2 below one half. low
// is a correction to x.
template <class V>
struct Reduced {
  V n, r, low;
};
template <class V>
MITHRIL_TILE_INLINE Reduced<V> exp_reduce(V x, V low) {
  using C = CoefficientsOf<V>;
  V n = round_integral(x * V(C::log2e));
  Pair<V> r = fast_sum(fnma(n, V(C::ln2_hi), x),
                       fnma(n, V(C::ln2_lo), low));  // low may reach 2^-18: it belongs to r
  return {n, r.hi, r.lo};
}
template <class V>
MITHRIL_TILE_INLINE Reduced<V> exp_reduce(V x) {
  using C = CoefficientsOf<V>;
  V n = round_integral(x * V(C::log2e));
  V exact = fnma(n, V(C::ln2_hi), x), r = fnma(n, V(C::ln2_lo), exact);
  return {n, r, fnma(n, V(C::ln2_lo), exact - r)};
}

// e^(r + low) as a pair: (1 + r) exactly, the rest below 2^-3.
template <class V>
MITHRIL_TILE_INLINE Pair<V> exp_small(V r, V low) {
  V q = horner(r, CoefficientsOf<V>::exp_q);
  Pair<V> h = fast_sum(V(1), r);
  V t = fma(r * r, q, fma(low, h.hi, h.lo));
  return fast_sum(h.hi, t);
}
template <class V>
MITHRIL_TILE_INLINE V exp_small_rounded(V r, V low) {
  V q = horner(r, CoefficientsOf<V>::exp_q);
  Pair<V> h = fast_sum(V(1), r);
  return h.hi + fma(r * r, q, fma(low, h.hi, h.lo));
}

// No pair is wanted here, so the rounding of r may stay: the largest error does not grow.
template <class V>
MITHRIL_TILE_INLINE V exp(V x) {
  using C = CoefficientsOf<V>;
  using L = LimitsOf<V>;
  using F = FormatOf<V>;
  x = at_most(at_least(x, V(L::exp_lo)), V(L::exp_hi));
  V n = fma(x, V(C::log2e), V(F::magic)) - V(F::magic);
  V r = fnma(n, V(C::ln2_lo), fnma(n, V(C::ln2_hi), x));
  Pair<V> h = fast_sum(V(1), r);
  return scale(h.hi + fma(r * r, horner(r, C::exp_q), h.lo), n);
}

template <class V>
MITHRIL_TILE_INLINE V exp2(V x) {
  using C = CoefficientsOf<V>;
  using L = LimitsOf<V>;
  x = at_most(at_least(x, V(L::exp2_lo)), V(L::exp2_hi));
  V n = round_integral(x), f = x - n;
  Pair<V> r = product(f, V(C::ln2_hi));
  return scale(exp_small_rounded(r.hi, fma(f, V(C::ln2_lo), r.lo)), n);
}

// e^x - 1 = s (e^r - 1) + (s - 1), s = 2^n, -26 <= n <= 127 (binary32); s r and, while it matters,
// s - 1 are exact.
template <class V>
MITHRIL_TILE_INLINE Pair<V> expm1_parts(Reduced<V> e) {
  V s = power_of_two(e.n), r2 = e.r * e.r;
  V small = fma(r2, horner(e.r, CoefficientsOf<V>::exp_q), fma(e.low, e.r, e.low));
  Pair<V> ones = two_sum(s, V(-1)), h = fast_sum(ones.hi, s * e.r);
  return {h.hi, fma(s, small, h.lo + ones.lo)};
}
template <class V>
MITHRIL_TILE_INLINE V expm1(V x) {
  using L = LimitsOf<V>;
  using F = FormatOf<V>;
  Reduced<V> e = exp_reduce(at_most(at_least(x, V(L::expm1_lo)), V(L::exp_hi)));
  V n = e.n;
  e.n = at_most(n, V(F::bias));  // 2^(bias + 1) does not exist; the factor 2 comes last
  Pair<V> p = expm1_parts(e);
  V y = (p.hi + p.lo) * select(V(F::bias) < n, V(2), V(1));
  return select(x == V(0), x, y);
}

// tanh|x| = E / (E + 2), E = e^(2|x|) - 1 as a pair.
template <class V>
MITHRIL_TILE_INLINE V tanh(V x) {
  V a = at_most(absolute(x), V(LimitsOf<V>::tanh_hi));
  Pair<V> p = expm1_parts(exp_reduce(a + a));
  Pair<V> e = fast_sum(p.hi, p.lo);
  Pair<V> d = two_sum(e.hi, V(2));
  d.lo = d.lo + e.lo;
  Pair<V> q = divide(e, d);
  return with_sign_of(q.hi + q.lo, x);
}

// The logistic function as a fraction times a power of two: z = e^-|v| = p 2^n; 1 / (1 + z) for v
// >= 0, p / (1 + z) 2^n for v < 0. Exact to the last subnormal.
template <class V>
struct Logistic {
  Pair<V> numerator, denominator;
  V n;
};
template <class V>
MITHRIL_TILE_INLINE Logistic<V> logistic(Reduced<V> e, typename V::M negative) {
  Pair<V> p = exp_small(e.r, e.low);
  V s = power_of_two(at_least(e.n, V(1 - FormatOf<V>::bias)));
  Pair<V> d = fast_sum(V(1), p.hi * s);
  d.lo = fma(p.lo, s, d.lo);
  return {
      {select(negative, p.hi, V(1)), select(negative, p.lo, V(0))}, d, select(negative, e.n, V(0))};
}
template <class V>
MITHRIL_TILE_INLINE V sigmoid(V x) {
  V a = at_most(absolute(x), negate(V(LimitsOf<V>::exp_lo)));
  Logistic<V> g = logistic(exp_reduce(negate(a)), x < V(0));
  Pair<V> q = divide(g.numerator, g.denominator);
  return scale(q.hi + q.lo, g.n);
}
template <class V>
MITHRIL_TILE_INLINE V times_logistic(V x, Logistic<V> g) {
  Pair<V> p = product(x, g.numerator.hi);
  p.lo = fma(x, g.numerator.lo, p.lo);
  Pair<V> q = divide(p, g.denominator);
  return with_sign_of(scale(q.hi + q.lo, g.n), x);  // the sign of a zero, else already right
}
// x sigmoid(x); x e^x is nonzero a little longer than e^x.
template <class V>
MITHRIL_TILE_INLINE V silu(V x) {
  V lo = LimitsOf<V>::silu_lo, c = at_least(x, lo), a = at_most(absolute(c), negate(lo));
  V y = times_logistic(c, logistic(exp_reduce(negate(a)), x < V(0)));
  return select(negate(lo) < x, x, y);
}
// GELU in binary32 where x is above a limit: max(x, 0) - a Q(a), a = |x|, Q around the nearest
// node, whose own Q is exact, as a pair. The rest (x is inf or NaN, so that this is no number, or
// below the limit) is then taken from the function's formula by pairs.
template <class V>
MITHRIL_TILE_INLINE V gelu_near(V x, Table first) {
  using L = LimitsOf<V>;
  V a = at_most(absolute(x), V(L::gelu_last));
  typename V::I n = bits(fma(a, V(L::gelu_nodes), V(FormatOf<V>::magic)));
  const auto table = [&](int k) __attribute__((always_inline)) {
    return V::lookup(static_cast<Table>(static_cast<int>(first) + k), n);
  };
  V d = a - table(0), q = table(7);
#pragma GCC unroll 5
  for (int k = 6; k >= 2; --k) q = fma(q, d, table(k));
  V c0 = table(1), hi = fma(q, d, c0), lo = fma(q, d, c0 - hi);
  V relu = at_least(x, V(0)), y = fnma(a, hi, relu);
  return y - fma(a, lo, fma(a, hi, y - relu));  // the sign of a zero stays
}
// x / (1 + e^-v), v = 2 sqrt(2/pi) (x + 0.044715 x^3) = x (c1 + c2 x^2) as a pair.
template <class V>
MITHRIL_TILE_INLINE V gelu_tanh_pairs(V x) {
  using C = CoefficientsOf<V>;
  V hi = LimitsOf<V>::gelu_tanh_hi, c = at_least(x, negate(hi)), a = at_most(absolute(c), hi);
  Pair<V> s = product(a, a), w = product(s.hi, V(C::gelu_c2));
  w.lo = fma(s.hi, V(C::gelu_c2_lo), fma(s.lo, V(C::gelu_c2), w.lo));
  Pair<V> k = two_sum(V(C::gelu_c1), w.hi);
  k.lo = k.lo + (w.lo + V(C::gelu_c1_lo));
  Pair<V> v = product(a, k.hi);
  v.lo = fma(a, k.lo, v.lo);
  V y = times_logistic(c, logistic(exp_reduce(negate(v.hi), negate(v.lo)), x < V(0)));
  return select(hi < x, x, y);
}
template <class V>
MITHRIL_TILE_INLINE V gelu_tanh_far(V x, V y) {
  const auto far = [&]() __attribute__((always_inline)) { return gelu_tanh_pairs(x); };
  return otherwise(V(LimitsOf<V>::gelu_tanh_near) < at_most(y, x), y, far);
}
template <class V>
MITHRIL_TILE_INLINE V gelu_tanh(V x) {
  if constexpr (sizeof(typename V::T) == 4)
    return gelu_tanh_far(x, gelu_near(x, Table::kGeluTanh));
  else
    return gelu_tanh_pairs(x);
}

// x = 2^k (1 + f), 2/3 <= 1 + f < 4/3, for x > 0; subnormal x is scaled first.
template <class V>
struct Split {
  V k, f;
};
template <class V>
MITHRIL_TILE_INLINE Split<V> log_split(V x) {
  using F = FormatOf<V>;
  using I = typename V::I;
  constexpr typename V::T shift = typename V::T(typename F::Bits(1) << F::mantissa);
  typename V::M subnormal = x < V(F::min_normal);
  V scaled = select(subnormal, x * V(shift), x);
  I t = bits(scaled) + I(F::one - F::two_thirds);
  // the biased exponent, read as the low bits of shift + exponent
  V k = V::from_bits(V::template shr<F::mantissa>(t) | bits(V(shift))) -
        select(subnormal, V(shift + (F::bias + F::mantissa)), V(shift + F::bias));
  return {k, V::from_bits((t & I(F::mantissa_mask)) + I(F::two_thirds)) - V(1)};
}
template <class V>
MITHRIL_TILE_INLINE V log_guard(V y, V x) {
  using F = FormatOf<V>;
  y = select(x < V(F::infinity), y, x);  // inf and NaN
  y = select(x < V(0), V(F::nan), y);
  return select(x == V(0), V(-F::infinity), y);
}

// k ln2 + log1p(f + low) as a pair: k ln2_short + f exactly, then -f^2/2 and the rest. k ln2_short
// is exact (ln2_short has 15 or 41 bits).
template <class V>
MITHRIL_TILE_INLINE Pair<V> log_sum(V k, V f, V low) {
  using C = CoefficientsOf<V>;
  Pair<V> h = fast_sum(k * V(C::ln2_short), f), s = product(f, f);
  V t = fma(f * s.hi, horner(f, C::log_p), fma(k, V(C::ln2_rest), h.lo + low));
  t = fma(s.lo, V(-0.5), t);
  return {h.hi, fma(s.hi, V(-0.5), t)};
}
template <class V>
MITHRIL_TILE_INLINE V log(V x) {
  Split<V> s = log_split(x);
  Pair<V> y = log_sum(s.k, s.f, V(0));
  return log_guard(y.hi + y.lo, x);
}
// log2 = k + (f + g) log2e, with f log2e as an exact product.
template <class V>
MITHRIL_TILE_INLINE V log2(V x) {
  using C = CoefficientsOf<V>;
  Split<V> s = log_split(x);
  Pair<V> f2 = product(s.f, s.f);
  V cubic = fma(s.f * f2.hi, horner(s.f, C::log_p), f2.lo * V(-0.5));
  Pair<V> p = product(s.f, V(C::log2e_hi)),
          half = product(f2.hi, V(C::log2e_hi * typename V::T(-0.5)));
  V t = fma(cubic, V(C::log2e_hi), fma(s.f, V(C::log2e_lo), p.lo + half.lo));
  Pair<V> h = fast_sum(s.k, p.hi);
  return log_guard(h.hi + (half.hi + (t + h.lo)), x);
}
// 1 + x = u + c exactly; f = (u - 1) + c 2^-k. For k = 0 that is x itself.
template <class V>
MITHRIL_TILE_INLINE V log1p(V x) {
  using F = FormatOf<V>;
  V big = at_least(x, V(1)), small = at_most(x, V(1)), u = big + small, c = small - (u - big);
  Split<V> s = log_split(u);
  c = c * power_of_two(negate(at_most(s.k, V(F::bias - 1))));
  Pair<V> f = fast_sum(s.f, c);
  Pair<V> y = log_sum(s.k, f.hi, fnma(f.hi, f.lo, f.lo));
  V r = select(x < V(F::infinity), y.hi + y.lo, x);
  r = select(x < V(-1), V(F::nan), r);
  r = select(x == V(-1), V(-F::infinity), r);
  return select(x == V(0), x, r);
}
// max(x, 0) + log1p(z), z = e^-|x| as a pair; z >= 1/3 is taken as ln2 + log1p((z - 1) / 2).
template <class V>
MITHRIL_TILE_INLINE V softplus(V x) {
  using L = LimitsOf<V>;
  using T = typename V::T;
  V a = at_most(absolute(x), V(-L::exp_lo));
  Reduced<V> e = exp_reduce(negate(a));
  Pair<V> p = exp_small(e.r, e.low);
  V hi = scale(p.hi, e.n), lo = scale(p.lo, e.n);
  typename V::M far = hi < V(T(1) / 3);
  Pair<V> near = fast_sum(V(-0.5), hi * V(0.5));
  V f = select(far, hi, near.hi), low = select(far, lo, fma(lo, V(0.5), near.lo));
  Pair<V> y = log_sum(select(far, V(0), V(1)), f, fnma(f, low, low));
  Pair<V> s = two_sum(select(x < V(0), V(0), x), y.hi);
  return select(V(-L::exp_lo) < x, x, s.hi + (s.lo + y.lo));
}

// A Gaussian tail without its exponential: t H(u) as a pair, t = 1 / (a + c), u = 1 - 2 c t, H(u) =
// b0 + b1 u + R(u). b0 + b1 u is exact, the low part of u enters by the slope, R is small. c is a
// power of two.
template <class V, int n>
MITHRIL_TILE_INLINE Pair<V> tail_factor(V a, const typename V::T (&k)[5],
                                        const typename V::T (&r)[n]) {
  V c = k[0], b0 = k[1], b1 = k[2], scale_t = -2 * k[0];
  Pair<V> d = fast_sum(c, a);
  V th = V(1) / d.hi, tl = th * fnma(th, d.lo, fnma(th, d.hi, V(1)));
  V uh = fma(scale_t, th, V(1)), ul = fma(scale_t, tl, fma(scale_t, th, V(1) - uh));
  V slope = fma(uh, V(k[4]), V(k[3]));
  Pair<V> p = product(uh, b1), h = fast_sum(b0, p.hi);
  Pair<V> g = fast_sum(h.hi, fma(ul, slope, h.lo + p.lo) + horner(uh, r));
  Pair<V> y = product(th, g.hi);
  y.lo = fma(th, g.lo, fma(tl, g.hi, y.lo));
  return y;
}
template <class V>
MITHRIL_TILE_INLINE Pair<V> multiply(Pair<V> a, Pair<V> b) {
  Pair<V> y = product(a.hi, b.hi);
  y.lo = fma(a.hi, b.lo, fma(a.lo, b.hi, y.lo));
  return y;
}
// gelu(x) = max(x, 0) - a Q(a), a = |x|, Q(a) = erfc(a / sqrt 2) / 2: no cancellation anywhere,
// relative accuracy down to the last subnormal.
template <class V>
MITHRIL_TILE_INLINE V gelu_pairs(V x) {
  using C = CoefficientsOf<V>;
  using L = LimitsOf<V>;
  V a = at_most(absolute(x), V(L::gelu_hi));
  Pair<V> s = product(a, a);
  Reduced<V> e = exp_reduce(s.hi * V(-0.5), s.lo * V(-0.5));
  Pair<V> g = tail_factor(a, L::gelu_tail, C::gelu_h);
  Pair<V> ag = product(a, g.hi);
  ag.lo = fma(a, g.lo, ag.lo);
  Pair<V> y = multiply(ag, exp_small(e.r, e.low));
  y = fast_sum(y.hi, y.lo);  // before a subnormal rounds twice
  typename V::M below = x < V(0);
  V hi = scale(y.hi, e.n),
    lo = select(below, V(0),
                scale(y.lo, e.n));  // below 0, hi is the result; a scaled lo may not be exact
  V relu = select(below, V(0), x);
  V sum = relu - hi, rest = (relu - sum) - hi;
  return select(V(L::gelu_hi) < x, x,
                with_sign_of(sum + (rest - lo), x));  // the sign of a zero, else already right
}
template <class V>
MITHRIL_TILE_INLINE V gelu_far(V x, V y) {
  const auto far = [&]() __attribute__((always_inline)) { return gelu_pairs(x); };
  return otherwise(V(LimitsOf<V>::gelu_near) < at_most(y, x), y, far);
}
template <class V>
MITHRIL_TILE_INLINE V gelu(V x) {
  if constexpr (sizeof(typename V::T) == 4)
    return gelu_far(x, gelu_near(x, Table::kGelu));
  else
    return gelu_pairs(x);
}
// erfc(x) = e^-x^2 tail for x >= 0, 2 - that for x < 0.
template <class V>
MITHRIL_TILE_INLINE V erfc(V x) {
  using C = CoefficientsOf<V>;
  using L = LimitsOf<V>;
  V a = at_most(absolute(x), V(L::erfc_hi));
  Pair<V> s = product(a, a);
  Reduced<V> e = exp_reduce(negate(s.hi), negate(s.lo));
  Pair<V> y = multiply(tail_factor(a, L::erfc_tail, C::erfc_h), exp_small(e.r, e.low));
  y = fast_sum(y.hi, y.lo);  // before a subnormal rounds twice
  V hi = scale(y.hi, e.n), lo = scale(y.lo, e.n);
  Pair<V> two = fast_sum(V(2), negate(hi));
  return select(x < V(0), two.hi + (two.lo - lo),
                hi);  // hi is rounded already; a scaled lo may not be exact
}
// binary32: |x| < 1: x + x P(x^2); else 1 - R(|x| - 2.25). One Horner chain, coefficients selected,
// the large side being the longer one. P = c0 - 5/16 u + u q, so that q is small.
inline constexpr int erf_small_count = 8;
template <class V>
MITHRIL_TILE_INLINE V erf_selected(V x) {
  using C = CoefficientsOf<V>;
  V a = at_most(absolute(x), V(LimitsOf<V>::erf_hi));
  typename V::M small = a < V(1);
  V u = select(small, a * a, a - V(2.25)), p = C::erf_large[15];
#pragma GCC unroll 32
  for (int i = 14; i >= erf_small_count; --i) p = fma(p, u, V(C::erf_large[i]));
  p = select(small, V(C::erf_small[erf_small_count - 1]),
             fma(p, u, V(C::erf_large[erf_small_count - 1])));
#pragma GCC unroll 32
  for (int i = erf_small_count - 2; i >= 1; --i)
    p = fma(p, u, select(small, V(C::erf_small[i]), V(C::erf_large[i])));
  p = fma(p, u,
          fma(u, select(small, V(-0.3125), V(0)),
              select(small, V(C::erf_small[0]), V(C::erf_large[0]))));
  V y = select(small, fma(a, p, a), V(1) - p);
  return with_sign_of(y, x);
}
// binary64: |x| < 1 the same polynomial, else 1 - e^-x^2 tail.
template <class V>
MITHRIL_TILE_INLINE V erf_tail(V x) {
  using C = CoefficientsOf<V>;
  using L = LimitsOf<V>;
  V a = at_most(absolute(x), V(L::erf_hi));
  Pair<V> s = product(a, a);
  Reduced<V> e = exp_reduce(negate(s.hi), negate(s.lo));
  Pair<V> y = multiply(tail_factor(a, L::erfc_tail, C::erfc_h), exp_small(e.r, e.low));
  V k = power_of_two(e.n), hi = y.hi * k, lo = y.lo * k;
  Pair<V> one = fast_sum(V(1), negate(hi));
  V near = fma(a, horner(s.hi, C::erf_small), a);
  return with_sign_of(select(a < V(1), near, one.hi + (one.lo - lo)), x);
}
template <class V>
MITHRIL_TILE_INLINE V erf(V x) {
  if constexpr (sizeof(typename V::T) == 4)
    return erf_selected(x);
  else
    return erf_tail(x);
}

// |x| <= trig_hi: x = n pi/2 + r + low in three parts with fma; the first difference is exact.
// Beyond, an extern lane (below) gives n, r, low.
template <class V>
MITHRIL_TILE_INLINE Reduced<V> trig_reduce(V x) {
  using C = CoefficientsOf<V>;
  V n = round_integral(x * V(C::two_over_pi));
  Pair<V> p = product(n, V(-C::half_pi_2)), r = fast_sum(fnma(n, V(C::half_pi_1), x), p.hi);
  return {n, r.hi, fnma(n, V(C::half_pi_3), r.lo + p.lo)};
}
// sin(r + low) or cos(r + low) by the parity of n, sign by its second bit.
template <class V>
MITHRIL_TILE_INLINE V trig_value(Reduced<V> e) {
  using F = FormatOf<V>;
  using C = CoefficientsOf<V>;
  using I = typename V::I;
  Pair<V> s = product(e.r, e.r);
  V sine = e.r + fma(e.r * s.hi, horner(s.hi, C::sin_s), fma(s.hi * V(-0.5), e.low, e.low));
  Pair<V> h = fast_sum(V(1), s.hi * V(-0.5));
  V rest = fnma(e.r, e.low, fma(s.lo, V(-0.5), h.lo));
  V cosine = h.hi + fma(s.hi * s.hi, horner(s.hi, C::cos_c), rest);
  I q = bits(e.n + V(F::magic));
  V odd = V::from_bits(V::template shl<F::mantissa>(q & I(1)) +
                       bits(V(1)));  // 1 or 2, compared as a number: no integer compare needed
  V y = select(odd == V(1), sine, cosine);
  return V::from_bits(
      bits(y) ^
      V::template shl<F::mantissa + (sizeof(typename V::T) == 4 ? 8 : 11)>(V::template shr<1>(q)));
}
template <class V>
MITHRIL_TILE_INLINE V sin_moderate(V x) {
  return select(x == V(0), x, trig_value(trig_reduce(x)));
}
template <class V>
MITHRIL_TILE_INLINE V cos_moderate(V x) {
  Reduced<V> e = trig_reduce(x);
  e.n = e.n + V(1);
  return trig_value(e);
}

// 1 / sqrt(x) with one correction: e = 1 - x y^2 with x y as an exact product.
template <class V>
MITHRIL_TILE_INLINE V rsqrt(V x) {
  V y = V(1) / sqrt(x);
  Pair<V> h = product(x, y);
  V e = fnma(h.lo, y, fnma(h.hi, y, V(1)));
  return select(absolute(e) < V(1), fma(y * V(0.5), e, y),
                y);  // 0, inf, NaN, negative: e is no number
}

// binary32 power in binary64 lanes: x and y hold binary32 values, the caller rounds the result once
// to binary32 (which also makes its subnormals and infinities). y log2|x| is accurate to 2^-34,
// hence 0.501 ULP. Special cases are C99's.
template <class V>
MITHRIL_TILE_INLINE V pow_f32(V x, V y) {
  using F = FormatOf<V>;
  using I = typename V::I;
  V a = absolute(x);
  I t = bits(a) + I(F::one - F::two_thirds);
  V k = V::from_bits(V::template shr<52>(t) | bits(V(0x1p52))) - V(0x1p52 + 1023);
  V f = V::from_bits((t & I(F::mantissa_mask)) + I(F::two_thirds)) - V(1);
  V w = fma(f * f, fma(f, horner(f, PowCoefficients::log_p), V(-0.5)), f);
  V l = fma(w, V(Coefficients<double>::log2e), k);
  l = select(a == V(0), V(-F::infinity),
             select(a < V(F::infinity), l, a));  // log2|x|; inf and NaN stay
  V z = at_most(at_least(select(a == V(1), V(0), y * l), V(-200)), V(200));
  V n = round_integral(z), g = z - n;
  V p = horner(g, PowCoefficients::exp2_p) * power_of_two(n);
  V c = at_most(absolute(y), V(0x1p30)), half = c * V(0.5);  // all larger binary32 values are even
  V whole = select(round_integral(c) == c, V(1), V(0)),
    even = select(round_integral(half) == half, V(1), V(0));
  V negative = V::from_bits((bits(x) & I(F::sign)) | bits(V(1)));  // +-1, also for -0
  p = p *
      select(whole == V(1), select(even == V(1), V(1), negative), V(1));  // odd y: the sign of x
  typename V::M below = x < V(0);
  V invalid =
      select(below, select(whole == V(1), V(0), select(a < V(F::infinity), V(1), V(0))), V(0));
  p = select(invalid == V(1), V(F::nan), p);
  p = select(y == y, p, y);
  p = select(y == V(0), V(1), p);
  return select(x == V(1), V(1), p);
}

// n, r, low beyond the fast reduction's range come from an extern lane (tile/extern_lane.h).
template <class V>
MITHRIL_TILE_INLINE Reduced<V> trig_reduce_all(V x) {
  return replace_huge(x, trig_reduce(x));
}
template <class V>
MITHRIL_TILE_INLINE V sin(V x) {
  return select(x == V(0), x, trig_value(trig_reduce_all(x)));
}
template <class V>
MITHRIL_TILE_INLINE V cos(V x) {
  Reduced<V> e = trig_reduce_all(x);
  e.n = e.n + V(1);
  return trig_value(e);
}

}  // namespace mithril::tile::math

// Payne-Hanek reduction (extern_lane.inc), double-double power, exact remainders.
#include "tile/extern_lane.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "tile/scalar_lane.h"

namespace mithril::tile {
namespace {

using m_f32 = float;
using m_f64 = double;
using m_w32 = uint32_t;
using m_w64 = uint64_t;
using m_i64 = int64_t;
#define M_FN static
#define M_TABLE constexpr
#define M_NAN NAN
#define M_INFINITY INFINITY
#define M_U64(x) x##ull
#define m_c_fma_f32 std::fma
#define m_c_fma_f64 std::fma
#define m_abs_f32 std::fabs
#define m_abs_f64 std::fabs
uint32_t m_bits_f32(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t m_bits_f64(double x) { return std::bit_cast<uint64_t>(x); }
#include "tile/extern_lane.inc"
// The bounds in that text.
static_assert(math::Limits<float>::trig_hi == 131072 && math::Limits<double>::trig_hi == 8388608);

// ---- power

struct Double2 {
  double hi, lo;
};

Double2 fast_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}
Double2 two_sum(double a, double b) {
  const double s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
Double2 add(Double2 a, Double2 b) {
  const Double2 s = two_sum(a.hi, b.hi);
  return fast_sum(s.hi, s.lo + (a.lo + b.lo));
}
Double2 mul(Double2 a, Double2 b) {
  const double p = a.hi * b.hi;
  const double e = std::fma(a.hi, b.hi, -p);
  return fast_sum(p, std::fma(a.hi, b.lo, std::fma(a.lo, b.hi, e)));
}

// ln(1 + f) = 2 atanh(s), s = f / (2 + f): s (2 + 2 z/3 + 2 z^2/5 + ...), z = s^2 <= 0.04. The
// first four terms as pairs, the rest (below 2^-18 of the sum) in doubles.
Double2 log1p_pair(double f) {
  const Double2 d = fast_sum(2.0, f);
  const double q = f / d.hi;
  const double rest = std::fma(-q, d.hi, f) - q * d.lo;
  const Double2 s = fast_sum(q, rest / d.hi);
  const Double2 z = mul(s, s);
  double tail = 2.0 / 29;
  for (int k = 27; k >= 9; k -= 2) tail = std::fma(tail, z.hi, 2.0 / k);
  Double2 p = mul(z, {tail, 0});
  p = add({0x1.2492492492492p-2, 0x1.2492492492492p-56}, p);           // 2/7
  p = add({0x1.999999999999ap-2, -0x1.999999999999ap-56}, mul(z, p));  // 2/5
  p = add({0x1.5555555555555p-1, 0x1.5555555555555p-55}, mul(z, p));   // 2/3
  p = add({2, 0}, mul(z, p));
  return mul(s, p);
}

// ln a for finite a > 0.
Double2 log_pair(double a) {
  const auto split = math::log_split(ScalarLane<double>(a));
  const double k = split.k.v;
  constexpr double ln2_hi = 0x1.62e42fefa39efp-1, ln2_lo = 0x1.abc9e3b39803fp-56;
  const double p = k * ln2_hi;
  const Double2 whole = fast_sum(p, std::fma(k, ln2_lo, std::fma(k, ln2_hi, -p)));
  return add(whole, log1p_pair(split.f.v));
}

// e^(hi + lo).
double exp_pair(Double2 x) {
  using V = ScalarLane<double>;
  if (x.hi > 710) return INFINITY;
  if (x.hi < -746) return 0;
  const auto e = math::exp_reduce(V(x.hi), V(x.lo));
  const auto p = math::exp_small(e.r, e.low);
  return math::scale(p.hi + p.lo, e.n).v;
}

bool is_integral(double y) { return std::fabs(y) >= 0x1p52 || std::trunc(y) == y; }
bool is_odd(double y) { return std::fabs(y) < 0x1p53 && is_integral(y) && std::fmod(y, 2) != 0; }

double pow_positive(double a, double y) {
  if (a == 0 || a == INFINITY) return (a == 0) == (y > 0) ? 0 : INFINITY;
  if (std::fabs(y) == INFINITY) {
    if (a == 1) return 1;
    return (a > 1) == (y > 0) ? INFINITY : 0;
  }
  const Double2 l = log_pair(a);
  const double p = y * l.hi;
  if (p > 710) return INFINITY;
  if (p < -746) return 0;
  return exp_pair(fast_sum(p, std::fma(y, l.lo, std::fma(y, l.hi, -p))));
}

// fmod is exact by definition, so every implementation gives the same bits.
template <class T>
T mod(T x, T y) {
  T r = std::fmod(x, y);
  if (r == 0) return std::copysign(r, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

// As CPython's float_floor_div: (x - x % y) / y is within rounding of an integer.
template <class T>
T floordiv(T x, T y) {
  if (y == 0) return x / y;
  T r = std::fmod(x, y);
  T q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return std::copysign(T{0}, x / y);
  T f = std::floor(q);
  return q - f > T{0.5} ? f + 1 : f;
}

}  // namespace

TurnsF32 reduce_turns(float x) {
  const m_turns_f32 turns = m_reduce_turns_f32(x);
  return {turns.n, turns.r, turns.low};
}

TurnsF64 reduce_turns(double x) {
  const m_turns_f64 turns = m_reduce_turns_f64(x);
  return {turns.n, turns.r, turns.low};
}

double pow_lane(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return NAN;
  const bool negative = std::signbit(x);
  if (x < 0 && x != -INFINITY && !is_integral(y))
    return std::fabs(y) == INFINITY ? pow_positive(-x, y) : NAN;
  const double magnitude = pow_positive(std::fabs(x), y);
  return negative && is_odd(y) ? -magnitude : magnitude;
}

float python_mod(float x, float y) { return mod(x, y); }
double python_mod(double x, double y) { return mod(x, y); }
float python_floordiv(float x, float y) { return floordiv(x, y); }
double python_floordiv(double x, double y) { return floordiv(x, y); }

}  // namespace mithril::tile

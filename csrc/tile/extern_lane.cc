// Payne-Hanek reduction, double-double power, exact remainders. In the common subset of C99, OpenCL
// C and CUDA C where it can be, because device printers will carry the same text.
#include "tile/extern_lane.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tile/scalar_lane.h"

namespace mithril::tile {
namespace {

// 32 zero bits, then the binary fraction of 2/pi. The window starts so that its top bit weighs 2
// quarter turns: what is dropped above is a multiple of four quarter turns, what is dropped below
// is less than 2^-62 (2^-126) of one.
constexpr uint32_t kTwoOverPi[41] = {
    0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
    0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c,
    0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4,
    0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf,
    0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea,
    0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d};
void reduce_finite(float x, float* n, float* r, float* low) {
  uint32_t u, w[3], i;
  memcpy(&u, &x, 4);  // OpenCL: as_uint, CUDA: __float_as_uint
  uint32_t start = ((u >> 23) & 255) - 150 + 30, m = (u & 0x7fffff) | 0x800000;
  for (i = 0; i < 3; ++i) {
    uint32_t word = (start >> 5) + i, shift = start & 31;
    w[i] = (kTwoOverPi[word] << shift) | (uint32_t)((uint64_t)kTwoOverPi[word + 1] >> (32 - shift));
  }
  uint64_t p = ((uint64_t)(m * w[0]) << 32) + (uint64_t)m * w[1] + (((uint64_t)m * w[2]) >> 32);
  uint64_t q = (p + ((uint64_t)1 << 61)) >> 62;
  int64_t fraction = (int64_t)(p - (q << 62));
  float hi = (float)fraction, lo = (float)(fraction - (int64_t)hi), h = hi * 0x1.921fb6p-62f;
  float l = std::fma(lo, 0x1.921fb6p-62f,
                     std::fma(hi, -0x1.777a5cp-87f, std::fma(hi, 0x1.921fb6p-62f, -h)));
  float sign = x < 0 ? -1.0f : 1.0f;
  *n = sign * (float)(uint32_t)q;
  *r = sign * h;
  *low = sign * l;
}
void reduce_finite(double x, double* n, double* r, double* low) {
  uint64_t u;
  uint32_t w[6], p[6], i;
  memcpy(&u, &x, 8);
  uint32_t start = (uint32_t)((u >> 52) & 2047) - 1075 + 30;
  uint64_t m = (u & 0xfffffffffffffu) | 0x10000000000000u, m0 = m & 0xffffffffu, m1 = m >> 32,
           carry = 0, carry1 = 0;
  for (i = 0; i < 6; ++i) {
    uint32_t word = (start >> 5) + i, shift = start & 31;
    w[i] = (kTwoOverPi[word] << shift) | (uint32_t)((uint64_t)kTwoOverPi[word + 1] >> (32 - shift));
  }
  for (i = 6; i-- > 0;) {  // p = m w mod 2^192, lowest word last
    carry += m0 * w[i];
    p[i] = (uint32_t)carry;
    carry >>= 32;
  }
  for (i = 5; i-- > 0;) {
    carry1 += m1 * w[i + 1] + p[i];
    p[i] = (uint32_t)carry1;
    carry1 >>= 32;
  }
  uint64_t a = ((uint64_t)p[0] << 32) | p[1], b = ((uint64_t)p[2] << 32) | p[3];
  uint64_t q = (a + ((uint64_t)1 << 61)) >> 62;
  a -= q << 62;
  double sign = x < 0 ? -1.0 : 1.0, way = sign;
  if (a >> 63) {
    a = ~a;
    b = ~b;
    way = -way;
  }  // minus the magnitude; the missing unit is 2^-126
  double l0 = (double)(a >> 32) * 0x1p-30, l1 = (double)(a & 0xffffffffu) * 0x1p-62,
         l2 = (double)(b >> 32) * 0x1p-94, l3 = (double)(b & 0xffffffffu) * 0x1p-126;
  double h = l0 + l1, e = l1 - (h - l0), g = l2 + l3, s = h + g, t = s - h,
         f = (h - (s - t)) + (g - t) + e + (l3 - (g - l2));
  double v = s * 0x1.921fb54442d18p+0,
         z = std::fma(f, 0x1.921fb54442d18p+0,
                      std::fma(s, 0x1.1a62633145c07p-54, std::fma(s, 0x1.921fb54442d18p+0, -v)));
  *n = sign * (double)q;
  *r = way * v;
  *low = way * z;
}

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
  if (!(std::fabs(x) < INFINITY)) return {0, NAN, NAN};
  TurnsF32 out{0, 0, 0};
  if (std::fabs(x) >= math::Limits<float>::trig_hi) reduce_finite(x, &out.n, &out.r, &out.low);
  return out;
}

TurnsF64 reduce_turns(double x) {
  if (!(std::fabs(x) < static_cast<double>(INFINITY))) return {0, NAN, NAN};
  TurnsF64 out{0, 0, 0};
  if (std::fabs(x) >= math::Limits<double>::trig_hi) reduce_finite(x, &out.n, &out.r, &out.low);
  return out;
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

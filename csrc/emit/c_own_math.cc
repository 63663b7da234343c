// Everything is exact before the one rounding: in integers, or in float64 rounded to odd.
#include "emit/c_own_math.h"

namespace mithril::emit {

const char* const kOwnMath = R"text(/* What libm has, exactly as it has it. */
M_FN m_f64 m_trunc_f64(m_f64 x) {
  const m_w64 sign = m_bits_f64(x) & M_U64(0x8000000000000000);
  if ((m_bits_f64(x) ^ sign) >= M_U64(0x4330000000000000)) return x;
  return m_of_bits_f64(m_bits_f64((m_f64)(m_i64)x) | sign);
}
M_FN m_f64 m_floor_f64(m_f64 x) { m_f64 t = m_trunc_f64(x); return t > x ? t - 1 : t; }
M_FN m_f64 m_ceil_f64(m_f64 x) { m_f64 t = m_trunc_f64(x); return t < x ? t + 1 : t; }
M_FN m_f64 m_round_f64(m_f64 x) {
  const m_w64 sign = m_bits_f64(x) & M_U64(0x8000000000000000);
  const m_f64 size = m_of_bits_f64(m_bits_f64(x) ^ sign), whole = 4503599627370496.0;
  return size < whole ? m_of_bits_f64(m_bits_f64((size + whole) - whole) | sign) : x;
}
M_FN m_f32 m_trunc_f32(m_f32 x) { return (m_f32)m_trunc_f64(x); }
M_FN m_f32 m_floor_f32(m_f32 x) { return (m_f32)m_floor_f64(x); }
M_FN m_f32 m_ceil_f32(m_f32 x) { return (m_f32)m_ceil_f64(x); }
M_FN m_f32 m_round_f32(m_f32 x) { return (m_f32)m_round_f64(x); }
/* |x| = m 2^e with 53 bits in m; x is finite and not 0. */
M_FN m_w64 m_parts_f64(m_f64 x, int* e) {
  const m_w64 u = m_bits_f64(x) & M_U64(0x7fffffffffffffff);
  m_w64 m = u & M_U64(0xfffffffffffff);
  *e = (int)(u >> 52) - 1075;
  if ((u >> 52) != 0) return m | M_U64(0x10000000000000);
  for (*e = -1074; (m >> 52) == 0; --*e) m <<= 1;
  return m;
}
/* The number nearest to (high, low) 2^e; the first bit of `high` is set, the last one of `low`
   stands for all below it. */
M_FN m_f64 m_nearest_f64(m_w64 high, m_w64 low, int e) {
  const int top = e + 127, drop = top < -1022 ? -1013 - top : 9;
  m_w64 q = drop < 64 ? high >> drop : 0, rest = drop < 64 ? high & ((M_U64(1) << drop) - 1) : high;
  q |= (rest | low) != 0;
  q = (q >> 2) + ((q & 3) == 3 || (q & 7) == 6);
  if (top > 1023) return m_of_bits_f64(M_U64(0x7ff0000000000000));
  return m_of_bits_f64(top < -1022 ? q : ((m_w64)(top + 1022) << 52) + q);
}
M_FN m_f64 m_fmod_f64(m_f64 x, m_f64 y) {
  const m_w64 sign = m_bits_f64(x) & M_U64(0x8000000000000000);
  const m_f64 size = m_of_bits_f64(m_bits_f64(x) ^ sign), by = y < 0 ? -y : y;
  int ex, ey;
  m_w64 mx, my;
  if (x - x != 0 || y != y || y == 0) return (x - x) / (x - x);
  if (size < by) return x;
  mx = m_parts_f64(x, &ex);
  my = m_parts_f64(y, &ey);
  for (; ex > ey; --ex) mx = (mx >= my ? mx - my : mx) << 1;
  if (mx >= my) mx -= my;
  for (ey -= 11, mx <<= 11; mx != 0 && (mx >> 63) == 0; --ey) mx <<= 1;
  return m_of_bits_f64((mx == 0 ? 0 : m_bits_f64(m_nearest_f64(mx, 0, ey - 64))) | sign);
}
M_FN m_f32 m_fmod_f32(m_f32 x, m_f32 y) { return (m_f32)m_fmod_f64(x, y); }
M_FN m_f64 m_own_sqrt_f64(m_f64 x) {
  m_w64 m, root = 0, rest = 0;
  int e, i;
  if (!(x > 0) || x - x != 0) return x == 0 || x > 0 ? x : (x - x) / (x - x);
  m = m_parts_f64(x, &e) << 10;
  if (e & 1) m <<= 1, --e;
  for (i = 0; i < 55; ++i, m <<= 2) {
    rest = (rest << 2) | (m >> 62);
    root <<= 1;
    if (rest > 2 * root) rest -= 2 * root + 1, ++root;
  }
  return m_nearest_f64(root << 9 | (rest != 0), 0, (e - 10) / 2 - 23 - 64 - 9);
}
M_FN m_f32 m_own_sqrt_f32(m_f32 x) { return (m_f32)m_own_sqrt_f64(x); }
M_FN m_f32 m_own_fma_f32(m_f32 a, m_f32 b, m_f32 c) {
  const m_f64 p = (m_f64)a * (m_f64)b, s = p + (m_f64)c, t = s - p;
  const m_f64 rest = (p - (s - t)) + ((m_f64)c - t);
  const m_w64 u = m_bits_f64(s);
  if (!(rest < 0 || rest > 0) || (u & 1) != 0) return (m_f32)s;
  return (m_f32)m_of_bits_f64((rest > 0) == (s > 0) ? u + 1 : u - 1);
}
/* The last bit stands for all that is shifted out. */
M_FN void m_shift_down(m_w64* high, m_w64* low, int n) {
  for (; n >= 64; n = n > 127 ? 64 : n - 64) {
    const m_w64 lost = *low != 0;
    *low = *high | lost;
    *high = 0;
    if (*low <= 1) return;
  }
  if (n > 0) {
    const m_w64 lost = (*low << (64 - n)) != 0;
    *low = (*low >> n) | (*high << (64 - n)) | lost;
    *high >>= n;
  }
}
M_FN m_f64 m_own_fma_f64(m_f64 a, m_f64 b, m_f64 c) {
  const int minus = (int)((m_bits_f64(a) ^ m_bits_f64(b)) >> 63), c_minus = (int)(m_bits_f64(c) >> 63);
  m_w64 x, y, low, high, middle, c_high, c_low = 0, part0, part1;
  m_f64 out;
  int ex, ey, ec, swap;
  if (a - a != 0 || b - b != 0 || a == 0 || b == 0) return a * b + c;
  if (c == 0) return a * b;
  if (c - c != 0) return c;
  x = m_parts_f64(a, &ex);
  y = m_parts_f64(b, &ey);
  c_high = m_parts_f64(c, &ec) << 9;
  low = (x & 0xffffffffu) * (y & 0xffffffffu);
  part0 = (x >> 32) * (y & 0xffffffffu);
  part1 = (x & 0xffffffffu) * (y >> 32);
  middle = (low >> 32) + (part0 & 0xffffffffu) + (part1 & 0xffffffffu);
  high = (x >> 32) * (y >> 32) + (part0 >> 32) + (part1 >> 32) + (middle >> 32);
  low = (middle << 32) | (low & 0xffffffffu);
  high = high << 20 | low >> 44;
  low <<= 20;
  ex += ey - 20;
  ec -= 73;
  if (ex > ec) m_shift_down(&c_high, &c_low, ex - ec);
  if (ex < ec) m_shift_down(&high, &low, ec - ex), ex = ec;
  swap = c_high > high || (c_high == high && c_low > low);
  if (minus == c_minus) {
    low += c_low;
    high += c_high + (low < c_low);
  } else if (swap) {
    high = c_high - high - (c_low < low);
    low = c_low - low;
  } else {
    high = high - c_high - (low < c_low);
    low -= c_low;
  }
  if ((high | low) == 0) return 0;
  for (; (high >> 63) == 0; --ex) high = high << 1 | low >> 63, low <<= 1;
  out = m_nearest_f64(high, low, ex);
  return (swap ? c_minus : minus) != 0 ? -out : out;
}
#if defined(__GNUC__) && (defined(__FMA__) || defined(__aarch64__))
#define m_c_fma_f32 __builtin_fmaf
#define m_c_fma_f64 __builtin_fma
#else
#define m_c_fma_f32 m_own_fma_f32
#define m_c_fma_f64 m_own_fma_f64
#endif
#if defined(__GNUC__) && (defined(__SSE2__) || defined(__aarch64__))
#define m_sqrt_f32 __builtin_sqrtf
#define m_sqrt_f64 __builtin_sqrt
#else
#define m_sqrt_f32 m_own_sqrt_f32
#define m_sqrt_f64 m_own_sqrt_f64
#endif
#define fmaf m_c_fma_f32
#define fma m_c_fma_f64
#define sqrt m_sqrt_f64
#define fabs(x) m_of_bits_f64(m_bits_f64(x) & M_U64(0x7fffffffffffffff))
#define NAN m_of_bits_f32(0x7fc00000u)
#define INFINITY m_of_bits_f32(0x7f800000u)
)text";

}  // namespace mithril::emit

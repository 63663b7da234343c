#include "emit/c_like_text.h"

namespace mithril::emit {

const char* const kHeadC99 = R"(#include <stdint.h>
#include <string.h>
typedef uint8_t m_bool;
typedef uint8_t m_u8;
typedef int8_t m_i8;
typedef int16_t m_i16;
typedef int32_t m_i32;
typedef int64_t m_i64;
typedef uint16_t m_f16, m_bf16, m_w16;
typedef uint32_t m_w32;
typedef uint64_t m_w64;
typedef float m_f32;
typedef double m_f64;
#ifdef __GNUC__
#define M_FN __attribute__((unused)) static inline
#else
#define M_FN static inline
#endif
#define M_TABLE static const
#define M_NAN NAN
#define M_INFINITY INFINITY
#define M_U64(x) x##ull
M_FN m_w32 m_bits_f32(m_f32 x) { m_w32 u; memcpy(&u, &x, 4); return u; }
M_FN m_w64 m_bits_f64(m_f64 x) { m_w64 u; memcpy(&u, &x, 8); return u; }
M_FN m_f32 m_of_bits_f32(m_w32 u) { m_f32 x; memcpy(&x, &u, 4); return x; }
M_FN m_f64 m_of_bits_f64(m_w64 u) { m_f64 x; memcpy(&x, &u, 8); return x; }
)";

const char* const kLibm = R"(#include <math.h>
#define m_c_fma_f32 fmaf
#define m_c_fma_f64 fma
#define m_sqrt_f32 sqrtf
#define m_sqrt_f64 sqrt
#define m_floor_f32 floorf
#define m_floor_f64 floor
#define m_ceil_f32 ceilf
#define m_ceil_f64 ceil
#define m_round_f32 rintf
#define m_round_f64 rint
#define m_trunc_f32 truncf
#define m_trunc_f64 trunc
#define m_fmod_f32 fmodf
#define m_fmod_f64 fmod
)";

const char* const kHeadOpenCl = R"(#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
/* Arrays of several types lie in one place, one after the other: compilers may not tell by their
   types which are apart. */
#ifdef __clang__
#define M_ANY_TYPE __attribute__((may_alias))
#else
#define M_ANY_TYPE
#endif
typedef uchar M_ANY_TYPE m_bool;
typedef uchar M_ANY_TYPE m_u8;
typedef char M_ANY_TYPE m_i8;
typedef short M_ANY_TYPE m_i16;
typedef int M_ANY_TYPE m_i32;
typedef long M_ANY_TYPE m_i64;
typedef ushort M_ANY_TYPE m_f16;
typedef ushort M_ANY_TYPE m_bf16;
typedef ushort M_ANY_TYPE m_w16;
typedef uint M_ANY_TYPE m_w32;
typedef ulong M_ANY_TYPE m_w64;
typedef float M_ANY_TYPE m_f32;
typedef double M_ANY_TYPE m_f64;
#define M_FN static
#define M_GLOBAL __global
#define M_LOCAL __local
#define M_OWN_THREAD ((int)get_local_id(0))
#define M_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define M_ELECTED(flag) (atomic_cmpxchg((volatile __global int*)(flag), 0, 1) == 0)
#define M_TABLE __constant
#define M_NAN NAN
#define M_INFINITY INFINITY
#define M_U64(x) x##ul
#define m_bits_f32(x) as_uint(x)
#define m_bits_f64(x) as_ulong(x)
#define m_of_bits_f32(u) as_float((m_w32)(u))
#define m_of_bits_f64(u) as_double((m_w64)(u))
#define m_c_fma_f32 fma
#define m_c_fma_f64 fma
#define m_c_exp_f32 exp
#define m_c_exp_f64 exp
#define m_c_log_f32 log
#define m_c_log_f64 log
#define m_sqrt_f32 sqrt
#define m_sqrt_f64 sqrt
#define m_floor_f32 floor
#define m_floor_f64 floor
#define m_ceil_f32 ceil
#define m_ceil_f64 ceil
#define m_round_f32 rint
#define m_round_f64 rint
#define m_trunc_f32 trunc
#define m_trunc_f64 trunc
#define m_fmod_f32 fmod
#define m_fmod_f64 fmod
)";

// NVRTC has no headers. Sums and products are apart by its flag --fmad=false.
const char* const kHeadCuda = R"(typedef unsigned char m_bool;
typedef unsigned char m_u8;
typedef signed char m_i8;
typedef short m_i16;
typedef int m_i32;
typedef long long m_i64;
typedef unsigned short m_f16;
typedef unsigned short m_bf16;
typedef unsigned short m_w16;
typedef unsigned int m_w32;
typedef unsigned long long m_w64;
typedef float m_f32;
typedef double m_f64;
#define M_FN static __device__ inline
#define M_GLOBAL
#define M_LOCAL
#define M_OWN_THREAD ((int)threadIdx.x)
#define M_BARRIER() __syncthreads()
#define M_ELECTED(flag) (atomicCAS((int*)(flag), 0, 1) == 0)
#define M_TABLE static __device__ const
#define M_NAN __uint_as_float(0x7fc00000u)
#define M_INFINITY __uint_as_float(0x7f800000u)
#define M_U64(x) x##ull
#define m_bits_f32(x) __float_as_uint(x)
#define m_bits_f64(x) ((m_w64)__double_as_longlong(x))
#define m_of_bits_f32(u) __uint_as_float((m_w32)(u))
#define m_of_bits_f64(u) __longlong_as_double((m_i64)(m_w64)(u))
#define m_c_fma_f32 __fmaf_rn
#define m_c_fma_f64 __fma_rn
#define m_c_exp_f32 expf
#define m_c_exp_f64 exp
#define m_c_log_f32 logf
#define m_c_log_f64 log
#define m_sqrt_f32 __fsqrt_rn
#define m_sqrt_f64 __dsqrt_rn
#define m_floor_f32 floorf
#define m_floor_f64 floor
#define m_ceil_f32 ceilf
#define m_ceil_f64 ceil
#define m_round_f32 rintf
#define m_round_f64 rint
#define m_trunc_f32 truncf
#define m_trunc_f64 trunc
#define m_fmod_f32 fmodf
#define m_fmod_f64 fmod
)";

const char* const kInstructions = R"(
#define M_COMPARE(T) \
  M_FN m_bool m_equal_##T(m_##T a, m_##T b) { return a == b; } \
  M_FN m_bool m_not_equal_##T(m_##T a, m_##T b) { return a != b; } \
  M_FN m_bool m_less_##T(m_##T a, m_##T b) { return a < b; } \
  M_FN m_bool m_less_equal_##T(m_##T a, m_##T b) { return a <= b; } \
  M_FN m_bool m_greater_##T(m_##T a, m_##T b) { return a > b; } \
  M_FN m_bool m_greater_equal_##T(m_##T a, m_##T b) { return a >= b; }

/* A function, as compilers warn of unsigned numbers that are never below 0. */
M_FN int m_negative(m_i64 a) { return a < 0; }

/* Integers wrap: W is an unsigned type that arithmetic does not promote, U the unsigned twin. */
#define M_INTEGER(T, W, U, WIDTH, IS_SIGNED) \
  M_COMPARE(T) \
  M_FN m_##T m_add_##T(m_##T a, m_##T b) { return (m_##T)((W)a + (W)b); } \
  M_FN m_##T m_sub_##T(m_##T a, m_##T b) { return (m_##T)((W)a - (W)b); } \
  M_FN m_##T m_mul_##T(m_##T a, m_##T b) { return (m_##T)((W)a * (W)b); } \
  M_FN m_##T m_neg_##T(m_##T a) { return (m_##T)(0 - (W)a); } \
  M_FN m_##T m_abs_##T(m_##T a) { return m_negative(a) ? m_neg_##T(a) : a; } \
  M_FN m_##T m_sign_##T(m_##T a) { return (m_##T)((a > 0) - (m_negative(a))); } \
  M_FN m_##T m_floordiv_##T(m_##T a, m_##T b) { \
    if (b == 0) return 0; \
    if (IS_SIGNED && b == (m_##T)-1) return m_neg_##T(a); \
    return (m_##T)(a / b - (a % b != 0 && (m_negative(a)) != (m_negative(b)))); \
  } \
  M_FN m_##T m_mod_##T(m_##T a, m_##T b) { \
    if (b == 0 || (IS_SIGNED && b == (m_##T)-1)) return 0; \
    m_##T r = (m_##T)(a % b); \
    return (m_##T)(r != 0 && (m_negative(r)) != (m_negative(b)) ? r + b : r); \
  } \
  M_FN m_##T m_ipow_##T(m_##T a, m_##T b) { \
    if (m_negative(b)) return a == 1 ? 1 : IS_SIGNED && a == (m_##T)-1 ? (b & 1 ? -1 : 1) : 0; \
    W power = 1, square = (W)a; \
    for (; b != 0; b = (m_##T)(b >> 1)) { \
      if (b & 1) power *= square; \
      square *= square; \
    } \
    return (m_##T)power; \
  } \
  M_FN m_##T m_min_##T(m_##T a, m_##T b) { return a < b ? a : b; } \
  M_FN m_##T m_max_##T(m_##T a, m_##T b) { return a > b ? a : b; } \
  M_FN m_##T m_at_least_##T(m_##T x, m_##T c) { return c > x ? c : x; } \
  M_FN m_##T m_at_most_##T(m_##T x, m_##T c) { return c < x ? c : x; } \
  M_FN m_##T m_and_##T(m_##T a, m_##T b) { return (m_##T)(a & b); } \
  M_FN m_##T m_or_##T(m_##T a, m_##T b) { return (m_##T)(a | b); } \
  M_FN m_##T m_xor_##T(m_##T a, m_##T b) { return (m_##T)(a ^ b); } \
  M_FN m_##T m_not_##T(m_##T a) { return (m_##T)~a; } \
  M_FN m_##T m_shift_left_##T(m_##T a, m_##T n) { \
    return (W)n >= WIDTH ? 0 : (m_##T)((W)a << (int)n); \
  } \
  M_FN m_##T m_shift_right_##T(m_##T a, m_##T n) { \
    return (W)n >= WIDTH ? (m_##T)-(m_negative(a)) : (m_##T)(a >> (int)n); \
  } \
  M_FN m_##T m_shift_right_logical_##T(m_##T a, m_##T n) { \
    return (W)n >= WIDTH ? 0 : (m_##T)((U)a >> (int)n); \
  } \
  M_FN m_##T m_running_##T(m_##T* sum, m_##T* rest, m_##T x, int is_first) { \
    (void)rest; \
    return *sum = is_first ? x : m_add_##T(*sum, x); \
  }
M_INTEGER(u8, m_w32, m_u8, 8, 0)
M_INTEGER(i8, m_w32, m_u8, 8, 1)
M_INTEGER(i16, m_w32, m_w16, 16, 1)
M_INTEGER(i32, m_w32, m_w32, 32, 1)
M_INTEGER(i64, m_w64, m_w64, 64, 1)

M_COMPARE(bool)
M_FN m_bool m_and_bool(m_bool a, m_bool b) { return a & b; }
M_FN m_bool m_or_bool(m_bool a, m_bool b) { return a | b; }
M_FN m_bool m_xor_bool(m_bool a, m_bool b) { return a ^ b; }
M_FN m_bool m_not_bool(m_bool a) { return a ^ 1; }
M_FN m_bool m_ipow_bool(m_bool a, m_bool b) { return a | (b ^ 1); }
M_FN m_bool m_shift_left_bool(m_bool a, m_bool n) { return a & (n ^ 1); }
M_FN m_bool m_shift_right_bool(m_bool a, m_bool n) { return a & (n ^ 1); }
M_FN m_bool m_shift_right_logical_bool(m_bool a, m_bool n) { return a & (n ^ 1); }

/* Equal numbers differ at most in the sign of a zero: `and` of their bits gives +0, `or` -0.
   fmod sees no NaN: a compiler of OpenCL takes that of two constants for 0. */
#define M_FLOAT(T, W, ABS_MASK, HALF) \
  M_COMPARE(T) \
  M_FN m_##T m_add_##T(m_##T a, m_##T b) { return a + b; } \
  M_FN m_##T m_sub_##T(m_##T a, m_##T b) { return a - b; } \
  M_FN m_##T m_mul_##T(m_##T a, m_##T b) { return a * b; } \
  M_FN m_##T m_div_##T(m_##T a, m_##T b) { return a / b; } \
  M_FN m_##T m_neg_##T(m_##T a) { return -a; } \
  M_FN m_##T m_abs_##T(m_##T a) { return m_of_bits_##T(m_bits_##T(a) & ABS_MASK); } \
  M_FN m_##T m_with_sign_##T(m_##T a, m_##T s) { \
    return m_of_bits_##T((m_bits_##T(a) & ABS_MASK) | (m_bits_##T(s) & ~ABS_MASK)); \
  } \
  M_FN m_##T m_sign_##T(m_##T a) { return a > 0 ? 1 : a < 0 ? -1 : a; } \
  M_FN m_##T m_mod_##T(m_##T a, m_##T b) { \
    if (a != a || b != b) return a + b; \
    m_##T r = m_fmod_##T(a, b); \
    if (r == 0) return m_with_sign_##T(r, b); \
    return (r < 0) != (b < 0) ? r + b : r; \
  } \
  M_FN m_##T m_floordiv_##T(m_##T a, m_##T b) { \
    if (b == 0 || a != a || b != b) return a / b; \
    m_##T r = m_fmod_##T(a, b), q = (a - r) / b; \
    if (r != 0 && (r < 0) != (b < 0)) q -= 1; \
    if (q == 0) return m_with_sign_##T(0, a / b); \
    m_##T f = m_floor_##T(q); \
    return q - f > HALF ? f + 1 : f; \
  } \
  M_FN m_##T m_min_##T(m_##T a, m_##T b) { \
    m_##T r = a < b ? a : b; \
    if (a == b) r = m_of_bits_##T(m_bits_##T(a) | m_bits_##T(b)); \
    return a != a ? a : r; \
  } \
  M_FN m_##T m_max_##T(m_##T a, m_##T b) { \
    m_##T r = a > b ? a : b; \
    if (a == b) r = m_of_bits_##T(m_bits_##T(a) & m_bits_##T(b)); \
    return a != a ? a : r; \
  } \
  M_FN m_##T m_at_least_##T(m_##T x, m_##T c) { return c > x ? c : x; } \
  M_FN m_##T m_at_most_##T(m_##T x, m_##T c) { return c < x ? c : x; } \
  M_FN m_##T m_fma_##T(m_##T a, m_##T b, m_##T c) { return m_c_fma_##T(a, b, c); } \
  M_FN m_##T m_fms_##T(m_##T a, m_##T b, m_##T c) { return m_c_fma_##T(a, b, -c); } \
  M_FN m_##T m_fnma_##T(m_##T a, m_##T b, m_##T c) { return m_c_fma_##T(-a, b, c); } \
  M_FN m_bool m_isnan_##T(m_##T a) { return a != a; }
M_FLOAT(f32, m_w32, 0x7fffffffu, 0.5f)
M_FLOAT(f64, m_w64, M_U64(0x7fffffffffffffff), 0.5)

/* Running sums: of float32 in float64; of float64 with what rounding took so far beside them. */
M_FN m_f32 m_running_f32(m_f64* sum, m_f64* rest, m_f32 x, int is_first) {
  (void)rest;
  *sum = is_first ? (m_f64)x : *sum + (m_f64)x;
  return (m_f32)*sum;
}
M_FN m_f64 m_running_f64(m_f64* sum, m_f64* rest, m_f64 x, int is_first) {
  m_f64 whole = *sum + x, taken = whole - *sum;
  *rest = is_first ? 0 : *rest + ((*sum - (whole - taken)) + (x - taken));
  *sum = is_first ? x : whole;
  return *rest != 0 && *rest == *rest ? *sum + *rest : *sum;
}

/* x times a power of two, rounded once: exact in binary64, or in steps that stay normal. */
M_FN m_f32 m_scale_f32(m_f32 x, m_f32 n) {
  if (n != n) return n;
  m_i64 k = (m_i64)m_floor_f32(m_at_most_f32(m_at_least_f32(n, -400.0f), 400.0f));
  return (m_f32)((m_f64)x * m_of_bits_f64((m_w64)(k + 1023) << 52));
}
M_FN m_f64 m_scale_f64(m_f64 x, m_f64 n) {
  if (n != n) return n;
  m_i64 k = (m_i64)m_floor_f64(m_at_most_f64(m_at_least_f64(n, -4000.0), 4000.0));
  for (; k > 1023; k -= 1023) x *= m_of_bits_f64(M_U64(0x7fe0000000000000));
  for (; k < -1022; k += 969) x *= m_of_bits_f64(M_U64(0x0360000000000000));
  return x * m_of_bits_f64((m_w64)(k + 1023) << 52);
}

#define M_TRIG(T) \
  M_FN m_##T m_trig_turns_##T(m_##T x) { return m_reduce_turns_##T(x).n; } \
  M_FN m_##T m_trig_rest_##T(m_##T x) { return m_reduce_turns_##T(x).r; } \
  M_FN m_##T m_trig_rest_low_##T(m_##T x) { return m_reduce_turns_##T(x).low; }

/* Halves are bits: they move and change sign as they are, and compute in float32. */
M_FN m_f16 m_neg_f16(m_f16 a) { return a ^ 0x8000; }
M_FN m_f16 m_abs_f16(m_f16 a) { return a & 0x7fff; }
M_FN m_bf16 m_neg_bf16(m_bf16 a) { return a ^ 0x8000; }
M_FN m_bf16 m_abs_bf16(m_bf16 a) { return a & 0x7fff; }
M_FN m_f32 m_float_of_bf16(m_bf16 h) { return m_of_bits_f32((m_w32)h << 16); }
M_FN m_bf16 m_bf16_of_float(m_f32 x) {
  m_w32 u = m_bits_f32(x), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (m_bf16)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded);
}
M_FN m_f32 m_float_of_f16(m_f16 h) {
  m_w32 sign = (m_w32)(h & 0x8000u) << 16, rest = (m_w32)(h & 0x7fffu) << 13;
  m_f32 scaled = m_of_bits_f32(rest) * m_of_bits_f32(0x77800000u);
  m_w32 bits = rest >= (0x1fu << 23) ? (rest | 0x7f800000u) : m_bits_f32(scaled);
  return m_of_bits_f32(bits | sign);
}
M_FN m_f16 m_f16_of_float(m_f32 x) {
  m_w32 u = m_bits_f32(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  m_w32 normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  m_w32 small = m_bits_f32(m_of_bits_f32(a) + 0.5f) - m_bits_f32(0.5f);
  m_w32 h = a < (113u << 23) ? small : normal;
  h = a >= (143u << 23) ? 0x7c00u : h;
  h = a > 0x7f800000u ? 0x7e00u : h;
  return (m_f16)(h | sign);
}
/* To float32 with rounding to odd, and to double: what a second rounding needs is kept. */
M_FN m_f32 m_odd_float(m_f64 x) {
  m_f32 f = (m_f32)x;
  m_f64 back = (m_f64)f;
  m_w32 u = m_bits_f32(f);
  m_w64 magnitude = m_bits_f64(x) & M_U64(0x7fffffffffffffff);
  m_w64 rounded = m_bits_f64(back) & M_U64(0x7fffffffffffffff);
  if (back == x || x != x || (u & 1u) != 0) return f;
  return m_of_bits_f32(rounded > magnitude ? u - 1 : u + 1);
}
M_FN m_f64 m_odd_double(m_i64 x) {
  m_w64 magnitude = x < 0 ? 0 - (m_w64)x : (m_w64)x, kept;
  if (magnitude < M_U64(0x20000000000000)) return (m_f64)x;
  kept = (magnitude >> 10) | ((magnitude & 0x3ff) != 0);
  return (x < 0 ? -1024.0 : 1024.0) * (m_f64)kept;
}

/* Float to integer: truncates, saturates, NaN gives 0. */
#define M_SATURATE(F, T, ABOVE, BELOW, LARGEST, SMALLEST) \
  M_FN m_##T m_sat_##F##_##T(m_##F x) { \
    if (x != x) return 0; \
    if (x >= ABOVE) return (m_##T)LARGEST; \
    if (x <= BELOW) return (m_##T)SMALLEST; \
    return (m_##T)x; \
  }
M_SATURATE(f32, u8, 256, 0, 255, 0)
M_SATURATE(f32, i8, 128, -128, 127, -128)
M_SATURATE(f32, i16, 32768, -32768, 32767, -32768)
M_SATURATE(f32, i32, 2147483648.0f, -2147483648.0f, 2147483647, 0x80000000u)
M_SATURATE(f32, i64, 9223372036854775808.0f, -9223372036854775808.0f, M_U64(0x7fffffffffffffff), M_U64(0x8000000000000000))
M_SATURATE(f64, u8, 256, 0, 255, 0)
M_SATURATE(f64, i8, 128, -128, 127, -128)
M_SATURATE(f64, i16, 32768, -32768, 32767, -32768)
M_SATURATE(f64, i32, 2147483648.0, -2147483648.0, 2147483647, 0x80000000u)
M_SATURATE(f64, i64, 9223372036854775808.0, -9223372036854775808.0, M_U64(0x7fffffffffffffff), M_U64(0x8000000000000000))

/* Threefry-2x32 with 20 rounds (Salmon et al., 2011). */
M_FN m_w64 m_threefry(m_i32 key0, m_i32 key1, m_w64 counter) {
  m_w32 keys[3], x0, x1, round;
  keys[0] = (m_w32)key0;
  keys[1] = (m_w32)key1;
  keys[2] = keys[0] ^ keys[1] ^ 0x1BD11BDAu;
  x0 = (m_w32)counter + keys[0];
  x1 = (m_w32)(counter >> 32) + keys[1];
  for (round = 0; round < 20; ++round) {
    m_w32 place = round % 8, left = place == 0 ? 13 : place == 1 ? 15 : place == 2 ? 26
        : place == 3 ? 6 : place == 4 ? 17 : place == 5 ? 29 : place == 6 ? 16 : 24;
    x0 += x1;
    x1 = ((x1 << left) | (x1 >> (32 - left))) ^ x0;
    if (round % 4 == 3) {
      m_w32 injection = round / 4 + 1;
      x0 += keys[injection % 3];
      x1 += keys[(injection + 1) % 3] + injection;
    }
  }
  return x0 | ((m_w64)x1 << 32);
}

/* A reduction in blocks of `block` elements. Inside one, lane l of `width` takes every width-th
   element, and the lanes are folded in halves; finished blocks join as in binary counting, which
   is the tree of neighbours. KEEPS: what rounding takes from sums of blocks is kept beside them
   (TwoSum) and added in the end. */
#define M_REDUCTION(NAME, T, COMBINE, KEEPS) \
  typedef struct { T lane[16], stack[48], rest[48]; m_i64 taken, blocks; int top; } NAME##_state; \
  M_FN T NAME##_join(NAME##_state* s, T b, T* rest) { \
    T a, whole, taken; \
    a = s->stack[--s->top]; \
    whole = COMBINE(a, b); \
    if (KEEPS) { \
      taken = whole - a; \
      *rest = (s->rest[s->top] + *rest) + ((a - (whole - taken)) + (b - taken)); \
    } \
    return whole; \
  } \
  M_FN void NAME##_begin(NAME##_state* s) { s->taken = 0; s->blocks = 0; s->top = 0; } \
  M_FN void NAME##_fold(NAME##_state* s, int width) { \
    int filled = s->taken < width ? (int)s->taken : width, step, l; \
    m_i64 b; \
    T rest = 0; \
    for (step = width / 2; step > 0; step /= 2) \
      for (l = 0; l < step && l + step < filled; ++l) \
        s->lane[l] = COMBINE(s->lane[l], s->lane[l + step]); \
    for (b = s->blocks; (b & 1) != 0; b >>= 1) s->lane[0] = NAME##_join(s, s->lane[0], &rest); \
    s->stack[s->top] = s->lane[0]; \
    s->rest[s->top] = rest; \
    ++s->top; \
    ++s->blocks; \
    s->taken = 0; \
  } \
  M_FN void NAME##_take(NAME##_state* s, T x, int width, m_i64 block) { \
    int l = (int)(s->taken % width); \
    s->lane[l] = s->taken < width ? x : COMBINE(s->lane[l], x); \
    ++s->taken; \
    if (s->taken == block) NAME##_fold(s, width); \
  } \
  M_FN T NAME##_end(NAME##_state* s, int width, T identity) { \
    T out, rest; \
    if (s->taken > 0) NAME##_fold(s, width); \
    if (s->top == 0) return identity; \
    --s->top; \
    out = s->stack[s->top]; \
    rest = s->rest[s->top]; \
    while (s->top > 0) out = NAME##_join(s, out, &rest); \
    return KEEPS && rest != 0 && rest == rest ? out + rest : out; \
  }

/* Place of the first extreme; the first NaN is one. */
#define M_EXTREME(NAME, T, BETTER) \
  typedef struct { T best; m_i64 at, taken; } NAME##_state; \
  M_FN void NAME##_begin(NAME##_state* s) { s->best = 0; s->at = 0; s->taken = 0; } \
  M_FN void NAME##_take(NAME##_state* s, T x) { \
    if (s->taken == 0 || x BETTER s->best || (x != x && s->best == s->best)) { \
      s->best = x; \
      s->at = s->taken; \
    } \
    ++s->taken; \
  }
)";

}  // namespace mithril::emit

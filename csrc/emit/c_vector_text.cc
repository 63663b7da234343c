#include "emit/c_vector_text.h"

namespace mithril::emit {

const char* const kVectorHead = R"text(
#define M_ALIGNED __attribute__((aligned(64)))
#ifdef __clang__
#define M_VECTORISED _Pragma("clang loop vectorize_width(16)")
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define M_VECTORISED
#endif

#define M_VECTORS(T, V, BITS) \
  M_FN V m_add_vectors_##T(V a, V b) { return a + b; } \
  M_FN V m_mul_vectors_##T(V a, V b) { return a * b; } \
  M_FN V m_min_vectors_##T(V a, V b) { \
    V r = a < b ? a : b; \
    r = a == b ? as_##V(as_##BITS(a) | as_##BITS(b)) : r; \
    return a != a ? a : r; \
  } \
  M_FN V m_max_vectors_##T(V a, V b) { \
    V r = a > b ? a : b; \
    r = a == b ? as_##V(as_##BITS(a) & as_##BITS(b)) : r; \
    return a != a ? a : r; \
  }
M_VECTORS(f32, float16, int16)
M_VECTORS(f64, double16, long16)

/* M_TAKE_ALL, whose lanes are one vector. COMMUTES: elements may be combined in any order. */
#define M_TAKE_VECTORS(NAME, T, V, COMBINE, COMMUTES) \
  M_FN void NAME##_take_all(NAME##_state* s, const T* x, int n, int width, m_i64 block) { \
    int i = 0; \
    while (i < n) { \
      if (width != 16 || s->taken % 16 != 0 || n - i < 16) { \
        NAME##_take(s, x[i++], width, block); \
        continue; \
      } \
      V lane = vload16(0, s->taken == 0 ? x + i : s->lane); \
      if (s->taken == 0) { \
        s->taken = 16; \
        i += 16; \
      } \
      for (; COMMUTES && n - i >= 64 && s->taken + 64 <= block; i += 64) { \
        V first = COMBINE(vload16(0, x + i), vload16(1, x + i)); \
        V second = COMBINE(vload16(2, x + i), vload16(3, x + i)); \
        lane = COMBINE(lane, COMBINE(first, second)); \
        s->taken += 64; \
      } \
      for (; n - i >= 16 && s->taken < block; i += 16) { \
        lane = COMBINE(lane, vload16(0, x + i)); \
        s->taken += 16; \
      } \
      vstore16(lane, 0, s->lane); \
      if (s->taken == block) NAME##_fold(s, width); \
    } \
  }

#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store)
#define M_HAS_STREAMS
#endif
#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_vpermi2varps512)
#define M_HAS_PERMUTATIONS
#endif
#endif

/* to[i] = element at[i] mod 32 of a table. */
M_FN void m_lookup(M_TABLE m_f32* table, const m_i32* at, m_f32* to, int n) {
  int i = 0;
#ifdef M_HAS_PERMUTATIONS
  const float16 low = vload16(0, table), high = vload16(1, table);
  for (; n - i >= 16; i += 16) {
    vstore16(__builtin_ia32_vpermi2varps512(low, vload16(0, at + i), high), 0, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = table[at[i] & 31];
}

/* Copies past the caches, which are kept for what is read again. */
#ifdef M_HAS_STREAMS
#define M_STREAM(T, V) \
  M_FN void m_stream_##T(__global m_##T* to, const m_##T* from, int n) { \
    int i = 0; \
    for (; i < n && ((ulong)(to + i) & (sizeof(V) - 1)) != 0; ++i) to[i] = from[i]; \
    for (; n - i >= 16; i += 16) \
      __builtin_nontemporal_store(vload16(0, from + i), (__global V*)(to + i)); \
    for (; i < n; ++i) to[i] = from[i]; \
  }
#else
#define M_STREAM(T, V) \
  M_FN void m_stream_##T(__global m_##T* to, const m_##T* from, int n) { \
    int i; \
    for (i = 0; i < n; ++i) to[i] = from[i]; \
  }
#endif
M_STREAM(bool, uchar16)
M_STREAM(u8, uchar16)
M_STREAM(i8, char16)
M_STREAM(i16, short16)
M_STREAM(i32, int16)
M_STREAM(i64, long16)
M_STREAM(f16, ushort16)
M_STREAM(bf16, ushort16)
M_STREAM(f32, float16)
M_STREAM(f64, double16)
)text";

}  // namespace mithril::emit

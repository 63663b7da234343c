// The vector lane types of one instruction set, for tile/math.h. Everything lives in the namespace
// of that set, because the same templates are built once per set.
#pragma once
#include <cmath>
#include <cstdint>

#include "tile/scalar_lane.h"
// GCC 12 takes the undefined pass-through operand of AVX-512 intrinsics for a mistake (bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mithril::cpu::MITHRIL_ISA {

/// Lanes beyond the fast range are recomputed one by one, the others stay.
template <class V>
MITHRIL_TILE_INLINE tile::math::Reduced<V> replace_huge_lanes(V x, tile::math::Reduced<V> fast) {
  using T = typename V::T;
  constexpr T limit = tile::math::Limits<T>::trig_hi;
  if (!any(V(limit) < tile::math::absolute(x), x)) return fast;
  alignas(64) T a[V::width], n[V::width], r[V::width], low[V::width];
  x.store(a);
  fast.n.store(n);
  fast.r.store(r);
  fast.low.store(low);
  for (int i = 0; i < V::width; ++i) {
    if (!(a[i] > limit || a[i] < -limit)) continue;
    const auto turns = tile::reduce_turns(a[i]);
    n[i] = turns.n;
    r[i] = turns.r;
    low[i] = turns.low;
  }
  return {V::load(n), V::load(r), V::load(low)};
}

// Vector lanes: NAME, element, width, register types, intrinsic prefix, suffixes (ps/pd,
// epi32/epi64, si256/si512).
#define MITHRIL_LANE_VECTOR(NAME, T_, W, REG, IREG, P, PS, EPI, SI, CAST_FI, CAST_IF, SET_I, \
                            BITS_T, COMPARE, SELECT, SCALE, LOOKUP)                          \
  struct NAME {                                                                              \
    using T = T_;                                                                            \
    struct I {                                                                               \
      IREG v;                                                                                \
      I(IREG r) : v(r) {}                                                                    \
      I(tile::math::Format<T_>::Bits b) : v(SET_I((BITS_T)b)) {}                             \
      friend I operator+(I a, I b) { return P##_add_##EPI(a.v, b.v); }                       \
      friend I operator-(I a, I b) { return P##_sub_##EPI(a.v, b.v); }                       \
      friend I operator&(I a, I b) { return P##_and_##SI(a.v, b.v); }                        \
      friend I operator|(I a, I b) { return P##_or_##SI(a.v, b.v); }                         \
      friend I operator^(I a, I b) { return P##_xor_##SI(a.v, b.v); }                        \
    };                                                                                       \
    static constexpr int width = W;                                                          \
    REG v;                                                                                   \
    NAME(REG r) : v(r) {}                                                                    \
    NAME(T_ x) : v(P##_set1_##PS(x)) {}                                                      \
    static NAME load(const T_* p) { return P##_loadu_##PS(p); }                              \
    void store(T_* p) const { P##_storeu_##PS(p, v); }                                       \
    friend NAME operator+(NAME a, NAME b) { return P##_add_##PS(a.v, b.v); }                 \
    friend NAME operator-(NAME a, NAME b) { return P##_sub_##PS(a.v, b.v); }                 \
    friend NAME operator*(NAME a, NAME b) { return P##_mul_##PS(a.v, b.v); }                 \
    friend NAME operator/(NAME a, NAME b) { return P##_div_##PS(a.v, b.v); }                 \
    COMPARE                                                                                  \
    SELECT                                                                                   \
    friend NAME fma(NAME a, NAME b, NAME c) { return P##_fmadd_##PS(a.v, b.v, c.v); }        \
    friend NAME fms(NAME a, NAME b, NAME c) { return P##_fmsub_##PS(a.v, b.v, c.v); }        \
    friend NAME fnma(NAME a, NAME b, NAME c) { return P##_fnmadd_##PS(a.v, b.v, c.v); }      \
    friend NAME sqrt(NAME a) { return P##_sqrt_##PS(a.v); }                                  \
    friend I bits(NAME a) { return CAST_FI(a.v); }                                           \
    static NAME from_bits(I i) { return CAST_IF(i.v); }                                      \
    template <int n>                                                                         \
    static I shl(I a) {                                                                      \
      return P##_slli_##EPI(a.v, n);                                                         \
    }                                                                                        \
    template <int n>                                                                         \
    static I shr(I a) {                                                                      \
      return P##_srli_##EPI(a.v, n);                                                         \
    }                                                                                        \
    friend NAME at_least(NAME x, NAME c) { return P##_max_##PS(c.v, x.v); }                  \
    friend NAME at_most(NAME x, NAME c) { return P##_min_##PS(c.v, x.v); }                   \
    SCALE                                                                                    \
    LOOKUP                                                                                   \
    template <class F>                                                                       \
    friend NAME otherwise(M m, NAME a, F f) {                                                \
      return all(m, a) ? a : select(m, a, f());                                              \
    }                                                                                        \
    friend tile::math::Reduced<NAME> replace_huge(NAME x, tile::math::Reduced<NAME> fast) {  \
      return replace_huge_lanes(x, fast);                                                    \
    }                                                                                        \
  };

#if defined(__AVX2__) && !defined(__AVX512F__)
#define MITHRIL_LANE_COMPARE(NAME, REG, PS)                                              \
  struct M {                                                                             \
    REG v;                                                                               \
  };                                                                                     \
  friend bool any(M m, NAME) { return _mm256_movemask_##PS(m.v) != 0; }                  \
  friend bool all(M m, NAME) { return _mm256_movemask_##PS(m.v) == (1 << width) - 1; }   \
  friend M operator<(NAME a, NAME b) { return {_mm256_cmp_##PS(a.v, b.v, _CMP_LT_OQ)}; } \
  friend M operator==(NAME a, NAME b) { return {_mm256_cmp_##PS(a.v, b.v, _CMP_EQ_OQ)}; }
#define MITHRIL_LANE_SELECT(NAME, PS) \
  friend NAME select(M m, NAME a, NAME b) { return _mm256_blendv_##PS(b.v, a.v, m.v); }
// Three bits of the index choose in a register, two more between four of them.
#define MITHRIL_LANE_LOOKUP                                                              \
  static F32x8 lookup(tile::Table table, I index) {                                      \
    const float* t = tile::kTables[static_cast<uint32_t>(table)];                        \
    const auto part = [&](int k) __attribute__((always_inline)) {                        \
      return F32x8(_mm256_permutevar8x32_ps(_mm256_loadu_ps(t + 8 * k), index.v));       \
    };                                                                                   \
    const M bit3{from_bits(shl<28>(index)).v}, bit4{from_bits(shl<27>(index)).v};        \
    return select(bit4, select(bit3, part(3), part(2)), select(bit3, part(1), part(0))); \
  }
MITHRIL_LANE_VECTOR(F32x8, float, 8, __m256, __m256i, _mm256, ps, epi32, si256, _mm256_castps_si256,
                    _mm256_castsi256_ps, _mm256_set1_epi32, int,
                    MITHRIL_LANE_COMPARE(F32x8, __m256, ps), MITHRIL_LANE_SELECT(F32x8, ps), ,
                    MITHRIL_LANE_LOOKUP)
MITHRIL_LANE_VECTOR(F64x4, double, 4, __m256d, __m256i, _mm256, pd, epi64, si256,
                    _mm256_castpd_si256, _mm256_castsi256_pd, _mm256_set1_epi64x, long long,
                    MITHRIL_LANE_COMPARE(F64x4, __m256d, pd), MITHRIL_LANE_SELECT(F64x4, pd), , )
#undef MITHRIL_LANE_COMPARE
#undef MITHRIL_LANE_SELECT
#undef MITHRIL_LANE_LOOKUP
#endif
#ifdef __AVX512F__
#define MITHRIL_LANE_COMPARE(NAME, MASK, PS)                                                    \
  struct M {                                                                                    \
    MASK v;                                                                                     \
  };                                                                                            \
  friend bool any(M m, NAME) { return m.v != 0; }                                               \
  friend bool all(M m, NAME) { return m.v == (1 << width) - 1; }                                \
  friend M operator<(NAME a, NAME b) { return {_mm512_cmp_##PS##_mask(a.v, b.v, _CMP_LT_OQ)}; } \
  friend M operator==(NAME a, NAME b) { return {_mm512_cmp_##PS##_mask(a.v, b.v, _CMP_EQ_OQ)}; }
#define MITHRIL_LANE_SCALE(NAME, PS) \
  friend NAME scale(NAME x, NAME n) { return _mm512_scalef_##PS(x.v, n.v); }
#define MITHRIL_LANE_SELECT(NAME, PS) \
  friend NAME select(M m, NAME a, NAME b) { return _mm512_mask_blend_##PS(m.v, b.v, a.v); }
#define MITHRIL_LANE_LOOKUP                                                              \
  static F32x16 lookup(tile::Table table, I index) {                                     \
    const float* t = tile::kTables[static_cast<uint32_t>(table)];                        \
    return _mm512_permutex2var_ps(_mm512_loadu_ps(t), index.v, _mm512_loadu_ps(t + 16)); \
  }
MITHRIL_LANE_VECTOR(F32x16, float, 16, __m512, __m512i, _mm512, ps, epi32, si512,
                    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_set1_epi32, int,
                    MITHRIL_LANE_COMPARE(F32x16, __mmask16, ps), MITHRIL_LANE_SELECT(F32x16, ps),
                    MITHRIL_LANE_SCALE(F32x16, ps), MITHRIL_LANE_LOOKUP)
MITHRIL_LANE_VECTOR(F64x8, double, 8, __m512d, __m512i, _mm512, pd, epi64, si512,
                    _mm512_castpd_si512, _mm512_castsi512_pd, _mm512_set1_epi64, long long,
                    MITHRIL_LANE_COMPARE(F64x8, __mmask8, pd), MITHRIL_LANE_SELECT(F64x8, pd),
                    MITHRIL_LANE_SCALE(F64x8, pd), )
#undef MITHRIL_LANE_COMPARE
#undef MITHRIL_LANE_SELECT
#undef MITHRIL_LANE_SCALE
#undef MITHRIL_LANE_LOOKUP
#endif
#undef MITHRIL_LANE_VECTOR

#if defined(__AVX512F__)
using FloatLane = F32x16;
using DoubleLane = F64x8;
#elif defined(__AVX2__)
using FloatLane = F32x8;
using DoubleLane = F64x4;
#else
using FloatLane = tile::ScalarLane<float>;
using DoubleLane = tile::ScalarLane<double>;
#endif

}  // namespace mithril::cpu::MITHRIL_ISA

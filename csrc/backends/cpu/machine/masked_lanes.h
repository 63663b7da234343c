// float32 and float64 vectors of one instruction set, whole or their first lanes only.
#pragma once
#include <cstdint>
#include <immintrin.h>

namespace mithril::cpu::MITHRIL_ISA {

#if defined(__AVX512F__)
struct F32 {
  using Real = float;
  using Vec = __m512;
  static __mmask16 first(int64_t n) { return static_cast<__mmask16>((1U << n) - 1); }
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec load(const float* at) { return _mm512_loadu_ps(at); }
  static Vec load(const float* at, int64_t n) { return _mm512_maskz_loadu_ps(first(n), at); }
  static Vec spread(const float* at) { return _mm512_set1_ps(*at); }
  static void store(float* at, Vec v) { _mm512_storeu_ps(at, v); }
  static void store(float* at, Vec v, int64_t n) { _mm512_mask_storeu_ps(at, first(n), v); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  /// Every second lane of both, from the first on.
  static Vec evens(Vec a, Vec b) {
    return _mm512_permutex2var_ps(
        a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
  }
};
struct F64 {
  using Real = double;
  using Vec = __m512d;
  static __mmask8 first(int64_t n) { return static_cast<__mmask8>((1U << n) - 1); }
  static Vec zero() { return _mm512_setzero_pd(); }
  static Vec load(const double* at) { return _mm512_loadu_pd(at); }
  static Vec load(const double* at, int64_t n) { return _mm512_maskz_loadu_pd(first(n), at); }
  static Vec spread(const double* at) { return _mm512_set1_pd(*at); }
  static void store(double* at, Vec v) { _mm512_storeu_pd(at, v); }
  static void store(double* at, Vec v, int64_t n) { _mm512_mask_storeu_pd(at, first(n), v); }
  static Vec add(Vec a, Vec b) { return _mm512_add_pd(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_pd(a, b, c); }
  static Vec evens(Vec a, Vec b) {
    return _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), b);
  }
};
#else
alignas(64) constexpr int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
struct F32 {
  using Real = float;
  using Vec = __m256;
  static __m256i first(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + 8 - n));
  }
  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec load(const float* at) { return _mm256_loadu_ps(at); }
  static Vec load(const float* at, int64_t n) { return _mm256_maskload_ps(at, first(n)); }
  static Vec spread(const float* at) { return _mm256_set1_ps(*at); }
  static void store(float* at, Vec v) { _mm256_storeu_ps(at, v); }
  static void store(float* at, Vec v, int64_t n) { _mm256_maskstore_ps(at, first(n), v); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec evens(Vec a, Vec b) {
    const __m256d both = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(both, 0xD8));
  }
};
struct F64 {
  using Real = double;
  using Vec = __m256d;
  static __m256i first(int64_t n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + 8 - 2 * n));
  }
  static Vec zero() { return _mm256_setzero_pd(); }
  static Vec load(const double* at) { return _mm256_loadu_pd(at); }
  static Vec load(const double* at, int64_t n) { return _mm256_maskload_pd(at, first(n)); }
  static Vec spread(const double* at) { return _mm256_set1_pd(*at); }
  static void store(double* at, Vec v) { _mm256_storeu_pd(at, v); }
  static void store(double* at, Vec v, int64_t n) { _mm256_maskstore_pd(at, first(n), v); }
  static Vec add(Vec a, Vec b) { return _mm256_add_pd(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_pd(a, b, c); }
  static Vec evens(Vec a, Vec b) { return _mm256_permute4x64_pd(_mm256_unpacklo_pd(a, b), 0xD8); }
};
#endif

template <class S>
constexpr int kLanes = static_cast<int>(sizeof(typename S::Vec) / sizeof(typename S::Real));

}  // namespace mithril::cpu::MITHRIL_ISA

// The loop that shows how fast this instruction set multiplies and adds: chains enough to hide the
// latency of two units, all in registers.
#include "backends/cpu/machine/peak_loops.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mithril::cpu::MITHRIL_ISA {
namespace {

#if defined(__AVX512F__)
struct F32 {
  using Vec = __m512;
  static constexpr int kWidth = 16;
  static Vec spread(float x) { return _mm512_set1_ps(x); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
};
struct F64 {
  using Vec = __m512d;
  static constexpr int kWidth = 8;
  static Vec spread(double x) { return _mm512_set1_pd(x); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_pd(a, b, c); }
};
#elif defined(__AVX2__)
struct F32 {
  using Vec = __m256;
  static constexpr int kWidth = 8;
  static Vec spread(float x) { return _mm256_set1_ps(x); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
};
struct F64 {
  using Vec = __m256d;
  static constexpr int kWidth = 4;
  static Vec spread(double x) { return _mm256_set1_pd(x); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_pd(a, b, c); }
};
#else
template <class T>
struct Portable {
  typedef T Vec __attribute__((vector_size(16)));
  static constexpr int kWidth = 16 / sizeof(T);
  static Vec spread(T x) { return Vec{} + x; }
  static Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
};
using F32 = Portable<float>;
using F64 = Portable<double>;
#endif

template <class V>
int64_t run(int64_t rounds) {
  constexpr int kChains = 12;
  typename V::Vec chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = V::spread(1 + i);
  const auto scale = V::spread(0.5), shift = V::spread(0.25);  // towards 0.5: nothing overflows
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = V::fma(chain[i], scale, shift);
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "m"(chain[i]));  // somebody reads them
  return rounds * kChains * V::kWidth * 2;
}

}  // namespace

const PeakLoops kPeakLoops = {run<F32>, run<F64>};

}  // namespace mithril::cpu::MITHRIL_ISA

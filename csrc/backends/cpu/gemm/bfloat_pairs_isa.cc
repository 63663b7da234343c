// Products of bfloat16 on AVX512-BF16: pairs of elements, sums in float32.
#include "backends/cpu/gemm/low_precision_parts.h"

#if defined(__AVX512F__)
#include <cstring>
#include <immintrin.h>

#include "core/packed_matrix.h"

namespace mithril::cpu::MITHRIL_ISA {

void multiply_pairs(const RoundedProduct&);

namespace {

// One file is compiled for all of AVX-512: what goes beyond is asked for function by function.
#define MITHRIL_BFLOAT __attribute__((target("avx512bf16")))

constexpr int64_t kRows = 8, kPanels = 3;  // of a pass: 24 sums and 3 vectors of weights
constexpr int64_t kPanel = core::PackedMatrix::kPanel;
constexpr int64_t kDepth = core::PackedMatrix::kBlock;
constexpr int64_t kLines = kDepth / 2;  // of a block: a pair for each column
constexpr int64_t kLineBytes = 64;

struct Pass {
  const uint16_t* x;
  int64_t x_step;
  const std::byte* weights;
  int64_t panel_bytes, steps;
  float* y;
  int64_t y_step;
  const std::byte* next;  // is brought to the second cache meanwhile
};

MITHRIL_BFLOAT inline __m512bh pair_of(const uint16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <int64_t panels>
MITHRIL_BFLOAT void multiply_rows(const Pass& p) {
  __m512 sums[kRows][panels];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int64_t q = 0; q < panels; ++q) sums[r][q] = _mm512_setzero_ps();
  }
  for (int64_t line = 0; line < p.steps * kLines; ++line) {
    __m512bh w[panels];
#pragma GCC unroll 3
    for (int64_t q = 0; q < panels; ++q) {
      w[q] = reinterpret_cast<__m512bh>(
          _mm512_loadu_si512(p.weights + q * p.panel_bytes + line * kLineBytes));
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const __m512bh x = pair_of(p.x + r * p.x_step + line * 2);
#pragma GCC unroll 3
      for (int64_t q = 0; q < panels; ++q) sums[r][q] = _mm512_dpbf16_ps(sums[r][q], x, w[q]);
    }
    _mm_prefetch(p.next + line * kLineBytes, _MM_HINT_T1);
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int64_t q = 0; q < panels; ++q) {
      _mm512_storeu_ps(p.y + r * p.y_step + q * kPanel, sums[r][q]);
    }
  }
}

constexpr void (*kMultiply[])(const Pass&) = {multiply_rows<1>, multiply_rows<2>, multiply_rows<3>};

int64_t at_most(int64_t value, int64_t most) { return value < most ? value : most; }

}  // namespace

void multiply_pairs(const RoundedProduct& t) {
  const PackedPanels& w = t.weights;
  alignas(64) float edge[kRows * kPanels * kPanel];
  const int64_t steps = (w.depth + kDepth - 1) / kDepth;
  for (int64_t panel = t.begin; panel < t.end; panel += kPanels) {
    const int64_t panels = at_most(t.end - panel, kPanels);
    const int64_t columns = at_most(w.columns - panel * kPanel, panels * kPanel);
    const std::byte* const weights = w.data + panel * w.panel_bytes;
    for (int64_t row = 0; row < t.rows; row += kRows) {
      const int64_t rows = at_most(t.rows - row, kRows);
      const bool is_whole = rows == kRows && columns == panels * kPanel;
      float* const y = t.y + row * t.y_step + panel * kPanel;
      // The next panels, one in each of the first passes.
      const std::byte* const next =
          weights + (kPanels + at_most(row / kRows, kPanels - 1)) * w.panel_bytes;
      kMultiply[panels - 1]({t.x + row * t.x_step, t.x_step, weights, w.panel_bytes, steps,
                             is_whole ? y : edge, is_whole ? t.y_step : kPanels * kPanel, next});
      for (int64_t r = 0; !is_whole && r < rows; ++r) {
        std::memcpy(y + r * t.y_step, edge + r * kPanels * kPanel,
                    static_cast<size_t>(columns) * sizeof(float));
      }
    }
  }
}

}  // namespace mithril::cpu::MITHRIL_ISA

#endif

// Products with packed weights on one instruction set: weights become float32 in registers, a
// column per lane.
#include <cstring>
#include <utility>

#include "backends/cpu/gemm/low_precision_parts.h"
#include "backends/cpu/machine/lanes.h"
#include "core/packed_matrix.h"

namespace mithril::cpu::MITHRIL_ISA {

#if defined(__AVX512F__)
void round_rows(const Rounding&);
void multiply_tiles(const RoundedProduct&);
void multiply_pairs(const RoundedProduct&);
#endif

namespace {

using V = FloatLane;
constexpr int kPanel = static_cast<int>(core::PackedMatrix::kPanel);
constexpr int kBlock = static_cast<int>(core::PackedMatrix::kBlock);
constexpr int kVectors = kPanel / V::width;  // of a panel
constexpr int kChains = 4;                   // sums that hide the latency of a multiply-add

// ---------------------------------------------------------------- formats

#if defined(__AVX512F__)
MITHRIL_TILE_INLINE __m512i load(const std::byte* at) { return _mm512_loadu_si512(at); }
MITHRIL_TILE_INLINE V widen_even(const std::byte* at) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(load(at), 16));
}
MITHRIL_TILE_INLINE V widen_odd(const std::byte* at) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  return _mm512_castsi512_ps(_mm512_and_si512(load(at), high));
}
MITHRIL_TILE_INLINE V widen(const std::byte* at) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
MITHRIL_TILE_INLINE V from_int8(const std::byte* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
MITHRIL_TILE_INLINE V from_int16(const std::byte* at) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(pairs));
}
// The four bits are the place in a table.
template <int kNibble>
MITHRIL_TILE_INLINE V from_int4(const std::byte* at) {
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(load(at), 4 * kNibble), table);
}
#elif defined(__AVX2__)
MITHRIL_TILE_INLINE __m256i load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
MITHRIL_TILE_INLINE V widen_even(const std::byte* at) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(load(at), 16));
}
MITHRIL_TILE_INLINE V widen_odd(const std::byte* at) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
  return _mm256_castsi256_ps(_mm256_and_si256(load(at), high));
}
MITHRIL_TILE_INLINE V widen(const std::byte* at) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
MITHRIL_TILE_INLINE V from_int8(const std::byte* at) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
MITHRIL_TILE_INLINE V from_int16(const std::byte* at) {
  const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(pairs));
}
template <int kNibble>
MITHRIL_TILE_INLINE V from_int4(const std::byte* at) {
  const __m256i top = _mm256_slli_epi32(load(at), 28 - 4 * kNibble);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
}
#else
template <class T>
MITHRIL_TILE_INLINE T load(const std::byte* at) {
  T out;
  std::memcpy(&out, at, sizeof out);
  return out;
}
MITHRIL_TILE_INLINE V from_bits(uint32_t bits) {
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
MITHRIL_TILE_INLINE V widen_even(const std::byte* at) {
  return from_bits(load<uint32_t>(at) << 16);
}
MITHRIL_TILE_INLINE V widen_odd(const std::byte* at) {
  return from_bits(load<uint32_t>(at) & 0xFFFF0000);
}
MITHRIL_TILE_INLINE V widen(const std::byte* at) { return from_bits(load<uint16_t>(at) << 16); }
MITHRIL_TILE_INLINE V from_int8(const std::byte* at) {
  return static_cast<float>(load<int8_t>(at));
}
MITHRIL_TILE_INLINE V from_int16(const std::byte* at) {
  return static_cast<float>(load<int16_t>(at));
}
template <int kNibble>
MITHRIL_TILE_INLINE V from_int4(const std::byte* at) {
  const auto top = static_cast<int32_t>(load<uint32_t>(at) << (28 - 4 * kNibble));
  return static_cast<float>(top >> 28);
}
#endif

struct BFloat16 {
  static constexpr int kBlockBytes = kBlock * kPanel * 2;
  static constexpr bool kScaled = false;
  template <int kRow>
  static MITHRIL_TILE_INLINE V row(const std::byte* block, int column) {
    const std::byte* at = block + (kRow / 2 * kPanel + column) * 4;
    return kRow % 2 == 0 ? widen_even(at) : widen_odd(at);
  }
};
struct Int8 {
  static constexpr int kBlockBytes = kBlock * kPanel;
  static constexpr bool kScaled = true;
  template <int kRow>
  static MITHRIL_TILE_INLINE V row(const std::byte* block, int column) {
    return from_int8(block + kRow * kPanel + column);
  }
};
struct Int16 {
  static constexpr int kBlockBytes = kBlock * kPanel * 2;
  static constexpr bool kScaled = true;
  template <int kRow>
  static MITHRIL_TILE_INLINE V row(const std::byte* block, int column) {
    return from_int16(block + (kRow * kPanel + column) * 2);
  }
};
struct Int4 {
  static constexpr int kBlockBytes = kBlock * kPanel / 2;
  static constexpr bool kScaled = true;
  template <int kRow>
  static MITHRIL_TILE_INLINE V row(const std::byte* block, int column) {
    return from_int4<kRow % 8>(block + (kRow / 8 * kPanel + column) * 4);
  }
};

MITHRIL_TILE_INLINE V scale_of(const std::byte* panel, int64_t block, int column) {
  return widen(panel + (block * kPanel + column) * 2);
}

// ---------------------------------------------------------------- few rows

struct Sum {
  V value{0.F};
};

template <class F, int kRow, int kRows>
MITHRIL_TILE_INLINE void add_step(const std::byte* block, int column, const float* x,
                                  int64_t x_step, Sum* sums) {
  const V weight = F::template row<kRow>(block, column);
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    V& sum = sums[i * kChains + kRow % kChains].value;
    sum = fma(V(x[i * x_step + kRow]), weight, sum);
  }
}

template <class F, int kRows, int... kRow>
MITHRIL_TILE_INLINE void add_steps(const std::byte* block, int column, const float* x,
                                   int64_t x_step, Sum* sums, std::integer_sequence<int, kRow...>) {
  (add_step<F, kRow, kRows>(block, column, x, x_step, sums), ...);
}

// A whole block: x has 32 elements of each row.
template <class F, int kRows>
MITHRIL_TILE_INLINE void add_block(const PackedPanels& w, const std::byte* panel, int64_t block,
                                   const float* x, int64_t x_step, Sum* totals) {
  const std::byte* at = panel + w.scale_bytes + block * F::kBlockBytes;
  constexpr int kAhead = 8192;  // two pages: a processor by itself looks no further than one
  for (int line = 0; line < F::kBlockBytes; line += 64) {
    __builtin_prefetch(at + kAhead + line, 0, 2);  // to the second cache
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    Sum sums[kRows * kChains];
    add_steps<F, kRows>(at, v * V::width, x, x_step, sums,
                        std::make_integer_sequence<int, kBlock>{});
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Sum* sum = sums + i * kChains;
      const V all = (sum[0].value + sum[1].value) + (sum[2].value + sum[3].value);
      V& total = totals[i * kVectors + v].value;
      total = F::kScaled ? fma(all, scale_of(panel, block, v * V::width), total) : total + all;
    }
  }
}

template <class F, int kRows>
void multiply_panel(const PanelProduct& p, int64_t index, int64_t row) {
  const PackedPanels& w = p.weights;
  const std::byte* panel = w.data + index * w.panel_bytes;
  const float* x = p.x + row * p.x_step;
  const int64_t whole = w.depth / kBlock;
  Sum totals[kRows * kVectors];
  for (int64_t b = 0; b < whole; ++b) {
    add_block<F, kRows>(w, panel, b, x + b * kBlock, p.x_step, totals);
  }
  if (const int64_t rest = w.depth - whole * kBlock; rest > 0) {
    float tail[kRows * kBlock] = {};
    for (int i = 0; i < kRows; ++i) {
      std::memcpy(tail + i * kBlock, x + i * p.x_step + whole * kBlock,
                  static_cast<size_t>(rest) * sizeof(float));
    }
    add_block<F, kRows>(w, panel, whole, tail, kBlock, totals);
  }
  const int64_t columns = w.columns - index * kPanel;
  for (int i = 0; i < kRows; ++i) {
    float* y = p.y + (row + i) * p.y_step + index * kPanel;
    alignas(64) float all[kPanel];
    for (int v = 0; v < kVectors; ++v) totals[i * kVectors + v].value.store(all + v * V::width);
    std::memcpy(y, all, static_cast<size_t>(columns < kPanel ? columns : kPanel) * sizeof(float));
  }
}

// The last rows, at most kMost of them.
template <class F, int kMost>
void multiply_rest(const PanelProduct& p, int64_t panel, int64_t row) {
  if constexpr (kMost > 0) {
    if (p.rows - row == kMost) {
      multiply_panel<F, kMost>(p, panel, row);
    } else {
      multiply_rest<F, kMost - 1>(p, panel, row);
    }
  }
}

template <class F>
void multiply(const PanelProduct& p) {
  constexpr int kMost = V::width == 16 ? 4 : 2;  // rows whose sums stay in registers
  for (int64_t panel = p.begin; panel < p.end; ++panel) {
    int64_t row = 0;
    for (; row + kMost <= p.rows; row += kMost) multiply_panel<F, kMost>(p, panel, row);
    multiply_rest<F, kMost - 1>(p, panel, row);
  }
}

// ---------------------------------------------------------------- many rows

template <class F, int... kRow>
MITHRIL_TILE_INLINE void expand_block(const std::byte* at, int column, V scale, float* to,
                                      int64_t to_step, std::integer_sequence<int, kRow...>) {
  const auto store = [&](V weight, int row) {
    (F::kScaled ? weight * scale : weight).store(to + row * to_step + column);
  };
  (store(F::template row<kRow>(at, column), kRow), ...);
}

template <class F>
void expand(const PanelExpansion& e) {
  const PackedPanels& w = e.weights;
  for (int64_t p = e.panel_begin; p < e.panel_end; ++p) {
    const std::byte* panel = w.data + p * w.panel_bytes;
    float* to = e.to + (p - e.panel_begin) * kPanel;
    for (int64_t b = e.block_begin; b < e.block_end; ++b, to += kBlock * e.to_step) {
      const std::byte* at = panel + w.scale_bytes + b * F::kBlockBytes;
      for (int v = 0; v < kVectors; ++v) {
        const V scale = F::kScaled ? scale_of(panel, b, v * V::width) : V(1.F);
        expand_block<F>(at, v * V::width, scale, to, e.to_step,
                        std::make_integer_sequence<int, kBlock>{});
      }
    }
  }
}

}  // namespace

#if defined(__AVX512F__)
const LowPrecisionParts kLowPrecision = {
    {multiply<BFloat16>, multiply<Int8>, multiply<Int4>, multiply<Int16>},
    {expand<BFloat16>, expand<Int8>, expand<Int4>, expand<Int16>},
    round_rows,
    {multiply_pairs, multiply_tiles}};
#else
const LowPrecisionParts kLowPrecision = {
    {multiply<BFloat16>, multiply<Int8>, multiply<Int4>, multiply<Int16>},
    {expand<BFloat16>, expand<Int8>, expand<Int4>, expand<Int16>},
    nullptr,
    {}};
#endif

}  // namespace mithril::cpu::MITHRIL_ISA

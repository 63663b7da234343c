// Products of bfloat16 on AMX: tiles of 16 rows and 64 bytes, sums in float32.
#include "backends/cpu/gemm/low_precision_parts.h"

#if defined(__AVX512F__)
#include <cstring>
#include <immintrin.h>

#include "core/packed_matrix.h"

namespace mithril::cpu::MITHRIL_ISA {

void round_rows(const Rounding&);
void multiply_tiles(const RoundedProduct&);

namespace {

// One file is compiled for all of AVX-512: what goes beyond is asked for function by function.
#define MITHRIL_AMX __attribute__((target("amx-tile,amx-bf16,avx512bf16")))

constexpr int64_t kSide = 16;                           // rows of a tile
constexpr int64_t kPanel = core::PackedMatrix::kPanel;  // columns of a tile of results
constexpr int64_t kDepth = core::PackedMatrix::kBlock;  // of k, in one tile

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Eight tiles of 16 rows of 64 bytes, while it lives.
class Tiles {
 public:
  MITHRIL_AMX Tiles() {
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = 64;
      config.rows[i] = kSide;
    }
    _tile_loadconfig(&config);
  }
  MITHRIL_AMX ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// What one pass over k multiplies: one or two tiles of 16 rows with two panels.
struct Pass {
  const uint16_t* x;
  int64_t x_bytes;  // of a row
  const std::byte *left, *right;
  int64_t steps;
  float* y;
  int64_t y_bytes;
  const std::byte* next;  // is brought to the second cache meanwhile
  int64_t next_lines;     // in each step
};

MITHRIL_AMX void ask_for_lines(const std::byte* at, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) _mm_prefetch(at + i * 64, _MM_HINT_T1);
}

MITHRIL_AMX void multiply_two(const Pass& p) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const auto* x = reinterpret_cast<const std::byte*>(p.x);
  for (int64_t s = 0; s < p.steps; ++s) {
    _tile_loadd(6, p.left + s * 1024, 64);
    _tile_loadd(4, x + s * 64, p.x_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, p.right + s * 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x + kSide * p.x_bytes + s * 64, p.x_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    ask_for_lines(p.next + s * p.next_lines * 64, p.next_lines);
  }
  float* const lower = p.y + kSide * (p.y_bytes / static_cast<int64_t>(sizeof(float)));
  _tile_stored(0, p.y, p.y_bytes);
  _tile_stored(1, p.y + kPanel, p.y_bytes);
  _tile_stored(2, lower, p.y_bytes);
  _tile_stored(3, lower + kPanel, p.y_bytes);
}

MITHRIL_AMX void multiply_one(const Pass& p) {
  _tile_zero(0);
  _tile_zero(1);
  const auto* x = reinterpret_cast<const std::byte*>(p.x);
  for (int64_t s = 0; s < p.steps; ++s) {
    _tile_loadd(4, x + s * 64, p.x_bytes);
    _tile_loadd(6, p.left + s * 1024, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, p.right + s * 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    ask_for_lines(p.next + s * p.next_lines * 64, p.next_lines);
  }
  _tile_stored(0, p.y, p.y_bytes);
  _tile_stored(1, p.y + kPanel, p.y_bytes);
}

int64_t at_most(int64_t value, int64_t most) { return value < most ? value : most; }

// Sixteen elements to nearest even; subnormal ones become 0, as the products take them.
MITHRIL_AMX __m256i rounded(__m512 x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }

MITHRIL_AMX void round_row(const float* x, int64_t depth, uint16_t* to) {
  const int64_t padded = (depth + kDepth - 1) / kDepth * kDepth;
  for (int64_t k = 0; k < padded; k += kSide) {
    const int64_t left = depth - k;
    const auto mask = static_cast<__mmask16>(left >= kSide ? 0xFFFF
                                             : left <= 0   ? 0
                                                           : (1 << left) - 1);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + k),
                        rounded(_mm512_maskz_loadu_ps(mask, x + k)));
  }
}

}  // namespace

void round_rows(const Rounding& r) {
  const int64_t padded = (r.depth + kDepth - 1) / kDepth * kDepth;
  const int64_t rows = (r.rows + kSide - 1) / kSide * kSide;
  for (int64_t i = 0; i < r.rows; ++i) round_row(r.x + i * r.x_step, r.depth, r.to + i * r.to_step);
  for (int64_t i = r.rows; i < rows; ++i) {
    std::memset(r.to + i * r.to_step, 0, static_cast<size_t>(padded) * sizeof(uint16_t));
  }
}

MITHRIL_AMX void multiply_tiles(const RoundedProduct& t) {
  const Tiles tiles;
  const PackedPanels& w = t.weights;
  alignas(64) float edge[2 * kSide * 2 * kPanel];
  const int64_t steps = (w.depth + kDepth - 1) / kDepth;
  const int64_t passes = (t.rows + 2 * kSide - 1) / (2 * kSide);
  for (int64_t panel = t.begin; panel < t.end; panel += 2) {
    const std::byte* left = w.data + panel * w.panel_bytes;
    const bool is_pair = panel + 1 < t.end;
    const int64_t columns = at_most(w.columns - panel * kPanel, is_pair ? 2 * kPanel : kPanel);
    for (int64_t i = 0; i < passes; ++i) {
      const int64_t row = i * 2 * kSide;
      const int64_t rows = at_most(t.rows - row, 2 * kSide);
      const bool is_two = rows > kSide;
      const bool is_whole = columns == 2 * kPanel && rows == (is_two ? 2 * kSide : kSide);
      float* const y = t.y + row * t.y_step + panel * kPanel;
      Pass pass{t.x + row * t.x_step,
                t.x_step * 2,
                left,
                is_pair ? left + w.panel_bytes : left,
                steps,
                is_whole ? y : edge,
                (is_whole ? t.y_step : 2 * kPanel) * 4,
                nullptr,
                (32 + passes - 1) / passes};
      pass.next = left + 2 * w.panel_bytes + i * steps * pass.next_lines * 64;
      is_two ? multiply_two(pass) : multiply_one(pass);
      for (int64_t r = 0; !is_whole && r < rows; ++r) {
        std::memcpy(y + r * t.y_step, edge + r * 2 * kPanel,
                    static_cast<size_t>(columns) * sizeof(float));
      }
    }
  }
}

}  // namespace mithril::cpu::MITHRIL_ISA

#endif

// Tiles of A and B go through shared memory, 16 places at a time; a thread has 4 by 4 sums in
// registers. The order of sums is canonical: fma after fma from +0 in blocks of 256 places.
#include "backends/cuda/gemm_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/device/template_text.h"

namespace mithril::cuda {
namespace {

using device::Product;
using device::put;
using device::Taps;

constexpr int64_t kTile = 64;

int64_t tiles(int64_t size) { return (size + kTile - 1) / kTile; }

// What a thread does with its place q: no place behind the last is taken, as 0 * 0 has a sign.
constexpr const char* kSums = R"(
#define M_SUMS(q) { \
    REAL left[4], right[4]; \
    for (int a = 0; a < 4; ++a) left[a] = tile_a[q][top + a]; \
    for (int b = 0; b < 4; ++b) right[b] = tile_b[q][side + 16 * b]; \
    for (int a = 0; a < 4; ++a) \
      for (int b = 0; b < 4; ++b) sum[a][b] = FMA(left[a], right[b], sum[a][b]); \
  }
)";

constexpr const char* kMemory = "  __shared__ REAL tile_a[16][65], tile_b[16][65];\n";
constexpr const char* kText = R"(
  const int thread = (int)threadIdx.x, top = thread / 16 * 4, side = thread % 16;
  for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 i0 = unit % ROWS * 64, j0 = unit / ROWS % COLUMNS * 64, batch = unit / (ROWS * COLUMNS);
    BEGINS
    REAL total[4][4], sum[4][4];
    for (m_i64 block = 0; block == 0 || block < PLACES; block += 256) {
      const m_i64 block_end = PLACES - block < 256 ? PLACES : block + 256;
      for (int a = 0; a < 4; ++a)
        for (int b = 0; b < 4; ++b) sum[a][b] = 0;
      for (m_i64 first = block; first < block_end; first += 16) {
        const int depth = block_end - first < 16 ? (int)(block_end - first) : 16;
        for (int e = thread; e < 1024; e += 256) {
          const int q = LEFT_Q, r = LEFT_R;
          const m_i64 i = i0 + r, p = first + q;
          tile_a[q][r] = q < depth && i < HEIGHT ? LEFT_ELEMENT : 0;
        }
        for (int e = thread; e < 1024; e += 256) {
          const int q = RIGHT_Q, c = RIGHT_C;
          const m_i64 j = j0 + c, p = first + q;
RIGHT
        }
        __syncthreads();
        if (depth == 16) {
#pragma unroll
          for (int q = 0; q < 16; ++q) M_SUMS(q)
        } else {
          for (int q = 0; q < depth; ++q) M_SUMS(q)
        }
        __syncthreads();
      }
      for (int a = 0; a < 4; ++a)
        for (int b = 0; b < 4; ++b) total[a][b] = block == 0 ? sum[a][b] : total[a][b] + sum[a][b];
    }
    for (int a = 0; a < 4; ++a)
      for (int b = 0; b < 4; ++b) {
        const m_i64 i = i0 + top + a, j = j0 + side + 16 * b;
        const m_i64 column = j;
        if (i < HEIGHT && j < WIDTH) {
          TO[at_c + i * C_ROW + C_COLUMN] = SUM;
FINISH
        }
      }
  }
)";

std::string called(const std::string& function, const std::string& argument) {
  return function.empty() ? argument : fmt::format("{}({})", function, argument);
}

std::string matrix(const Product& product) {
  const std::string element =
      fmt::format("a1[at_b + p * {} + j * {}]", product.b_row, product.b_col);
  return fmt::format("          tile_b[q][c] = q < depth && j < WIDTH ? {} : 0;",
                     called(product.widen, element));
}

// `tap` and `position`: what of place and column counts which.
std::string gathered(const Taps& t, const char* tap, const char* position, const char* y,
                     const std::string& image) {
  return fmt::format(
      R"(          const m_i64 plane = {tap} / {taps}, tap_y = {tap} / {kw} % {kh}, tap_x = {tap} % {kw};
          const m_i64 y = {y}, x = {position} % {width};
          const m_i64 row = y * {row_step} + tap_y * {tap_row} + {row};
          const m_i64 at = x * {column_step} + tap_x * {tap_column} + {column};
          const bool is_inside = row >= 0 && row < {h} && at >= 0 && at < {w};
          tile_b[q][c] = q < depth && j < WIDTH && is_inside
              ? {operand}[at_b + plane * {plane} + {image} + row * {w} + at] : 0;)",
      fmt::arg("tap", tap), fmt::arg("taps", t.kh * t.kw), fmt::arg("kh", t.kh),
      fmt::arg("kw", t.kw), fmt::arg("y", fmt::format(fmt::runtime(y), t.width)),
      fmt::arg("position", position), fmt::arg("width", t.width), fmt::arg("row_step", t.row_step),
      fmt::arg("tap_row", t.tap_row), fmt::arg("row", t.row),
      fmt::arg("column_step", t.column_step), fmt::arg("tap_column", t.tap_column),
      fmt::arg("column", t.column), fmt::arg("h", t.h), fmt::arg("w", t.w),
      fmt::arg("operand", t.operand), fmt::arg("plane", t.h * t.w), fmt::arg("image", image));
}

std::string right(const Product& product) {
  switch (product.right) {
    case Product::Right::kMatrix: return matrix(product);
    case Product::Right::kTaps: return gathered(product.taps, "p", "j", "j / {}", "0");
    case Product::Right::kPositions: {
      const int64_t plane = product.taps.width * product.height;
      return gathered(product.taps, "j", "p", fmt::format("p / {{}} % {}", product.height).c_str(),
                      fmt::format("p / {} * {}", plane, product.image));
    }
  }
  return {};
}

}  // namespace

device::ProductText print_gemm(const Product& product, const plan::RegisterTile& /*tile*/) {
  const int64_t rows = tiles(product.m), columns = tiles(product.n);
  const bool is_double = product.dtype == core::DType::kFloat64;
  // Neighbours among threads read what lies side by side.
  const bool left_by_rows = product.left_row == "i * 1";
  const bool right_by_places =
      product.right == Product::Right::kPositions ||
      (product.right == Product::Right::kMatrix && product.b_col != 1 && product.b_row == 1);
  std::string text = kSums + std::string(kText) + "#undef M_SUMS\n";
  put(text, "RIGHT", right(product));
  put(text, "BEGINS", product.begins);
  put(text, "FINISH",
      product.has_epilogue ? "          M_FINISH(at_c + i * C_ROW + C_COLUMN, 1);" : "");
  put(text, "LEFT_Q", left_by_rows ? "e / 64" : "e % 16");
  put(text, "LEFT_R", left_by_rows ? "e % 64" : "e / 16");
  put(text, "RIGHT_Q", right_by_places ? "e % 16" : "e / 64");
  put(text, "RIGHT_C", right_by_places ? "e / 16" : "e % 64");
  put(text, "LEFT_ELEMENT", called(product.widen, "LEFT[at_a + LEFT_ROW + (LEFT_PLACE)]"));
  const std::string sum = product.bias.empty()
                              ? "total[a][b]"
                              : "total[a][b] + " + called(product.widen, product.bias + "[j]");
  put(text, "TO", product.bias.empty() ? "a2" : "a3");
  put(text, "SUM", called(product.round, sum));
  put(text, "LEFT_ROW", product.left_row);
  put(text, "LEFT_PLACE", product.left_place);
  put(text, "LEFT", product.left);
  put(text, "ROWS", std::to_string(std::max<int64_t>(rows, 1)));
  put(text, "COLUMNS", std::to_string(std::max<int64_t>(columns, 1)));
  put(text, "PLACES", std::to_string(product.k));
  put(text, "HEIGHT", std::to_string(product.m));
  put(text, "WIDTH", std::to_string(product.n));
  put(text, "C_ROW", std::to_string(product.c_row));
  put(text, "C_COLUMN", product.c_column.empty() ? "column" : product.c_column);
  const char* const real = is_double ? "double" : "float";
  put(text, "REAL", real);
  put(text, "FMA", is_double ? "__fma_rn" : "__fmaf_rn");
  std::string memory = kMemory;
  put(memory, "REAL", real);
  return {std::move(memory), std::move(text)};
}

int64_t gemm_units(const Product& product) {
  return product.batches * tiles(product.m) * tiles(product.n);
}

}  // namespace mithril::cuda

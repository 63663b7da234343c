// Tiles of A and B go through shared memory, 16 places at a time; a thread has sums of a few rows
// and columns in registers. The order of sums is canonical: fma after fma from +0 in blocks of 256
// places.
#include "backends/device/block_products.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backends/device/template_text.h"
#include "core/rounding.h"

namespace mithril::device {
namespace {

constexpr int64_t kDepth = 16;  // places in shared memory

/// Describes a tile of all threads: a square of them, each with as many rows and columns.
struct Block {
  int64_t side, own_rows, own_columns;
  int64_t rows() const { return side * own_rows; }
  int64_t columns() const { return side * own_columns; }
};
Block block_of(const plan::RegisterTile& tile) {
  return {std::llround(std::sqrt(tile.threads)), tile.rows, tile.vectors};
}

// A thread adds its place q so: no place behind the last is taken, as 0 * 0 has a sign.
constexpr const char* kSums = R"(
#define M_SUMS(q) { \
    REAL left[OWN_ROWS], right[OWN_COLUMNS]; \
    for (int a = 0; a < OWN_ROWS; ++a) left[a] = tile_a[q][top + a]; \
    for (int b = 0; b < OWN_COLUMNS; ++b) right[b] = tile_b[q][side + SIDE * b]; \
    for (int a = 0; a < OWN_ROWS; ++a) \
      for (int b = 0; b < OWN_COLUMNS; ++b) sum[a][b] = FMA(left[a], right[b], sum[a][b]); \
  }
)";

// No condition stands around a barrier: of several products, `part` says what is filled and stored.
constexpr const char* kText = R"(
  const int thread = M_OWN_THREAD, top = thread / SIDE * OWN_ROWS, side = thread % SIDE;
  for (m_i64 unit = begin; unit < end; ++unit) {
PART
    const m_i64 i0 = TILE % ROWS * TILE_ROWS, j0 = TILE / ROWS % COLUMNS * TILE_COLUMNS;
    const m_i64 batch = TILE / (ROWS * COLUMNS);
    BEGINS
    REAL total[OWN_ROWS][OWN_COLUMNS], sum[OWN_ROWS][OWN_COLUMNS];
    for (m_i64 block = 0; block == 0 || block < PLACES; block += 256) {
      const m_i64 block_end = PLACES - block < 256 ? PLACES : block + 256;
      for (int a = 0; a < OWN_ROWS; ++a)
        for (int b = 0; b < OWN_COLUMNS; ++b) sum[a][b] = 0;
      for (m_i64 first = block; first < block_end; first += 16) {
        const int depth = block_end - first < 16 ? (int)(block_end - first) : 16;
FILL
        M_BARRIER();
        if (depth == 16) {
#pragma unroll
          for (int q = 0; q < 16; ++q) M_SUMS(q)
        } else {
          for (int q = 0; q < depth; ++q) M_SUMS(q)
        }
        M_BARRIER();
      }
      for (int a = 0; a < OWN_ROWS; ++a)
        for (int b = 0; b < OWN_COLUMNS; ++b)
          total[a][b] = block == 0 ? sum[a][b] : total[a][b] + sum[a][b];
    }
STORE
  }
)";

constexpr const char* kFill = R"(
        for (int e = thread; e < 16 * TILE_ROWS; e += THREADS) {
          const int q = LEFT_Q, r = LEFT_R;
          const m_i64 i = i0 + r, p = first + q;
          tile_a[q][r] = q < depth && i < HEIGHT ? LEFT_ELEMENT : 0;
        }
        for (int e = thread; e < 16 * TILE_COLUMNS; e += THREADS) {
          const int q = RIGHT_Q, c = RIGHT_C;
          const m_i64 j = j0 + c, p = first + q;
RIGHT
        })";

constexpr const char* kStore = R"(
    for (int a = 0; a < OWN_ROWS; ++a)
      for (int b = 0; b < OWN_COLUMNS; ++b) {
        const m_i64 i = i0 + top + a, j = j0 + side + SIDE * b;
        const m_i64 column = j;
        if (i < HEIGHT && j < WIDTH) {
          TO[at_c + i * C_ROW + C_COLUMN] = SUM;
FINISH
        }
      })";

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

std::string fill(const Product& product) {
  // Neighbours among threads read what lies side by side.
  const bool left_by_rows = product.left_row == "i * 1";
  const bool right_by_places =
      product.right == Product::Right::kPositions ||
      (product.right == Product::Right::kMatrix && product.b_col != 1 && product.b_row == 1);
  return filled(kFill,
                {{"RIGHT", right(product)},
                 {"LEFT_Q", left_by_rows ? "e / TILE_ROWS" : "e % 16"},
                 {"LEFT_R", left_by_rows ? "e % TILE_ROWS" : "e / 16"},
                 {"RIGHT_Q", right_by_places ? "e % 16" : "e / TILE_COLUMNS"},
                 {"RIGHT_C", right_by_places ? "e / 16" : "e % TILE_COLUMNS"},
                 {"LEFT_ELEMENT", called(product.widen, "LEFT[at_a + LEFT_ROW + (LEFT_PLACE)]")},
                 {"LEFT_ROW", product.left_row},
                 {"LEFT_PLACE", product.left_place},
                 {"LEFT", product.left},
                 {"WIDTH", std::to_string(product.n)}});
}

std::string store(const Product& product) {
  const std::string sum = product.bias.empty()
                              ? "total[a][b]"
                              : "total[a][b] + " + called(product.widen, product.bias + "[j]");
  return filled(
      kStore, {{"FINISH",
                product.has_epilogue ? "          M_FINISH(at_c + i * C_ROW + C_COLUMN, 1);" : ""},
               {"TO", product.bias.empty() ? "a2" : "a3"},
               {"SUM", called(product.round, sum)},
               {"C_ROW", std::to_string(product.c_row)},
               {"C_COLUMN", product.c_column.empty() ? "column" : product.c_column},
               {"WIDTH", std::to_string(product.n)}});
}

/// Says what holds for the product that `part` counts.
std::string of_parts(std::span<const Product> products, std::string (*print)(const Product&)) {
  if (products.size() == 1) return print(products[0]);
  std::string out = "switch (part) {\n";
  for (size_t part = 0; part < products.size(); ++part) {
    out += fmt::format("case {}: {{{}\nbreak; }}\n", part, print(products[part]));
  }
  return out + "}";
}

/// Declares the number of a unit's product, its tile and its places: those of several products take
/// turns, each with as many tiles as the widest.
std::string part(std::span<const Product> products) {
  if (products.size() == 1) return "";
  std::string places = std::to_string(products.back().k);
  for (size_t part = products.size() - 1; part-- > 0;) {
    places = fmt::format("part == {} ? {} : {}", part, products[part].k, places);
  }
  return fmt::format(
      "    const int part = (int)(unit % {0});\n"
      "    const m_i64 tile = unit / {0}, places = {1};",
      products.size(), places);
}

int64_t widest(std::span<const Product> products) {
  return std::ranges::max_element(products, {}, &Product::n)->n;
}

}  // namespace

int threads_of_tile(int64_t most) {
  constexpr int kThreads[] = {256, 64};
  for (const int threads : kThreads) {
    if (threads <= most) return threads;
  }
  return 0;
}

ProductText print_block_product(std::span<const Product> products, const plan::RegisterTile& tile) {
  const Product& any = products[0];
  const Block own = block_of(tile);
  const int64_t rows = core::ceil_div(any.m, own.rows());
  const int64_t columns = core::ceil_div(widest(products), own.columns());
  const bool is_double = any.dtype == core::DType::kFloat64, is_one = products.size() == 1;
  const char* const real = is_double ? "double" : "float";
  std::string text = filled(kSums + std::string(kText) + "#undef M_SUMS\n",
                            {{"FILL", of_parts(products, fill)},
                             {"STORE", of_parts(products, store)},
                             {"PART", part(products)},
                             {"TILE", is_one ? "unit" : "tile"},
                             {"BEGINS", any.begins},
                             {"PLACES", is_one ? std::to_string(any.k) : "places"},
                             {"ROWS", std::to_string(std::max<int64_t>(rows, 1))},
                             {"COLUMNS", std::to_string(std::max<int64_t>(columns, 1))},
                             {"HEIGHT", std::to_string(any.m)},
                             {"REAL", real},
                             {"FMA", is_double ? "m_c_fma_f64" : "m_c_fma_f32"},
                             {"THREADS", std::to_string(tile.threads)},
                             {"SIDE", std::to_string(own.side)},
                             {"OWN_ROWS", std::to_string(own.own_rows)},
                             {"OWN_COLUMNS", std::to_string(own.own_columns)},
                             {"TILE_ROWS", std::to_string(own.rows())},
                             {"TILE_COLUMNS", std::to_string(own.columns())}});
  // One element more than a row has: neighbours in a column lie in different banks.
  return {"",
          std::move(text),
          {{real, "tile_a", kDepth, fmt::format("[{}]", own.rows() + 1)},
           {real, "tile_b", kDepth, fmt::format("[{}]", own.columns() + 1)}}};
}

int64_t block_product_units(std::span<const Product> products, const plan::RegisterTile& tile) {
  const Block own = block_of(tile);
  return static_cast<int64_t>(products.size()) * products[0].batches *
         core::ceil_div(products[0].m, own.rows()) *
         core::ceil_div(widest(products), own.columns());
}

int64_t block_product_bytes(const plan::RegisterTile& tile) {
  const Block own = block_of(tile);
  return kDepth * (own.rows() + own.columns() + 2) * static_cast<int64_t>(sizeof(double));
}

}  // namespace mithril::device

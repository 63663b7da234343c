// The transforms of F(4x4, 3x3) and F(2x2, 3x3): Lavin and Gray, Fast Algorithms for Convolutional
// Neural Networks (arXiv:1509.09308); the larger one interpolated at 0, infinity and the square
// roots of 1/2 and 2, which round a fourth of what the paper's 1 and 2 do. Each is a matrix that is
// applied to the columns of a patch and then to its rows. `lanes` of them lie side by side, which
// compilers for a CPU make vectors of; where items are short there is one lane, and what is
// unrolled lies in registers.
#include "backends/device/winograd_text.h"

#include <fmt/format.h>

#include "backends/device/template_text.h"
#include "core/rounding.h"

namespace mithril::device {
namespace {

// ---------------------------------------------------------------- transforms

// M_IN(i) is the i-th value, M_OUT(i, value) takes the i-th result.
struct Transforms {
  const char* patch;
  const char* filter;
  const char* result;
};

constexpr Transforms kOf4 = {
    R"(const m_f32 d0 = M_IN(0), d1 = M_IN(1), d2 = M_IN(2);
        const m_f32 d3 = M_IN(3), d4 = M_IN(4), d5 = M_IN(5);
        M_OUT(0, m_fma_f32(-2.5f, d2, d0 + d4));
        const m_f32 near_even = m_fma_f32(-2.0f, d2, d4), near_odd = m_fma_f32(-2.0f, d1, d3);
        M_OUT(1, m_fma_f32(HALF_ROOT, near_odd, near_even));
        M_OUT(2, m_fma_f32(-HALF_ROOT, near_odd, near_even));
        const m_f32 far_even = m_fma_f32(-0.5f, d2, d4), far_odd = m_fma_f32(-0.5f, d1, d3);
        M_OUT(3, m_fma_f32(ROOT, far_odd, far_even));
        M_OUT(4, m_fma_f32(-ROOT, far_odd, far_even));
        M_OUT(5, m_fma_f32(-2.5f, d3, d1 + d5));)",
    R"(const m_f32 g0 = M_IN(0), g1 = M_IN(1), g2 = M_IN(2);
        M_OUT(0, g0);
        const m_f32 near = m_fma_f32(2.0f, g0, g2) * -THIRD, near_odd = g1 * -THIRD_ROOT;
        M_OUT(1, near + near_odd);
        M_OUT(2, near - near_odd);
        const m_f32 far = m_fma_f32(2.0f, g2, g0) * SIXTH, far_odd = g1 * SIXTH_ROOT;
        M_OUT(3, far + far_odd);
        M_OUT(4, far - far_odd);
        M_OUT(5, g2);)",
    R"(const m_f32 m1 = M_IN(1), m2 = M_IN(2), m3 = M_IN(3), m4 = M_IN(4);
        const m_f32 near = m1 + m2, near_odd = m1 - m2, far = m3 + m4, far_odd = m3 - m4;
        M_OUT(0, M_IN(0) + (near + far));
        M_OUT(1, ROOT * m_fma_f32(0.5f, near_odd, far_odd));
        M_OUT(2, m_fma_f32(2.0f, far, 0.5f * near));
        M_OUT(3, m_fma_f32(ROOT, m_fma_f32(2.0f, far_odd, 0.25f * near_odd), M_IN(5)));)"};

constexpr Transforms kOf2 = {
    R"(const m_f32 d0 = M_IN(0), d1 = M_IN(1), d2 = M_IN(2), d3 = M_IN(3);
        M_OUT(0, d0 - d2);
        M_OUT(1, d1 + d2);
        M_OUT(2, d2 - d1);
        M_OUT(3, d1 - d3);)",
    R"(const m_f32 g0 = M_IN(0), g1 = M_IN(1), g2 = M_IN(2);
        const m_f32 even = 0.5f * (g0 + g2), odd = 0.5f * g1;
        M_OUT(0, g0);
        M_OUT(1, even + odd);
        M_OUT(2, even - odd);
        M_OUT(3, g2);)",
    R"(const m_f32 m1 = M_IN(1), m2 = M_IN(2);
        M_OUT(0, M_IN(0) + (m1 + m2));
        M_OUT(1, (m1 - m2) - M_IN(3));)"};

const Transforms& transforms_of(const Winograd& conv) { return conv.tile == 4 ? kOf4 : kOf2; }

// A transform of one column or row, for all lanes.
std::string lanes_of(const char* transform, const char* in, const char* out, const char* count) {
  return fmt::format(
      "for (int l = 0; l < {}; ++l) {{\n#define M_IN(n) {}\n#define M_OUT(n, value) {}\n        "
      "{}\n"
      "#undef M_IN\n#undef M_OUT\n      }}",
      count, in, out, transform);
}

// ---------------------------------------------------------------- filters

constexpr const char* kFilters = R"(for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 row = unit / ROW_UNITS, place = unit % ROW_UNITS * LANES;
    const int count = ROW_SIZE - place < LANES ? (int)(ROW_SIZE - place) : LANES;
    m_f32 taps[9 * LANES], rows[PATCH * 3 * LANES];
    M_GLOBAL const m_f32* const from = a1 + (ROW_BEGIN + place) * 9;
    UNROLL
    for (int tap = 0; tap < 9; ++tap) {
      for (int l = 0; l < LANES; ++l) taps[tap * LANES + l] = from[(l < count ? l : 0) * 9 + TAP];
    }
    UNROLL
    for (int j = 0; j < 3; ++j) {
      COLUMN_OF_TAPS
    }
    UNROLL
    for (int i = 0; i < PATCH; ++i) {
      M_GLOBAL m_f32* const to = u + i * PATCH * U_STEP + row * ROW_SIZE + place;
      ROW_OF_FILTER
    }
  })";

// ---------------------------------------------------------------- patches

constexpr const char* kPatches = R"(for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 c = unit / BLOCKS, place = unit % BLOCKS * LANES, first = FIRST + place;
    m_f32 patch[ELEMENTS * LANES], columns[ELEMENTS * LANES];
    GATHER
    UNROLL
    for (int j = 0; j < PATCH; ++j) {
      COLUMN_OF_PATCH
    }
    UNROLL
    for (int i = 0; i < PATCH; ++i) {
      M_GLOBAL m_f32* const to = v + i * PATCH * V_STEP + c * ROW + place;
      ROW_OF_PATCH
    }
  })";

// Tiles of one row lie side by side: their elements of one column are a tile apart.
constexpr const char* kGatherRuns = R"(for (int e = 0; e < ELEMENTS * LANES; ++e) patch[e] = 0;
    const m_i64 last = first + LANES < TILES ? first + LANES : TILES;
    for (m_i64 t = first; t < last;) {
      RUN
      const m_i64 top = row % ROWS * TILE - PAD_TOP, left = column * TILE - PAD_LEFT;
      M_GLOBAL const m_f32* const plane = a0 + (row / ROWS * CHANNELS + c) * PLANE;
      for (int i = 0; i < PATCH; ++i) {
        const m_i64 y = top + i;
        if (y < 0 || y >= H_IN) continue;
        for (int j = 0; j < PATCH; ++j) {
          const m_i64 x = left + j;
          const m_i64 low = x < 0 ? (TILE - 1 - x) / TILE : 0;
          const m_i64 high = x < W_IN ? (W_IN - 1 - x) / TILE + 1 : 0;
          const int past = high < run ? (int)high : run;
          M_GLOBAL const m_f32* const from = plane + y * W_IN + x;
          m_f32* const to = patch + (i * PATCH + j) * LANES + (t - first);
          for (int l = (int)(low < past ? low : past); l < past; ++l) to[l] = from[l * TILE];
        }
      }
      t += run;
    })";

// The tiles from t on in its row, of those before `last`.
constexpr const char* kRun = R"(const m_i64 row = t / COLUMNS, column = t % COLUMNS;
      const int run = (int)(COLUMNS - column < last - t ? COLUMNS - column : last - t);)";

constexpr const char* kGatherOne = R"(const m_i64 row = first / COLUMNS;
    const m_i64 top = row % ROWS * TILE - PAD_TOP, left = first % COLUMNS * TILE - PAD_LEFT;
    M_GLOBAL const m_f32* const plane = a0 + (row / ROWS * CHANNELS + c) * PLANE;
    UNROLL
    for (int i = 0; i < PATCH; ++i) {
      UNROLL
      for (int j = 0; j < PATCH; ++j) {
        const m_i64 y = top + i, x = left + j;
        const int is_inside = y >= 0 && y < H_IN && x >= 0 && x < W_IN;
        patch[i * PATCH + j] = is_inside ? plane[y * W_IN + x] : 0;
      }
    })";

// ---------------------------------------------------------------- results

// 0 times a result is NaN where that is not finite.
constexpr const char* kResults = R"(for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 own = unit / BLOCKS, k = FIRST_FILTER + own;
    const m_i64 place = unit % BLOCKS * LANES, first = FIRST + place;
    const int count = TILES - first < LANES ? (int)(TILES - first) : LANES;
    m_f32 columns[TILE * PATCH * LANES], tile[TILE * TILE * LANES], check[LANES];
    UNROLL
    for (int j = 0; j < PATCH; ++j) {
      M_GLOBAL const m_f32* const from = m + j * M_STEP + own * ROW + place;
      COLUMN_OF_RESULT
    }
    for (int l = 0; l < LANES; ++l) check[l] = 0;
    UNROLL
    for (int i = 0; i < TILE; ++i) {
      ROW_OF_RESULT
    }
    STORE
    int is_broken = 0;
    for (int l = 0; l < count; ++l) is_broken |= check[l] != check[l];
    if (is_broken) {
      MEND
    }
    FINISH
  })";

constexpr const char* kStoreRuns = R"(const m_i64 last = first + count;
    for (m_i64 t = first; t < last;) {
      RUN
      const m_i64 x = column * TILE, left_over = W_OUT - x;
      const int width = left_over < run * TILE ? (int)left_over : run * TILE;
      for (int i = 0; i < TILE; ++i) {
        const m_i64 y = row % ROWS * TILE + i;
        if (y >= H_OUT) break;
        M_GLOBAL m_f32* const to = a2 + ((row / ROWS * FILTERS + k) * H_OUT + y) * W_OUT + x;
        const m_f32* const from = tile + i * TILE * LANES + (t - first);
        const int whole = width / TILE;
        for (int l = 0; l < whole; ++l) {
          for (int j = 0; j < TILE; ++j) to[l * TILE + j] = from[j * LANES + l];
        }
        for (int j = 0; j < width % TILE; ++j) to[whole * TILE + j] = from[j * LANES + whole];
      }
      t += run;
    })";

constexpr const char* kFinishRuns = R"(for (m_i64 t = first; t < last;) {
      RUN
      const m_i64 x = column * TILE, left_over = W_OUT - x;
      const m_i64 width = left_over < run * TILE ? left_over : run * TILE;
      for (int i = 0; i < TILE; ++i) {
        const m_i64 y = row % ROWS * TILE + i;
        if (y >= H_OUT) break;
        M_FINISH(((row / ROWS * FILTERS + k) * H_OUT + y) * W_OUT + x, width);
      }
      t += run;
    })";

constexpr const char* kStoreOne = R"(const m_i64 row = first / COLUMNS;
    const m_i64 y = row % ROWS * TILE, x = first % COLUMNS * TILE;
    const m_i64 to = ((row / ROWS * FILTERS + k) * H_OUT + y) * W_OUT + x;
    UNROLL
    for (int i = 0; i < TILE; ++i) {
      UNROLL
      for (int j = 0; j < TILE; ++j) {
        if (y + i < H_OUT && x + j < W_OUT) a2[to + i * W_OUT + j] = tile[i * TILE + j];
      }
    })";

constexpr const char* kFinishOne = R"(const m_i64 width = W_OUT - x < TILE ? W_OUT - x : TILE;
    for (int i = 0; i < TILE && y + i < H_OUT; ++i) M_FINISH(to + i * W_OUT, width);)";

// Sums over a whole patch have made NaN of results that do not see what is infinite, NaN or huge in
// it. Places are summed in the order of products.
constexpr const char* kMend = R"(for (int l = 0; l < count; ++l) {
        if (check[l] == check[l]) continue;
        const m_i64 image = (first + l) / (ROWS * COLUMNS);
        const m_i64 top = (first + l) / COLUMNS % ROWS * TILE, left = (first + l) % COLUMNS * TILE;
        for (int e = 0; e < TILE * TILE; ++e) {
          const m_i64 y = top + e / TILE, x = left + e % TILE;
          if (y >= H_OUT || x >= W_OUT) continue;
          m_f32 total = 0, sum = 0;
          int depth = 0;
          m_bool has_total = 0;
          for (m_i64 c = 0; c < CHANNELS; ++c) {
            M_GLOBAL const m_f32* const plane = a0 + (image * CHANNELS + c) * PLANE;
            M_GLOBAL const m_f32* const taps = a1 + FILTER * 9;
            for (int tap = 0; tap < 9; ++tap, ++depth) {
              const m_i64 under = y + TAP / 3 - PAD_TOP, at = x + TAP % 3 - PAD_LEFT;
              const int is_inside = under >= 0 && under < H_IN && at >= 0 && at < W_IN;
              if (depth == 256) {
                total = has_total ? total + sum : sum;
                has_total = 1;
                sum = 0;
                depth = 0;
              }
              sum = m_fma_f32(taps[tap], is_inside ? plane[under * W_IN + at] : 0, sum);
            }
          }
          a2[((image * FILTERS + k) * H_OUT + y) * W_OUT + x] = has_total ? total + sum : sum;
        }
      })";

// ---------------------------------------------------------------- names

Names names_of(const Winograd& conv, const WinogradLayout& layout) {
  return {{"RUN", kRun},
          {"UNROLL", layout.lanes == 1 ? "\n#pragma unroll\n" : ""},
          {"TAP", conv.turned ? "(8 - tap)" : "tap"},
          {"ROOT", "1.41421356f"},
          {"HALF_ROOT", "0.707106781f"},
          {"THIRD_ROOT", "0.471404521f"},
          {"SIXTH_ROOT", "0.23570226f"},
          {"THIRD", "0.333333343f"},
          {"SIXTH", "0.166666672f"},
          {"OVERFLOWS_IF_HUGE", "309485009821345068724781056.0f"},  // 2^88
          {"CHANNELS", text_of(conv.channels)},
          {"FILTERS", text_of(conv.filters)},
          {"H_IN", text_of(conv.h)},
          {"W_IN", text_of(conv.w)},
          {"PLANE", text_of(conv.h * conv.w)},
          {"H_OUT", text_of(conv.h_out)},
          {"W_OUT", text_of(conv.w_out)},
          {"PAD_TOP", fmt::format("({})", conv.pad_top)},
          {"PAD_LEFT", fmt::format("({})", conv.pad_left)},
          {"TILES", text_of(conv.tiles())},
          {"ROWS", text_of(conv.rows())},
          {"COLUMNS", text_of(conv.columns())},
          {"ELEMENTS", text_of(conv.elements())},
          {"PATCH", text_of(conv.patch())},
          {"TILE", text_of(conv.tile)},
          {"LANES", text_of(layout.lanes)},
          {"U_STEP", stride_text(layout.u_step, conv.elements())},
          {"V_STEP", stride_text(layout.v_step, conv.elements())},
          {"M_STEP", stride_text(layout.m_step, conv.elements())},
          {"ROW", text_of(layout.row)}};
}

// Numbers of filters that lie side by side, and how often.
int64_t row_size(const Winograd& conv, const WinogradLayout& layout) {
  return conv.turned ? layout.share : conv.channels;
}
int64_t row_units(const Winograd& conv, const WinogradLayout& layout) {
  return core::ceil_div(row_size(conv, layout), layout.lanes);
}

}  // namespace

int64_t filter_units(const Winograd& conv, const WinogradLayout& layout) {
  return row_units(conv, layout) * (conv.turned ? conv.channels : layout.share);
}

std::string print_filters(const Winograd& conv, const WinogradLayout& layout,
                          const std::string& first_filter) {
  const char* const transform = transforms_of(conv).filter;
  std::string text = filled(
      kFilters, {{"COLUMN_OF_TAPS", lanes_of(transform, "taps[((n) * 3 + j) * LANES + l]",
                                             "rows[((n) * 3 + j) * LANES + l] = value", "LANES")},
                 {"ROW_OF_FILTER", lanes_of(transform, "rows[(i * 3 + (n)) * LANES + l]",
                                            "to[(n) * U_STEP + l] = value", "count")},
                 {"ROW_BEGIN",
                  conv.turned ? "row * FILTERS + FIRST_FILTER" : "(FIRST_FILTER + row) * CHANNELS"},
                 {"ROW_SIZE", text_of(row_size(conv, layout))},
                 {"ROW_UNITS", text_of(row_units(conv, layout))},
                 {"FIRST_FILTER", first_filter}});
  return filled(std::move(text), names_of(conv, layout));
}

std::string print_patches(const Winograd& conv, const WinogradLayout& layout,
                          const std::string& first, int64_t blocks) {
  const char* const transform = transforms_of(conv).patch;
  std::string text = filled(
      kPatches,
      {{"GATHER", layout.lanes == 1 ? kGatherOne : kGatherRuns},
       {"COLUMN_OF_PATCH", lanes_of(transform, "patch[((n) * PATCH + j) * LANES + l]",
                                    "columns[((n) * PATCH + j) * LANES + l] = value", "LANES")},
       {"ROW_OF_PATCH", lanes_of(transform, "columns[(i * PATCH + (n)) * LANES + l]",
                                 "to[(n) * V_STEP + l] = value", "LANES")},
       {"FIRST", first},
       {"BLOCKS", text_of(blocks)}});
  return filled(std::move(text), names_of(conv, layout));
}

std::string print_results(const Winograd& conv, const WinogradLayout& layout,
                          const std::string& first, int64_t blocks, const std::string& first_filter,
                          bool has_epilogue) {
  const char* const transform = transforms_of(conv).result;
  const char* const finish = layout.lanes == 1 ? kFinishOne : kFinishRuns;
  std::string text = filled(
      kResults,
      {{"COLUMN_OF_RESULT", lanes_of(transform, "from[(n) * PATCH * M_STEP + l]",
                                     "columns[((n) * PATCH + j) * LANES + l] = value", "LANES")},
       {"ROW_OF_RESULT",
        lanes_of(transform, "columns[(i * PATCH + (n)) * LANES + l]",
                 "{ const m_f32 y = value; tile[(i * TILE + (n)) * LANES + l] = y; "
                 "check[l] += y * OVERFLOWS_IF_HUGE * 0.0f; }",
                 "LANES")},
       {"STORE", layout.lanes == 1 ? kStoreOne : kStoreRuns},
       {"MEND", kMend},
       {"FINISH", has_epilogue ? finish : ""},
       {"FILTER", conv.turned ? "(c * FILTERS + k)" : "(k * CHANNELS + c)"},
       {"FIRST", first},
       {"FIRST_FILTER", first_filter},
       {"BLOCKS", text_of(blocks)}});
  return filled(std::move(text), names_of(conv, layout));
}

}  // namespace mithril::device

// Panels of B in the private memory of an item: what a block of places has for some columns.
#include <fmt/format.h>

#include "backends/opencl/gemm_text.h"

namespace mithril::opencl {
namespace {

using core::DType;
using device::Product;
using device::Taps;

// Columns of B side by side are copied, others are picked one by one.
std::string pack_matrix(const Product& d, int64_t panel) {
  return fmt::format(
      R"(for (int q = 0; q < depth; ++q) {{
    __global const REAL* const from = a1 + at_b + (p + q) * {0} + j * {1};
    REAL* const to = panel + q * {2};
    if (columns == {2}) {{
      for (int l = 0; l < {2}; ++l) to[l] = from[l * {1}];
    }} else {{
      for (int l = 0; l < {2}; ++l) to[l] = l < columns ? from[l * {1}] : 0;
    }}
  }})",
      d.b_row, d.b_col, panel);
}

std::string pack_transposed(const Product& d, int64_t panel) {
  return fmt::format(
      R"(for (int l = 0; l < {2}; ++l) {{
    __global const REAL* const from = a1 + at_b + p * {0} + (j + l) * {1};
    for (int q = 0; q < depth; ++q) panel[q * {2} + l] = l < columns ? from[q * {0}] : 0;
  }})",
      d.b_row, d.b_col, panel);
}

// A text with the numbers of its taps, and with `more` of its own.
template <class... More>
std::string with_taps(const char* text, const Taps& t, int64_t panel, const More&... more) {
  return fmt::format(fmt::runtime(text), fmt::arg("taps", t.kh * t.kw), fmt::arg("kh", t.kh),
                     fmt::arg("kw", t.kw), fmt::arg("panel", panel), fmt::arg("width", t.width),
                     fmt::arg("row_step", t.row_step), fmt::arg("column_step", t.column_step),
                     fmt::arg("tap_row", t.tap_row), fmt::arg("tap_column", t.tap_column),
                     fmt::arg("row", t.row), fmt::arg("column", t.column), fmt::arg("h", t.h),
                     fmt::arg("w", t.w), fmt::arg("operand", t.operand), more...);
}

// Places are taps, columns positions, of which those in one row of the result lie side by side.
std::string pack_taps(const Taps& t, int64_t panel) {
  return with_taps(
      R"({{
    m_i64 plane = p / {taps}, i = p / {kw} % {kh}, tap = p % {kw};
    for (int q = 0; q < depth; ++q) {{
      REAL* const to = panel + q * {panel};
      m_i64 y = j / {width}, x = j % {width};
      int done = 0;
      while (done < columns) {{
        const int count = {width} - x < columns - done ? (int)({width} - x) : columns - done;
        const m_i64 row = y * {row_step} + i * {tap_row} + {row};
        const int inside = row >= 0 && row < {h};
        const m_i64 first = x * {column_step} + tap * {tap_column} + {column};
        __global const REAL* const from = {operand} + at_b + (plane * {h} + (inside ? row : 0)) * {w};
        if (inside && first >= 0 && first + (count - 1) * {column_step} < {w}) {{
          for (int l = 0; l < count; ++l) to[done + l] = from[first + l * {column_step}];
        }} else {{
          for (int l = 0; l < count; ++l) {{
            const m_i64 at = first + l * {column_step};
            to[done + l] = inside && at >= 0 && at < {w} ? from[at] : 0;
          }}
        }}
        done += count;
        x = 0;
        ++y;
      }}
      for (; done < {panel}; ++done) to[done] = 0;
      if (++tap == {kw}) {{
        tap = 0;
        if (++i == {kh}) {{
          i = 0;
          ++plane;
        }}
      }}
    }}
  }})",
      t, panel);
}

// Places are positions (n, y, x), columns taps.
std::string pack_positions(const Taps& t, int64_t image, int64_t height, int64_t panel) {
  return with_taps(
      R"(for (int l = 0; l < {panel}; ++l) {{
    const m_i64 plane = (j + l) / {taps}, i = (j + l) / {kw} % {kh}, tap = (j + l) % {kw};
    m_i64 x = p % {width}, y = p / {width} % {height}, n = p / {width} / {height};
    for (int q = 0; q < depth; ++q) {{
      const m_i64 row = y * {row_step} + i * {tap_row} + {row};
      const m_i64 at = x * {column_step} + tap * {tap_column} + {column};
      const int inside = l < columns && row >= 0 && row < {h} && at >= 0 && at < {w};
      panel[q * {panel} + l] =
          inside ? {operand}[at_b + plane * {plane} + n * {image} + row * {w} + at] : 0;
      if (++x == {width}) {{
        x = 0;
        if (++y == {height}) {{
          y = 0;
          ++n;
        }}
      }}
    }}
  }})",
      t, panel, fmt::arg("plane", t.h * t.w), fmt::arg("image", image), fmt::arg("height", height));
}

// REAL as the type's name.
std::string typed(std::string text, DType dtype) {
  const char* const type = dtype == DType::kFloat64 ? "double" : "float";
  for (size_t at = 0; (at = text.find("REAL", at)) != std::string::npos;) text.replace(at, 4, type);
  return text;
}

}  // namespace

std::string print_panel(const Product& product) {
  const int64_t panel = gemm_panel_columns(product.dtype);
  std::string text;
  switch (product.right) {
    case Product::Right::kMatrix: {
      const bool is_transposed = product.b_col != 1 && product.b_row == 1;
      text = is_transposed ? pack_transposed(product, panel) : pack_matrix(product, panel);
      break;
    }
    case Product::Right::kTaps: text = pack_taps(product.taps, panel); break;
    case Product::Right::kPositions:
      text = pack_positions(product.taps, product.image, product.height, panel);
      break;
  }
  return typed(std::move(text), product.dtype);
}

}  // namespace mithril::opencl

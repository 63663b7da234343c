// A panel of B is packed for a block of places; tiles of rows run over it with their sums in
// registers.
#include "backends/opencl/gemm_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/device/block_products.h"
#include "core/rounding.h"

namespace mithril::opencl {
namespace {

using device::Product;

constexpr int64_t kBlock = 256;
constexpr int64_t kPanelBytes = 128;  // of a row
constexpr int64_t kGemmRows = 256;    // of a unit of the work

class Printer {
 public:
  Printer(const Product& gemm, const plan::RegisterTile& tile)
      : gemm_(gemm),
        tile_(tile),
        panel_(gemm_panel_columns(gemm.dtype)),
        lanes_(tile.vector_bytes / static_cast<int64_t>(core::size_of(gemm.dtype))),
        real_(gemm.dtype == core::DType::kFloat64 ? "double" : "float"),
        vector_(fmt::format("{}{}", real_, lanes_)) {}

  /// Declares what the text stands on.
  std::string memory() const {
    std::string out = fmt::format("  {} panel[{}];\n", real_, kBlock * panel_);
    if (!gemm_.left_is_affine) out += fmt::format("  int places[{}];\n", kBlock);
    return out;
  }

  std::string run() {
    const int64_t panels = (gemm_.n + panel_ - 1) / panel_;
    line("for (m_i64 unit = begin; unit < end; ++unit) {{");
    line("const m_i64 chunk = unit % {0}, batch = unit / {1};", chunks(), chunks() * panels);
    line("const m_i64 j = unit / {} % {} * {};", chunks(), panels, panel_);
    line("const int columns = {0} - j < {1} ? (int)({0} - j) : {1};", gemm_.n, panel_);
    line("const m_i64 row_end = {0} - chunk * {1} < {1} ? {0} : (chunk + 1) * {1};", gemm_.m,
         kGemmRows);
    line("{}", gemm_.begins);
    line("for (m_i64 p = 0; p == 0 || p < {}; p += {}) {{", gemm_.k, kBlock);
    line("const int depth = {0} - p < {1} ? (int)({0} - p) : {1};", gemm_.k, kBlock);
    line("{}", print_panel(gemm_));
    if (!gemm_.left_is_affine) {
      line(
          "{{ const m_i64 first = p; for (int q = 0; q < depth; ++q) {{ const m_i64 p = first + q; "
          "places[q] = (int)({}); }} }}",
          gemm_.left_place);
    }
    line("for (int strip = 0; strip < columns; strip += {}) {{", width());
    line("const int left_over = columns - strip;");
    line("m_i64 r = chunk * {};", kGemmRows);
    for (const int64_t rows : {tile_.rows, int64_t{4}, int64_t{1}}) {
      if (rows <= tile_.rows) tiles(rows);
    }
    line("}}");
    line("}}");
    if (gemm_.has_epilogue) finish();
    line("}}");
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_ += "  " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  int64_t chunks() const { return std::max<int64_t>((gemm_.m + kGemmRows - 1) / kGemmRows, 1); }

  // Columns of a tile, of which a panel has whole ones.
  int64_t width() const { return lanes_ * tile_.vectors; }

  // All tiles of so many rows that are left, along a strip of the panel.
  void tiles(int64_t rows) {
    line("for (; row_end - r >= {0}; r += {0}) {{", rows);
    for (int64_t i = 0; i < rows; ++i) {
      line(
          "__global const {0}* left{1}; {{ const m_i64 i = r + {1}; left{1} = {3} + at_a + {2}; }}",
          real_, i, gemm_.left_row, gemm_.left);
      for (int64_t v = 0; v < tile_.vectors; ++v) line("{} s{}_{} = 0;", vector_, i, v);
    }
    line("for (int q = 0; q < depth; ++q) {{");
    for (int64_t v = 0; v < tile_.vectors; ++v) {
      line("const {0} b{1} = vload{2}(0, panel + q * {3} + strip + {4});", vector_, v, lanes_,
           panel_, v * lanes_);
    }
    if (gemm_.left_is_affine) {
      line("const m_i64 place = {};", affine());
    } else {
      line("const m_i64 place = places[q];");
    }
    for (int64_t i = 0; i < rows; ++i) {
      line("{{ const {0} a = ({0})(left{1}[place]);", vector_, i);
      for (int64_t v = 0; v < tile_.vectors; ++v) line("s{0}_{1} = fma(a, b{1}, s{0}_{1});", i, v);
      line("}}");
    }
    line("}}");
    if (gemm_.c_column.empty()) {
      store(rows);
    } else {
      store_apart(rows);
    }
    line("}}");
  }

  // Columns that lie side by side.
  void store(int64_t rows) {
    line("__global {}* const to = a2 + at_c + r * {} + j + strip;", real_, gemm_.c_row);
    line("if (left_over >= {}) {{", width());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t v = 0; v < tile_.vectors; ++v) {
        line("vstore{0}(p == 0 ? s{1}_{2} : vload{0}({2}, to + {3}) + s{1}_{2}, {2}, to + {3});",
             lanes_, i, v, i * gemm_.c_row);
      }
    }
    line("}} else {{");
    line("{} edge[{}];", real_, width());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t v = 0; v < tile_.vectors; ++v)
        line("vstore{0}(s{1}_{2}, {2}, edge);", lanes_, i, v);
      line(
          "for (int l = 0; l < left_over; ++l) to[{0} + l] = p == 0 ? edge[l] : to[{0} + l] + "
          "edge[l];",
          i * gemm_.c_row);
    }
    line("}}");
  }

  void store_apart(int64_t rows) {
    line("{} edge[{}];", real_, width());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t v = 0; v < tile_.vectors; ++v)
        line("vstore{0}(s{1}_{2}, {2}, edge);", lanes_, i, v);
      line("for (int l = 0; l < {0} && l < left_over; ++l) {{", width());
      line("const m_i64 column = j + strip + l;");
      line("__global {}* const to = a2 + at_c + (r + {}) * {} + {};", real_, i, gemm_.c_row,
           gemm_.c_column);
      line("*to = p == 0 ? edge[l] : *to + edge[l];");
      line("}}");
    }
  }

  // The rows of a unit while they are in cache; those that lie behind one another at once.
  void finish() {
    const bool is_whole = gemm_.c_row == gemm_.n && gemm_.n <= panel_;
    if (is_whole) {
      line("M_FINISH(at_c + chunk * {}, (row_end - chunk * {}) * {});", kGemmRows * gemm_.n,
           kGemmRows, gemm_.n);
      return;
    }
    line("for (m_i64 i = chunk * {}; i < row_end; ++i) M_FINISH(at_c + i * {} + j, columns);",
         kGemmRows, gemm_.c_row);
  }

  // Place p + q of A in the loop over q.
  std::string affine() const {
    std::string text = gemm_.left_place;
    const size_t at = text.find('p');
    return at == std::string::npos ? text : text.replace(at, 1, "(p + q)");
  }

  const Product& gemm_;
  const plan::RegisterTile& tile_;
  int64_t panel_, lanes_;
  std::string real_, vector_, out_;
};

int64_t units_of(const Product& product) {
  const int64_t columns = gemm_panel_columns(product.dtype);
  return product.batches * core::ceil_div(product.m, kGemmRows) *
         core::ceil_div(product.n, columns);
}

}  // namespace

int64_t gemm_panel_columns(core::DType dtype) {
  return kPanelBytes / static_cast<int64_t>(core::size_of(dtype));
}

device::ProductText print_gemm(std::span<const Product> products, const plan::RegisterTile& tile) {
  if (tile.threads > 0) return device::print_block_product(products, tile);
  device::ProductText out;
  int64_t before = 0;
  for (const Product& product : products) {
    Printer printer(product, tile);
    out.memory = printer.memory();  // the same of all
    if (products.size() == 1) return {out.memory, printer.run()};
    const int64_t units = units_of(product);
    out.text += fmt::format(
        "  {{\n  const m_i64 part_begin = begin > {0} ? begin - {0} : 0;\n"
        "  const m_i64 part_end = end < {1} ? end - {0} : {2};\n"
        "  if (part_begin < part_end) {{\n  const m_i64 begin = part_begin, end = part_end;\n"
        "{3}  }}\n  }}\n",
        before, before + units, units, printer.run());
    before += units;
  }
  return out;
}

int64_t gemm_units(std::span<const Product> products, const plan::RegisterTile& tile) {
  if (tile.threads > 0) return device::block_product_units(products, tile);
  int64_t units = 0;
  for (const Product& product : products) units += units_of(product);
  return units;
}

}  // namespace mithril::opencl

// Matrix products and convolutions in register tiles; convolutions gather their taps as panels.
#include <algorithm>

#include <fmt/format.h>

#include "backends/opencl/gemm_text.h"
#include "backends/opencl/kernel_families.h"
#include "plan/cost.h"
#include "reference/dims.h"
#include "select/kernel_dims.h"
#include "select/kernel_rows.h"

namespace mithril::opencl {
namespace {

using core::DType;
using select::KernelRequest;

plan::Step step_of(const KernelRequest& request, const GemmText& gemm) {
  plan::FunctionCall call;
  call.name = request.op.name;
  call.call = print_gemm(gemm);
  plan::Step step;
  step.units = gemm_units(gemm);
  step.grain = 1;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  const double flops = 2.0 * static_cast<double>(gemm.batches) * static_cast<double>(gemm.m) *
                       static_cast<double>(gemm.n) * static_cast<double>(gemm.k);
  step.work = {flops, plan::Work::Unit::kFlops};
  step.nanoseconds = flops / plan::kFlopsPerNanosecond;
  return step;
}

// ---------------------------------------------------------------- matrices

std::string begin_of(const char* name, const ref_matmul_dims& d, const int64_t* strides) {
  std::string text;
  int64_t below = 1;
  for (int64_t axis = d.batch_rank - 1; axis >= 0; below *= d.batch[axis--]) {
    if (strides[axis] == 0 || d.batch[axis] == 1) continue;
    text += fmt::format("{}batch / {} % {} * {}", text.empty() ? "" : " + ", below, d.batch[axis],
                        strides[axis]);
  }
  return fmt::format("const m_i64 {} = {};", name, text.empty() ? "0" : text);
}

// Columns of B side by side are copied, others are picked one by one.
std::string pack_matrix(const ref_matmul_dims& d, int64_t panel) {
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

std::string pack_transposed(const ref_matmul_dims& d, int64_t panel) {
  return fmt::format(
      R"(for (int l = 0; l < {2}; ++l) {{
    __global const REAL* const from = a1 + at_b + p * {0} + (j + l) * {1};
    for (int q = 0; q < depth; ++q) panel[q * {2} + l] = l < columns ? from[q * {0}] : 0;
  }})",
      d.b_row, d.b_col, panel);
}

// REAL as the type's name.
std::string typed(std::string text, DType dtype) {
  const char* const type = dtype == DType::kFloat64 ? "double" : "float";
  for (size_t at = 0; (at = text.find("REAL", at)) != std::string::npos;) text.replace(at, 4, type);
  return text;
}

core::Result<plan::Step> make_matmul(const KernelRequest& request) {
  const ref_matmul_dims d = select::with_rows_merged(select::matmul_dims(request));
  GemmText gemm;
  gemm.dtype = request.outputs[0].dtype;
  gemm.m = d.m;
  gemm.n = d.n;
  gemm.k = d.k;
  for (int64_t axis = 0; axis < d.batch_rank; ++axis) gemm.batches *= d.batch[axis];
  gemm.begins = begin_of("at_a", d, d.a_batch) + " " + begin_of("at_b", d, d.b_batch) + " " +
                begin_of("at_c", d, d.c_batch);
  gemm.left_row = fmt::format("i * {}", d.a_row);
  gemm.left_place = fmt::format("p * {}", d.a_col);
  gemm.left_is_affine = true;
  const int64_t panel = gemm_panel_columns(gemm.dtype);
  const bool is_transposed = d.b_col != 1 && d.b_row == 1;
  gemm.pack = typed(is_transposed ? pack_transposed(d, panel) : pack_matrix(d, panel), gemm.dtype);
  gemm.c_row = d.c_row;
  return step_of(request, gemm);
}

bool fits_matmul(const KernelRequest& request) {
  return request.inputs[0].shape.size() <= REF_MAX_RANK &&
         request.inputs[1].shape.size() <= REF_MAX_RANK && select::has_real_type(request);
}

// ---------------------------------------------------------------- convolutions

/// Planes whose elements are gathered: tap (c, i, j) of position (y, x) of the result is element
/// (y * row_step + i * tap_row + row, x * column_step + j * tap_column + column) of plane c.
struct Taps {
  const char* operand;
  int64_t h, w, kh, kw, width;  // of planes, of windows, of rows of the result
  int64_t row_step, column_step, tap_row, tap_column, row, column;
};

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

std::string begins(const std::string& a, const std::string& b, const std::string& c) {
  return fmt::format("const m_i64 at_a = {}, at_b = {}, at_c = {};", a, b, c);
}

bool has_elements(const ref_conv2d_dims& d) {
  const int64_t sizes[] = {d.batch, d.groups, d.c_in,  d.h_in, d.w_in,
                           d.c_out, d.h_out,  d.w_out, d.kh,   d.kw};
  return std::all_of(std::begin(sizes), std::end(sizes), [](int64_t size) { return size > 0; });
}

core::Result<plan::Step> make_conv2d(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dims(request);
  GemmText gemm;
  gemm.dtype = request.outputs[0].dtype;
  gemm.batches = d.batch * d.groups;
  gemm.m = d.c_out;
  gemm.k = d.c_in * d.kh * d.kw;
  gemm.n = gemm.c_row = d.h_out * d.w_out;
  gemm.left = "a1";
  gemm.left_row = fmt::format("i * {}", gemm.k);
  gemm.left_place = "p * 1";
  gemm.left_is_affine = true;
  gemm.begins = begins(fmt::format("batch % {} * {}", d.groups, gemm.m * gemm.k),
                       fmt::format("batch * {}", d.c_in * d.h_in * d.w_in),
                       fmt::format("batch * {}", gemm.m * gemm.n));
  const Taps taps{"a0",       d.h_in,     d.w_in,       d.kh,         d.kw,       d.w_out,
                  d.stride_h, d.stride_w, d.dilation_h, d.dilation_w, -d.pad_top, -d.pad_left};
  gemm.pack = typed(pack_taps(taps, gemm_panel_columns(gemm.dtype)), gemm.dtype);
  return step_of(request, gemm);
}

// Strides of 1 only: then every input position meets all taps.
core::Result<plan::Step> make_dx(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  const int64_t taps = d.kh * d.kw;
  GemmText gemm;
  gemm.dtype = request.outputs[0].dtype;
  gemm.batches = d.batch * d.groups;
  gemm.m = d.c_in;
  gemm.k = d.c_out * taps;
  gemm.n = gemm.c_row = d.h_in * d.w_in;
  gemm.left = "a1";
  gemm.left_row = fmt::format("i * {}", taps);
  gemm.left_place = fmt::format("p / {0} * {1} + p % {0}", taps, d.c_in * taps);
  gemm.begins = begins(fmt::format("batch % {} * {}", d.groups, d.c_out * d.c_in * taps),
                       fmt::format("batch * {}", d.c_out * d.h_out * d.w_out),
                       fmt::format("batch * {}", gemm.m * gemm.n));
  const Taps from{"a0", d.h_out, d.w_out,       d.kh,          d.kw,      d.w_in,
                  1,    1,       -d.dilation_h, -d.dilation_w, d.pad_top, d.pad_left};
  gemm.pack = typed(pack_taps(from, gemm_panel_columns(gemm.dtype)), gemm.dtype);
  return step_of(request, gemm);
}

core::Result<plan::Step> make_dw(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dw_dims(request);
  const int64_t plane = d.h_out * d.w_out, image = d.c_in * d.h_in * d.w_in;
  GemmText gemm;
  gemm.dtype = request.outputs[0].dtype;
  gemm.batches = d.groups;
  gemm.m = d.c_out;
  gemm.k = d.batch * plane;
  gemm.n = gemm.c_row = d.c_in * d.kh * d.kw;
  gemm.left = "a1";
  gemm.left_row = fmt::format("i * {}", plane);
  gemm.left_place = fmt::format("p / {0} * {1} + p % {0}", plane, d.groups * d.c_out * plane);
  gemm.begins = begins(fmt::format("batch * {}", d.c_out * plane), fmt::format("batch * {}", image),
                       fmt::format("batch * {}", gemm.m * gemm.n));
  const Taps from{"a0",       d.h_in,     d.w_in,       d.kh,         d.kw,       d.w_out,
                  d.stride_h, d.stride_w, d.dilation_h, d.dilation_w, -d.pad_top, -d.pad_left};
  gemm.pack = typed(pack_positions(from, d.groups * image, d.h_out, gemm_panel_columns(gemm.dtype)),
                    gemm.dtype);
  return step_of(request, gemm);
}

// Places of A are kept as ints.
constexpr int64_t kFarthest = INT32_MAX;

bool fits_conv2d(const KernelRequest& request) {
  return select::has_real_type(request) && has_elements(select::conv2d_dims(request));
}
bool fits_dx(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  return has_elements(d) && d.stride_h == 1 && d.stride_w == 1 &&
         d.c_out * d.c_in * d.kh * d.kw < kFarthest;
}
bool fits_dw(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dw_dims(request);
  return has_elements(d) && d.batch * d.groups * d.c_out * d.h_out * d.w_out < kFarthest;
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
constexpr select::Condition kMatmul(fits_matmul, "elements of float32 or float64, at most 16 axes");
constexpr select::Condition kConv2d(fits_conv2d, "elements of float32 or float64, and some");
constexpr select::Condition kDx(fits_dx, "elements of float32 or float64, and strides of 1");
constexpr select::Condition kDw(fits_dw, "elements of float32 or float64, and some");
const select::KernelDef kKernels[] = {
    {"matmul", "opencl.matmul", kCanonical, false, kMatmul, make_matmul},
    {"conv2d", "opencl.conv2d", kCanonical, true, kConv2d, make_conv2d},
    {"conv2d_dx", "opencl.conv2d_dx", kCanonical, true, kDx, make_dx},
    {"conv2d_dw", "opencl.conv2d_dw", kCanonical, true, kDw, make_dw},
};

}  // namespace

std::span<const select::KernelDef> product_kernels() { return kKernels; }

}  // namespace mithril::opencl

#include "backends/device/products.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/cost.h"
#include "reference/dims.h"
#include "select/kernel_dims.h"
#include "select/kernel_rows.h"

namespace mithril::device {
namespace {

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

}  // namespace

Product matmul_product(const KernelRequest& request) {
  const ref_matmul_dims d = select::with_rows_merged(select::matmul_dims(request));
  Product out;
  out.dtype = request.outputs[0].dtype;
  out.m = d.m;
  out.n = d.n;
  out.k = d.k;
  for (int64_t axis = 0; axis < d.batch_rank; ++axis) out.batches *= d.batch[axis];
  out.begins = begin_of("at_a", d, d.a_batch) + " " + begin_of("at_b", d, d.b_batch) + " " +
               begin_of("at_c", d, d.c_batch);
  out.left_row = fmt::format("i * {}", d.a_row);
  out.left_place = fmt::format("p * {}", d.a_col);
  out.left_is_affine = true;
  out.b_row = d.b_row;
  out.b_col = d.b_col;
  out.c_row = d.c_row;
  return out;
}

bool fits_matmul(const KernelRequest& request) {
  return request.inputs[0].shape.size() <= REF_MAX_RANK &&
         request.inputs[1].shape.size() <= REF_MAX_RANK && select::has_real_type(request);
}

// ---------------------------------------------------------------- convolutions

namespace {

std::string begins(const std::string& a, const std::string& b, const std::string& c) {
  return fmt::format("const m_i64 at_a = {}, at_b = {}, at_c = {};", a, b, c);
}

bool has_elements(const ref_conv2d_dims& d) {
  const int64_t sizes[] = {d.batch, d.groups, d.c_in,  d.h_in, d.w_in,
                           d.c_out, d.h_out,  d.w_out, d.kh,   d.kw};
  return std::all_of(std::begin(sizes), std::end(sizes), [](int64_t size) { return size > 0; });
}

}  // namespace

Product conv2d_product(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dims(request);
  Product out;
  out.dtype = request.outputs[0].dtype;
  out.batches = d.batch * d.groups;
  out.m = d.c_out;
  out.k = d.c_in * d.kh * d.kw;
  out.n = out.c_row = d.h_out * d.w_out;
  out.left = "a1";
  out.left_row = fmt::format("i * {}", out.k);
  out.left_place = "p * 1";
  out.left_is_affine = true;
  out.begins = begins(fmt::format("batch % {} * {}", d.groups, out.m * out.k),
                      fmt::format("batch * {}", d.c_in * d.h_in * d.w_in),
                      fmt::format("batch * {}", out.m * out.n));
  const Taps taps{"a0",       d.h_in,     d.w_in,       d.kh,         d.kw,       d.w_out,
                  d.stride_h, d.stride_w, d.dilation_h, d.dilation_w, -d.pad_top, -d.pad_left};
  out.right = Product::Right::kTaps;
  out.taps = taps;
  return out;
}

// Strides of 1 only: then every input position meets all taps.
Product conv2d_dx_product(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  const int64_t taps = d.kh * d.kw;
  Product out;
  out.dtype = request.outputs[0].dtype;
  out.batches = d.batch * d.groups;
  out.m = d.c_in;
  out.k = d.c_out * taps;
  out.n = out.c_row = d.h_in * d.w_in;
  out.left = "a1";
  out.left_row = fmt::format("i * {}", taps);
  out.left_place = fmt::format("p / {0} * {1} + p % {0}", taps, d.c_in * taps);
  out.begins = begins(fmt::format("batch % {} * {}", d.groups, d.c_out * d.c_in * taps),
                      fmt::format("batch * {}", d.c_out * d.h_out * d.w_out),
                      fmt::format("batch * {}", out.m * out.n));
  const Taps from{"a0", d.h_out, d.w_out,       d.kh,          d.kw,      d.w_in,
                  1,    1,       -d.dilation_h, -d.dilation_w, d.pad_top, d.pad_left};
  out.right = Product::Right::kTaps;
  out.taps = from;
  return out;
}

Product conv2d_dw_product(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dw_dims(request);
  const int64_t plane = d.h_out * d.w_out, image = d.c_in * d.h_in * d.w_in;
  Product out;
  out.dtype = request.outputs[0].dtype;
  out.batches = d.groups;
  out.m = d.c_out;
  out.k = d.batch * plane;
  out.n = out.c_row = d.c_in * d.kh * d.kw;
  out.left = "a1";
  out.left_row = fmt::format("i * {}", plane);
  out.left_place = fmt::format("p / {0} * {1} + p % {0}", plane, d.groups * d.c_out * plane);
  out.begins = begins(fmt::format("batch * {}", d.c_out * plane), fmt::format("batch * {}", image),
                      fmt::format("batch * {}", out.m * out.n));
  const Taps from{"a0",       d.h_in,     d.w_in,       d.kh,         d.kw,       d.w_out,
                  d.stride_h, d.stride_w, d.dilation_h, d.dilation_w, -d.pad_top, -d.pad_left};
  out.right = Product::Right::kPositions;
  out.taps = from;
  out.image = d.groups * image;
  out.height = d.h_out;
  return out;
}

// Places of A may be kept as ints.
constexpr int64_t kFarthest = INT32_MAX;

bool fits_conv2d(const KernelRequest& request) {
  return select::has_real_type(request) && has_elements(select::conv2d_dims(request));
}
bool fits_conv2d_dx(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  return has_elements(d) && d.stride_h == 1 && d.stride_w == 1 &&
         d.c_out * d.c_in * d.kh * d.kw < kFarthest;
}
bool fits_conv2d_dw(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dw_dims(request);
  return has_elements(d) && d.batch * d.groups * d.c_out * d.h_out * d.w_out < kFarthest;
}

plan::Step product_step(const KernelRequest& request, const Product& product, ProductText text) {
  plan::FunctionCall call;
  call.name = request.op.name;
  call.call = std::move(text.text);
  call.threads = text.threads;
  plan::Step step;
  step.units = text.units;
  step.grain = 1;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  const double flops = 2.0 * static_cast<double>(product.batches) * static_cast<double>(product.m) *
                       static_cast<double>(product.n) * static_cast<double>(product.k);
  step.work = {flops, plan::Work::Unit::kFlops};
  step.nanoseconds = flops / plan::kFlopsPerNanosecond;
  return step;
}

}  // namespace mithril::device

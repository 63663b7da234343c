#include "backends/device/products.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "plan/cost.h"
#include "reference/dims.h"
#include "select/kernel_dims.h"
#include "select/kernel_rows.h"
#include "tile/convert.h"

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
  const core::DType factors = request.inputs[0].dtype, result = request.outputs[0].dtype;
  out.dtype = core::widened(result);
  if (tile::is_half(factors)) out.widen = fmt::format("m_float_of_{}", core::short_name(factors));
  if (request.inputs.size() > 2) out.bias = "a2";
  if (tile::is_half(result)) out.round = fmt::format("m_{}_of_float", core::short_name(result));
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

namespace {

/// Along one axis: the taps that meet the positions phase, phase + stride …, and where they do.
struct Phase {
  int64_t positions = 0;                   // of the input
  int64_t first = 0, step = 1, count = 0;  // taps
  int64_t origin = 0, tap_step = 0;  // position y and tap number i meet y + i * tap_step + origin
};

Phase phase_of(int64_t phase, int64_t size, int64_t stride, int64_t pad, int64_t dilation,
               int64_t taps) {
  Phase out;
  out.positions = (size - phase + stride - 1) / stride;
  while (out.first < taps && (phase + pad - out.first * dilation) % stride != 0) ++out.first;
  out.step = stride / std::gcd(stride, dilation);
  out.count = out.first < taps ? (taps - 1 - out.first) / out.step + 1 : 0;
  if (out.count == 0) return out;
  out.origin = (phase + pad - out.first * dilation) / stride;
  out.tap_step = -(out.step * dilation / stride);
  return out;
}

Product phase_product(const KernelRequest& request, int64_t row, int64_t column) {
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  const int64_t all = d.kh * d.kw;
  const Phase h = phase_of(row, d.h_in, d.stride_h, d.pad_top, d.dilation_h, d.kh);
  const Phase w = phase_of(column, d.w_in, d.stride_w, d.pad_left, d.dilation_w, d.kw);
  const int64_t taps = std::max<int64_t>(h.count * w.count, 1),
                across = std::max<int64_t>(w.count, 1);
  Product out;
  out.dtype = request.outputs[0].dtype;
  out.batches = d.batch * d.groups;
  out.m = d.c_in;
  out.k = d.c_out * h.count * w.count;
  out.n = h.positions * w.positions;
  out.c_row = d.h_in * d.w_in;
  if (d.stride_h != 1 || d.stride_w != 1) {
    out.c_column = fmt::format("({} + column / {} * {}) * {} + {} + column % {} * {}", row,
                               w.positions, d.stride_h, d.w_in, column, w.positions, d.stride_w);
  }
  out.left = "a1";
  out.left_row = fmt::format("i * {}", all);
  out.left_place =
      fmt::format("p / {} * {} + ({} + p % {} / {} * {}) * {} + {} + p % {} * {}", taps,
                  d.c_in * all, h.first, taps, across, h.step, d.kw, w.first, across, w.step);
  out.begins = begins(fmt::format("batch % {} * {}", d.groups, d.c_out * d.c_in * all),
                      fmt::format("batch * {}", d.c_out * d.h_out * d.w_out),
                      fmt::format("batch * {}", out.m * out.c_row));
  out.right = Product::Right::kTaps;
  out.taps = {"a0",       d.h_out,     d.w_out,  std::max<int64_t>(h.count, 1),
              across,     w.positions, 1,        1,
              h.tap_step, w.tap_step,  h.origin, w.origin};
  return out;
}

}  // namespace

std::vector<Product> conv2d_dx_products(const KernelRequest& request) {
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  std::vector<Product> out;
  for (int64_t row = 0; row < std::min(d.stride_h, d.h_in); ++row) {
    for (int64_t column = 0; column < std::min(d.stride_w, d.w_in); ++column) {
      out.push_back(phase_product(request, row, column));
    }
  }
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
constexpr int64_t kLargestStride = 4;  // each phase has a text of its own

bool fits_conv2d(const KernelRequest& request) {
  return select::has_real_type(request) && has_elements(select::conv2d_dims(request));
}
bool fits_conv2d_dx(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  return has_elements(d) && d.stride_h <= kLargestStride && d.stride_w <= kLargestStride &&
         d.c_out * d.c_in * d.kh * d.kw < kFarthest;
}
bool fits_conv2d_dx_side_by_side(const KernelRequest& request) {
  if (!fits_conv2d_dx(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dx_dims(request);
  return d.stride_h == 1 && d.stride_w == 1;
}
bool fits_conv2d_dw(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  const ref_conv2d_dims d = select::conv2d_dw_dims(request);
  return has_elements(d) && d.batch * d.groups * d.c_out * d.h_out * d.w_out < kFarthest;
}

namespace {

double flops_of(const Product& product) {
  return 2.0 * static_cast<double>(product.batches) * static_cast<double>(product.m) *
         static_cast<double>(product.n) * static_cast<double>(product.k);
}

}  // namespace

std::shared_ptr<const plan::Finish> finish_of(const KernelRequest& request) {
  const select::Epilogue& epilogue = *request.epilogue;
  const auto result = static_cast<size_t>(
      std::count_if(request.inputs.begin(), request.inputs.end(),
                    [](const select::Operand& input) { return input.present(); }));
  auto out = std::make_shared<plan::Finish>();
  out->loop.program = epilogue.program;
  for (tile::Instruction& i : out->loop.program.code) {  // a stretch of elements has no rows
    if (i.level == tile::Level::kRow) i.level = tile::Level::kLane;
  }
  out->loop.kept = epilogue.operands[epilogue.result].shape;
  size_t next = result + 1;
  for (size_t i = 0; i < epilogue.operands.size(); ++i) {
    out->loop.kept_strides.push_back(epilogue.operands[i].strides);
    out->loop.reduced_strides.emplace_back();
    out->operands.push_back(i == epilogue.result ? result : next++);
  }
  return out;
}

plan::Step product_step(const KernelRequest& request, std::vector<Product> products,
                        const ProductLanguage& language) {
  plan::Step step;
  double flops = 0;
  for (Product& product : products) {
    product.has_epilogue = request.epilogue != nullptr;
    flops += flops_of(product);
  }
  step.units = language.units(products, language.tile);
  plan::FunctionCall call;
  call.name = request.op.name;
  call.in_tile = [products = std::move(products), language](const plan::RegisterTile& tile) {
    ProductText text = language.print(products, tile);
    return plan::FunctionCall::Phase{text.memory + text.text, language.units(products, tile),
                                     tile.threads, std::move(text.shared)};
  };
  if (request.epilogue != nullptr) call.finish = finish_of(request);
  step.grain = 1;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  step.work = {flops, plan::Work::Unit::kFlops};
  step.nanoseconds = flops / plan::kFlopsPerNanosecond;
  return step;
}

}  // namespace mithril::device

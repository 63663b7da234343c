#include "backends/device/library_products.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "select/kernel_dims.h"
#include "select/kernel_rows.h"
#include "tile/convert.h"

namespace mithril::device {
namespace {

using plan::LibraryConv2d;
using plan::LibraryMatmul;

constexpr int64_t kMostBatches = 65535;  // of a launch on a GPU

bool is_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return lies_by_rows(rows, columns, row, column) || lies_by_rows(columns, rows, column, row);
}

// Axes of batches as one: of each operand they are a stride apart.
bool merge_batches(const ref_matmul_dims& d, LibraryMatmul& out) {
  const int64_t* const strides[] = {d.a_batch, d.b_batch, d.c_batch};
  int64_t* const to[] = {&out.a_batch, &out.b_batch, &out.c_batch};
  bool is_first = true;
  for (int64_t axis = d.batch_rank - 1; axis >= 0; --axis) {
    if (d.batch[axis] == 1) continue;
    for (size_t i = 0; i < std::size(to); ++i) {
      if (is_first) {
        *to[i] = strides[i][axis];
      } else if (strides[i][axis] != *to[i] * out.batches) {
        return false;
      }
    }
    is_first = false;
    out.batches *= d.batch[axis];
  }
  return out.a_batch >= 0 && out.b_batch >= 0;
}

// The inputs that a program adds up and stores, where that is all that it does.
std::vector<size_t> summands(const tile::Program& program, core::DType dtype) {
  std::vector<size_t> out;
  std::vector<int> uses(program.code.size(), 0);
  int stores = 0;
  for (const tile::Instruction& i : program.code) {
    if (i.dtype != dtype) return {};
    for (const tile::RegId reg : i.operands) {
      if (reg != tile::kNoReg) ++uses[static_cast<size_t>(reg)];
    }
    switch (i.opcode) {
      case tile::Opcode::kLoad: out.push_back(i.index); break;
      case tile::Opcode::kAdd: break;
      case tile::Opcode::kStore: ++stores; break;
      default: return {};
    }
  }
  // With one store, which nobody reads, all sums but the last one are read by another.
  const auto once = std::count(uses.begin(), uses.end(), 1);
  const bool is_sum = stores == 1 && once + 1 == static_cast<int64_t>(uses.size());
  return is_sum ? out : std::vector<size_t>();
}

// Tells whether the operand is a row that is added to each row of a result with `columns`.
bool repeats_row(const select::Operand& bias, int64_t columns) {
  const size_t last = bias.shape.size() - 1;
  if (bias.shape[last] != columns) return false;  // of a vector's product no row is an axis
  for (size_t axis = 0; axis < last; ++axis) {
    if (bias.shape[axis] != 1 && bias.strides[axis] != 0) return false;
  }
  return bias.shape[last] == 1 || bias.strides[last] == 1;
}

bool lies_alike(const select::Operand& one, const select::Operand& other) {
  if (one.shape != other.shape) return false;
  for (size_t axis = 0; axis < one.shape.size(); ++axis) {
    if (one.shape[axis] != 1 && one.strides[axis] != other.strides[axis]) return false;
  }
  return true;
}

// Lets the library add a row, or a matrix, or both where that is all of the epilogue, in place.
void finish_by_sums(const select::Epilogue& epilogue, LibraryMatmul& product) {
  const select::Operand& result = epilogue.operands[epilogue.result];
  const select::Operand& output = epilogue.operands.back();
  const bool is_in_place =
      result.use.buffer == output.use.buffer && result.use.offset == output.use.offset;
  std::vector<size_t> inputs = summands(epilogue.program, product.result);
  if (!is_in_place || std::erase(inputs, epilogue.result) != 1) return;
  LibraryMatmul sum = product;
  for (const size_t input : inputs) {
    const select::Operand& summand = epilogue.operands[input];
    const size_t operand = product.c + input + (input < epilogue.result ? 1 : 0);
    if (!sum.adds_bias && repeats_row(summand, product.n)) {
      sum.adds_bias = true;
      sum.bias = operand;
    } else if (!sum.adds_matrix && lies_alike(summand, result)) {
      sum.adds_matrix = true;
      sum.addend = operand;
    } else {
      return;
    }
  }
  product = sum;
  product.finishes = true;
}

bool is_row(const select::Operand& bias) {
  return bias.shape.size() == 1 && (bias.shape[0] == 1 || bias.strides[0] == 1);
}

}  // namespace

std::optional<LibraryMatmul> library_matmul(const KernelRequest& request) {
  const core::DType dtype = request.inputs[0].dtype, result = request.outputs[0].dtype;
  const auto is_one = [&](const select::Operand& operand) {
    return operand.dtype == dtype && operand.shape.size() <= REF_MAX_RANK;
  };
  const bool is_float = select::is_real(dtype) || tile::is_half(dtype);
  const bool gives = result == dtype || result == core::widened(dtype);
  const bool has_bias = request.inputs.size() > 2;
  if (!is_float || !gives || !is_one(request.inputs[0]) || !is_one(request.inputs[1]) ||
      (has_bias && !is_row(request.inputs[2]))) {
    return {};
  }
  const ref_matmul_dims d = select::with_rows_merged(select::matmul_dims(request));
  LibraryMatmul out;
  out.dtype = dtype;
  out.result = result;
  if (has_bias) {
    out.adds_bias = true;
    out.bias = 2;
    out.c = 3;
  }
  out.m = d.m;
  out.n = d.n;
  out.k = d.k;
  out.a_row = d.a_row;
  out.a_col = d.a_col;
  out.b_row = d.b_row;
  out.b_col = d.b_col;
  out.c_row = d.c_row;
  const int64_t sizes[] = {d.m, d.n, d.k};
  const bool is_usual = std::all_of(std::begin(sizes), std::end(sizes),
                                    [](int64_t size) { return size > 0 && size <= INT32_MAX; });
  const bool can = is_usual && merge_batches(d, out) && out.batches > 0 &&
                   out.batches <= kMostBatches && is_matrix(out.m, out.k, out.a_row, out.a_col) &&
                   is_matrix(out.k, out.n, out.b_row, out.b_col);
  return can ? std::optional(out) : std::nullopt;
}

// ---------------------------------------------------------------- convolutions

namespace {

using Makes = LibraryConv2d::Makes;

Makes made_by(const KernelRequest& request) {
  if (request.op.name == "conv2d") return Makes::kOutput;
  return request.op.name == "conv2d_dx" ? Makes::kInput : Makes::kWeights;
}

ref_conv2d_dims dims_of(const KernelRequest& request) {
  switch (made_by(request)) {
    case Makes::kOutput: return select::conv2d_dims(request);
    case Makes::kInput: return select::conv2d_dx_dims(request);
    case Makes::kWeights: return select::conv2d_dw_dims(request);
  }
  return {};
}

// Tells whether kernels do the same, of elements of float32 where these are halves.
bool fits_kernel(const KernelRequest& request) {
  std::vector<select::Operand> outputs(request.outputs.begin(), request.outputs.end());
  outputs[0].dtype = core::widened(outputs[0].dtype);
  KernelRequest wide = request;
  wide.outputs = outputs;
  switch (made_by(request)) {
    case Makes::kOutput: return fits_conv2d(wide);
    case Makes::kInput: return fits_conv2d_dx(wide);
    case Makes::kWeights: return fits_conv2d_dw(wide);
  }
  return false;
}

// Tells whether windows that begin `pad` before an image, and end as far behind it at most, are so
// many.
bool is_symmetric(int64_t size, int64_t pad, int64_t taps, int64_t dilation, int64_t stride,
                  int64_t windows) {
  const int64_t room = size + 2 * pad - ((taps - 1) * dilation + 1);
  return pad >= 0 && room >= 0 && room / stride + 1 == windows;
}

// Libraries count elements in 32 bits.
bool has_countable_operands(const KernelRequest& request) {
  const auto is_countable = [](const select::Operand& operand) {
    double count = 1;
    for (const int64_t size : operand.shape) count *= static_cast<double>(size);
    return count > 0 && count <= INT32_MAX;
  };
  return is_countable(request.inputs[0]) && is_countable(request.inputs[1]) &&
         is_countable(request.outputs[0]);
}

// Those of windows are attributes, which no operand bounds, and libraries multiply them in 32 bits.
bool has_usual_windows(const ref_conv2d_dims& d) {
  const int64_t numbers[] = {d.stride_h,   d.stride_w, d.dilation_h,
                             d.dilation_w, d.pad_top,  d.pad_left};
  return std::all_of(std::begin(numbers), std::end(numbers),
                     [](int64_t number) { return number <= INT16_MAX; });
}

}  // namespace

std::optional<LibraryConv2d> library_conv2d(const KernelRequest& request) {
  const core::DType dtype = request.outputs[0].dtype;
  const bool is_one = request.inputs[0].dtype == dtype && request.inputs[1].dtype == dtype;
  if (!is_one || !has_countable_operands(request) || !fits_kernel(request)) return {};
  const ref_conv2d_dims d = dims_of(request);
  const bool can = has_usual_windows(d) &&
                   is_symmetric(d.h_in, d.pad_top, d.kh, d.dilation_h, d.stride_h, d.h_out) &&
                   is_symmetric(d.w_in, d.pad_left, d.kw, d.dilation_w, d.stride_w, d.w_out);
  if (!can) return {};
  LibraryConv2d out;
  out.makes = made_by(request);
  out.dtype = dtype;
  out.batch = d.batch;
  out.groups = d.groups;
  out.c_in = d.c_in;
  out.h_in = d.h_in;
  out.w_in = d.w_in;
  out.c_out = d.c_out;
  out.h_out = d.h_out;
  out.w_out = d.w_out;
  out.kh = d.kh;
  out.kw = d.kw;
  out.stride_h = d.stride_h;
  out.stride_w = d.stride_w;
  out.pad_h = d.pad_top;
  out.pad_w = d.pad_left;
  out.dilation_h = d.dilation_h;
  out.dilation_w = d.dilation_w;
  return out;
}

// ---------------------------------------------------------------- steps

namespace {

plan::Step step_by_library(const KernelRequest& request, std::vector<Product> products,
                           plan::LibraryProduct product, const ProductLanguage& language) {
  plan::Step step = product_step(request, std::move(products), language);
  auto call = std::get<plan::FunctionCall>(*step.call);
  const bool is_convolution = std::holds_alternative<LibraryConv2d>(product);
  if (is_convolution && tile::is_half(plan::dtype_of(product))) call.in_tile = nullptr;
  call.product = std::make_shared<const plan::LibraryProduct>(product);
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}

}  // namespace

plan::Step library_step(const KernelRequest& request, LibraryMatmul product,
                        const ProductLanguage& language) {
  if (request.epilogue != nullptr && !product.adds_bias && !tile::is_half(product.result)) {
    finish_by_sums(*request.epilogue, product);
  }
  return step_by_library(request, {matmul_product(request)}, product, language);
}

plan::Step library_step(const KernelRequest& request, const LibraryConv2d& product,
                        const ProductLanguage& language) {
  switch (product.makes) {
    case Makes::kOutput:
      return step_by_library(request, {conv2d_product(request)}, product, language);
    case Makes::kInput:
      return step_by_library(request, conv2d_dx_products(request), product, language);
    case Makes::kWeights: break;
  }
  return step_by_library(request, {conv2d_dw_product(request)}, product, language);
}

}  // namespace mithril::device

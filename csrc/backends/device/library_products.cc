#include "backends/device/library_products.h"

#include <algorithm>
#include <utility>

#include "select/kernel_dims.h"
#include "select/kernel_rows.h"
#include "tile/convert.h"

namespace mithril::device {
namespace {

using plan::LibraryProduct;

constexpr int64_t kMostBatches = 65535;  // of a launch on a GPU

bool is_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return lies_by_rows(rows, columns, row, column) || lies_by_rows(columns, rows, column, row);
}

// Axes of batches as one: of each operand they are a stride apart.
bool merge_batches(const ref_matmul_dims& d, LibraryProduct& out) {
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

// Tells whether all of the epilogue is that a row is added to each row of the result, in place.
bool adds_bias(const select::Epilogue& epilogue, const LibraryProduct& product) {
  const core::DType dtype = product.dtype;
  const auto& code = epilogue.program.code;
  const auto is = [&](size_t at, tile::Opcode opcode) {
    return code[at].opcode == opcode && code[at].dtype == dtype;
  };
  if (code.size() != 4 || !is(0, tile::Opcode::kLoad) || !is(1, tile::Opcode::kLoad) ||
      !is(2, tile::Opcode::kAdd) || !is(3, tile::Opcode::kStore) ||
      code[2].operands[0] == code[2].operands[1]) {
    return false;
  }
  const select::Operand& result = epilogue.operands[epilogue.result];
  const select::Operand& bias = epilogue.operands[1 - epilogue.result];
  const select::Operand& output = epilogue.operands[2];
  const bool is_in_place =
      result.use.buffer == output.use.buffer && result.use.offset == output.use.offset;
  const size_t last = bias.shape.size() - 1;
  if (bias.shape[last] != product.n) return false;  // of a vector's product no row is an axis
  for (size_t axis = 0; axis < last; ++axis) {
    if (bias.shape[axis] != 1 && bias.strides[axis] != 0) return false;
  }
  return is_in_place && (bias.shape[last] == 1 || bias.strides[last] == 1);
}

}  // namespace

std::optional<LibraryProduct> library_product(const select::KernelRequest& request) {
  const core::DType dtype = request.outputs[0].dtype;
  const auto is_one = [&](const select::Operand& operand) {
    return operand.dtype == dtype && operand.shape.size() <= REF_MAX_RANK;
  };
  const bool is_float = select::has_real_type(request) || tile::is_half(dtype);
  if (!is_float || request.exact_linalg || !is_one(request.inputs[0]) || !is_one(request.inputs[1]))
    return {};
  const ref_matmul_dims d = select::with_rows_merged(select::matmul_dims(request));
  LibraryProduct out;
  out.dtype = dtype;
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

plan::Step library_step(const select::KernelRequest& request, LibraryProduct product,
                        const ProductLanguage& language) {
  plan::Step step = product_step(request, {matmul_product(request)}, language);
  auto call = std::get<plan::FunctionCall>(*step.call);
  if (tile::is_half(product.dtype)) {
    call.in_tile = nullptr;  // kernels multiply float32, to which such nodes are widened
  } else {
    product.adds_bias = request.epilogue != nullptr && adds_bias(*request.epilogue, product);
  }
  call.product = std::make_shared<const LibraryProduct>(product);
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}

}  // namespace mithril::device

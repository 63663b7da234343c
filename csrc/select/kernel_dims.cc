#include "select/kernel_dims.h"

#include <algorithm>
#include <span>

#include "core/checked.h"

namespace mithril::select {
namespace {

// Sizes and strides of one operand as [batch…, rows, columns]; rank 1 gets the missing axis.
struct Matrix {
  std::vector<int64_t> shape, strides;
};

Matrix as_matrix(const Operand& operand, bool left) {
  Matrix out{operand.shape, operand.strides};
  if (out.shape.size() != 1) return out;
  const auto at = left ? out.shape.begin() : out.shape.end();
  const auto stride_at = left ? out.strides.begin() : out.strides.end();
  out.shape.insert(at, 1);
  out.strides.insert(stride_at, 0);
  return out;
}

// Batch strides of `matrix` along the result's batch axes.
void batch_strides(const Matrix& matrix, int64_t rank, int64_t* out) {
  const auto own = static_cast<int64_t>(matrix.shape.size()) - 2;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t axis = i - (rank - own);
    const bool repeats = axis < 0 || matrix.shape[static_cast<size_t>(axis)] == 1;
    out[i] = repeats ? 0 : matrix.strides[static_cast<size_t>(axis)];
  }
}

int64_t padding_before(const KernelRequest& request, size_t axis) {
  return request.node.attrs.find("padding")->items()[axis].items()[0].as_int();
}

// x [n, c, h, w], w [o, c / groups, kh, kw], y [n, o, h', w'].
ref_conv2d_dims conv_dims(const KernelRequest& request, const Operand& x, const Operand& w,
                          const Operand& y) {
  const int64_t groups = request.node.attrs.find("groups")->as_int();
  ref_conv2d_dims d{};
  d.batch = x.shape[0];
  d.groups = groups;
  d.c_in = w.shape[1];
  d.h_in = x.shape[2];
  d.w_in = x.shape[3];
  d.c_out = w.shape[0] / groups;
  d.h_out = y.shape[2];
  d.w_out = y.shape[3];
  d.kh = w.shape[2];
  d.kw = w.shape[3];
  d.stride_h = item(request, "stride", 0);
  d.stride_w = item(request, "stride", 1);
  d.pad_top = padding_before(request, 0);
  d.pad_left = padding_before(request, 1);
  d.dilation_h = item(request, "dilation", 0);
  d.dilation_w = item(request, "dilation", 1);
  return d;
}

}  // namespace

bool flag(const KernelRequest& request, const char* name) {
  const core::HostValue* value = request.node.attrs.find(name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

int64_t item(const KernelRequest& request, const char* attr, size_t axis) {
  return request.node.attrs.find(attr)->items()[axis].as_int();
}

ref_matmul_dims matmul_dims(const KernelRequest& request) {
  const Matrix a = as_matrix(request.inputs[0], true);
  const Matrix b = as_matrix(request.inputs[1], false);
  const size_t ar = a.shape.size();
  const size_t br = b.shape.size();
  ref_matmul_dims dims{};
  dims.m = a.shape[ar - 2];
  dims.k = a.shape[ar - 1];
  dims.n = b.shape[br - 1];
  dims.a_row = a.strides[ar - 2];
  dims.a_col = a.strides[ar - 1];
  dims.b_row = b.strides[br - 2];
  dims.b_col = b.strides[br - 1];
  dims.c_row = dims.n;
  dims.c_col = 1;
  dims.batch_rank = static_cast<int64_t>(std::max(ar, br)) - 2;
  int64_t stride = dims.m * dims.n;
  for (int64_t i = dims.batch_rank - 1; i >= 0; --i) {
    const auto size_of = [&](const Matrix& matrix) {
      const int64_t axis = i - (dims.batch_rank - (static_cast<int64_t>(matrix.shape.size()) - 2));
      return axis < 0 ? 1 : matrix.shape[static_cast<size_t>(axis)];
    };
    const int64_t left = size_of(a);
    dims.batch[i] = left == 1 ? size_of(b) : left;
    dims.c_batch[i] = stride;
    stride *= dims.batch[i];
  }
  batch_strides(a, dims.batch_rank, dims.a_batch);
  batch_strides(b, dims.batch_rank, dims.b_batch);
  return dims;
}

ref_matmul_dims with_rows_merged(ref_matmul_dims d) {
  while (d.batch_rank > 0) {
    const int64_t last = d.batch_rank - 1;
    const bool continues = d.b_batch[last] == 0 && d.a_batch[last] == d.m * d.a_row &&
                           d.c_batch[last] == d.m * d.c_row;
    if (!continues) break;
    d.m *= d.batch[last];
    --d.batch_rank;
  }
  return d;
}

ref_conv2d_dims conv2d_dims(const KernelRequest& request) {
  return conv_dims(request, request.inputs[0], request.inputs[1], request.outputs[0]);
}
ref_conv2d_dims conv2d_dx_dims(const KernelRequest& request) {
  return conv_dims(request, request.outputs[0], request.inputs[1], request.inputs[0]);
}
ref_conv2d_dims conv2d_dw_dims(const KernelRequest& request) {
  return conv_dims(request, request.inputs[0], request.outputs[0], request.inputs[1]);
}

ref_pool2d_dims pool2d_dims(const KernelRequest& request, const Operand& x, const Operand& y) {
  const size_t rank = x.shape.size();
  ref_pool2d_dims d{};
  d.planes = 1;
  for (size_t i = 0; i + 2 < rank; ++i) d.planes *= x.shape[i];
  d.h_in = x.shape[rank - 2];
  d.w_in = x.shape[rank - 1];
  d.h_out = y.shape[rank - 2];
  d.w_out = y.shape[rank - 1];
  d.kh = item(request, "kernel_size", 0);
  d.kw = item(request, "kernel_size", 1);
  d.stride_h = item(request, "stride", 0);
  d.stride_w = item(request, "stride", 1);
  d.pad_top = padding_before(request, 0);
  d.pad_left = padding_before(request, 1);
  d.dilation_h = item(request, "dilation", 0);
  d.dilation_w = item(request, "dilation", 1);
  return d;
}

ref_gather_dims gather_dims(const std::vector<int64_t>& table,
                            const std::vector<int64_t>& indices) {
  const int64_t inner = core::product(std::span(table).subspan(1));
  return {1, table[0], inner, core::product(indices), -table[0]};
}

ref_axis_dims axis_dims(const KernelRequest& request, const char* flag_name) {
  const std::vector<int64_t>& shape = request.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t at = request.node.attrs.find("axis")->as_int();
  if (at < 0) at += rank;
  ref_axis_dims out = {1, shape[static_cast<size_t>(at)], 1, flag(request, flag_name)};
  for (int64_t i = 0; i < rank; ++i) {
    if (i < at) out.outer *= shape[static_cast<size_t>(i)];
    if (i > at) out.inner *= shape[static_cast<size_t>(i)];
  }
  return out;
}

ref_linalg_dims linalg_dims(const KernelRequest& request) {
  const std::vector<int64_t>& shape = request.inputs[0].shape;
  const size_t rank = shape.size();
  ref_linalg_dims dims{};
  dims.batch = 1;
  for (size_t i = 0; i + 2 < rank; ++i) dims.batch *= shape[i];
  dims.n = shape[rank - 1];
  dims.k = request.inputs.size() > 1 ? request.inputs[1].shape[rank - 1] : 1;
  dims.lower = flag(request, "lower");
  dims.transposed = flag(request, "transposed");
  return dims;
}

ref_linalg_dims factor_dims(const KernelRequest& request) {
  const std::vector<int64_t>& shape = request.inputs[0].shape;
  ref_linalg_dims dims = linalg_dims(request);
  dims.n = shape[shape.size() - 2];
  dims.k = shape.back();
  return dims;
}

}  // namespace mithril::select

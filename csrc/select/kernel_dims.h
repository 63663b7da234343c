// Structured ops in the reference's terms: the dims that its functions take, of a node.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/dims.h"
#include "select/kernel_def.h"

namespace mithril::select {

/// Tells whether a node has a true attribute of that name.
bool flag(const KernelRequest& request, const char* name);
/// Number `axis` of an attribute with one for each axis.
int64_t item(const KernelRequest& request, const char* attr, size_t axis);

/// Operands as matrices, strided, with the axes before as batches that are broadcast.
ref_matmul_dims matmul_dims(const KernelRequest& request);
/// Makes rows of batches of a that continue its rows, under one b.
ref_matmul_dims with_rows_merged(ref_matmul_dims d);

/// Reads the dims of a convolution, and of its gradients with respect to input and weights.
ref_conv2d_dims conv2d_dims(const KernelRequest& request);
ref_conv2d_dims conv2d_dx_dims(const KernelRequest& request);
ref_conv2d_dims conv2d_dw_dims(const KernelRequest& request);

/// `x` are the windows' elements, `y` has an element for each window.
ref_pool2d_dims pool2d_dims(const KernelRequest& request, const Operand& x, const Operand& y);

/// Rows of a table by indices that may count from its end.
ref_gather_dims gather_dims(const std::vector<int64_t>& table, const std::vector<int64_t>& indices);

/// The first operand as [outer, n, inner] around the node's axis; `flag` names the attribute that
/// turns the direction.
ref_axis_dims axis_dims(const KernelRequest& request, const char* flag);

/// Matrices of the first operand; k: columns of the second.
ref_linalg_dims linalg_dims(const KernelRequest& request);
/// Matrices of n rows and k columns.
ref_linalg_dims factor_dims(const KernelRequest& request);

}  // namespace mithril::select

// Convolution as matrix products, bit-equal to the reference kernels.
#pragma once
#include <cstddef>

#include "core/dtype.h"
#include "core/status.h"
#include "plan/steps.h"
#include "reference/reference.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// Tells whether there is anything to multiply; else the reference kernels do it.
bool fits_convolution(const ref_conv2d_dims& dims);

/// Steps over float32 or float64 with operands as those of ref_conv2d, ref_conv2d_dx and
/// ref_conv2d_dw. `constant`: the weights, if they are constant, or null; `epilogue`: of the
/// result, or null.
core::Result<plan::Step> make_convolution(const ref_conv2d_dims& dims, core::DType dtype,
                                          int threads, const std::byte* constant,
                                          const select::Epilogue* epilogue);
core::Result<plan::Step> make_input_gradient(const ref_conv2d_dims& dims, core::DType dtype,
                                             int threads);
core::Result<plan::Step> make_weight_gradient(const ref_conv2d_dims& dims, core::DType dtype,
                                              int threads);

}  // namespace mithril::cpu

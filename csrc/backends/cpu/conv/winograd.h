// Convolution of 3x3 windows by tiles of 4x4 results, a quarter of the multiplications, or of 2x2,
// four in nine, where there are few tiles and reading filters would take longest. Sums are taken in
// another order than reference/ has (order class: other; docs/numerics.md says how far results may
// lie apart), and do not depend on units or threads.
#pragma once
#include <cstdint>

#include "core/status.h"
#include "plan/steps.h"
#include "reference/reference.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// The convolution that is computed: for the gradient of the input the one of cotangents with
/// turned filters.
struct WinogradDims {
  int64_t images, channels, h, w;
  int64_t filters, h_out, w_out;
  int64_t pad_top, pad_left;
  bool turned;  // filter f of channel c is w[c][f], read backwards; else w[f][c]
};

/// Give the sizes of a convolution, or of its input's gradient; steps, dilations and groups must
/// be 1.
WinogradDims forward_dims(const ref_conv2d_dims& d);
WinogradDims input_gradient_dims(const ref_conv2d_dims& d);

/// The tile that is expected to be quickest, 4 or 2; 0 where a product of gathered taps is, or
/// there are no tiles here. `constant`: the filters are, so that they are transformed once.
int64_t winograd_tile(const WinogradDims& dims, bool constant);

/// float32; operands x, w and y. `filters` are the constant w, or null: transformed in each run.
/// `epilogue`: of the result, or null.
core::Result<plan::Step> make_winograd(const WinogradDims& dims, int64_t tile, int threads,
                                       const float* filters, const select::Epilogue* epilogue);

}  // namespace mithril::cpu

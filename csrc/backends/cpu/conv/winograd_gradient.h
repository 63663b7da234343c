// The gradient of 3x3 filters by tiles of 4x4 cotangents, a quarter of the multiplications: the
// transposed algorithm of winograd.h. Sums are taken in another order than reference/ has (order
// class: other), and do not depend on units or threads.
#pragma once
#include "core/status.h"
#include "plan/steps.h"
#include "reference/reference.h"

namespace mithril::cpu {

/// Tells whether tiles are expected to be quicker than products of gathered taps; windows are 3x3,
/// and steps, dilations and groups 1.
bool prefers_winograd_gradient(const ref_conv2d_dims& d);

/// float32; operands x, dy and dw.
core::Result<plan::Step> make_winograd_gradient(const ref_conv2d_dims& d, int threads);

}  // namespace mithril::cpu

// Products of widened halves as products of the halves, where a kernel multiplies them as they lie.
#pragma once
#include "core/status.h"
#include "ir/graph.h"
#include "passes/legalize_dtypes.h"

namespace mithril::passes {

/// Before: %0 = cast(%w, dtype=f32)   %1 = swapaxes(%0, axis1=0, axis2=1)
///         %2 = cast(%x, dtype=f32)   %3 = matmul(%2, %1) : f32[8, 4]
/// After:  %0 = swapaxes(%w, axis1=0, axis2=1)   %1 = widening_matmul(%x, %0) : f32[8, 4]
/// biased_matmul(%x, %0, %b) : f16[8, 4] is the whole of it where all that follows is that a half
/// is added to each row and the sum rounded to that type. A product of two halves is exact in
/// float32, so both add up the same numbers. Between cast and product may be ops that show the
/// elements in another shape or order; both operands are halves of one type, and not both are
/// constants, which are multiplied once. Only where `how` says that a kernel takes the product as
/// it is. Casts and shapes that somebody else reads stay for those. Sizes are known.
core::Result<ir::Graph> multiply_halves(const ir::Graph& graph, const SupportQuery& how);

}  // namespace mithril::passes

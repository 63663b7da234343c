// Gives every value a concrete dtype.
#pragma once
#include <span>
#include <utility>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Before: graph m(%x: float[b, 4], %n: int[b]) {   %0 = multiply(%x, right=2.0) : float[b, 4]
///           %1 = add(%0, %n) : float[b, 4]
/// After:  graph m<f32, i64>(%x: f32[b, 4], %n: i64[b]) {   %0 = constant(value=2.0, dtype=f32)
///           %1 = multiply(%x, %0) : f32[b, 4]   %2 = cast(%n, dtype=f32)
///           %3 = add(%1, %2) : f32[b, 4]
/// The promotion table is core::promote; Python scalars are weak. Idempotent. Without
/// `promote_mixed` operands of several dtypes are an error. `widths` names inputs that have another
/// dtype than the default of their kind.
core::Result<ir::Graph> assign_dtypes(
    const ir::Graph& graph, core::DType default_float, core::DType default_int,
    bool promote_mixed = true, std::span<const std::pair<ir::ValueId, core::DType>> widths = {});

}  // namespace mithril::passes

// Casts around kernels whose operands are narrower than what kernels compute in.
#pragma once
#include <functional>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"

namespace mithril::passes {

using SupportQuery = std::function<ir::Support(const ir::Graph&, const ir::Node&)>;

/// Before: %1 = matmul(%a, %b) : f16[2, 2]
/// After:  %0 = cast(%a, dtype=f32)   %1 = cast(%b, dtype=f32)   %2 = matmul(%0, %1)
///         %3 = cast(%2, dtype=f16)
/// Storage stays narrow; integers wrap in the cast.
core::Result<ir::Graph> legalize_dtypes(const ir::Graph& graph, const SupportQuery& how);

/// Tells whether a tensor of the graph itself is narrower than what kernels compute in.
bool has_narrow(const ir::Graph& graph);

}  // namespace mithril::passes

// Nodes `gradient` become gradient programs.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

bool has_gradients(const ir::Graph& graph);

/// Before: %0 = multiply(%x, %x)   %1 = gradient(%0, %x)
/// After:  %0 = multiply(%x, %x)   %1 … = 2 x, from the gradient rules of the nodes between
/// Needs concrete dtypes. A gradient of a gradient is one more round, so that any order works;
/// gradients of one value by several are one sweep. Composites without a gradient rule are
/// expanded. Cost: linear in the graph for each value that is differentiated.
core::Result<ir::Graph> expand_gradients(const ir::Graph& graph);

}  // namespace mithril::passes

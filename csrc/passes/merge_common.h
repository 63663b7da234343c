// Computes equal things once.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Nodes with the same op, operands and attributes become one; random ops stay apart. Operands
/// of a commutative op count as equal in either order.
core::Result<ir::Graph> merge_common(const ir::Graph& graph);

}  // namespace mithril::passes

// Drops what nobody reads.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Nodes from which no output and no state is reached go; inputs stay (they are the interface). Of
/// loops, what no step and no reader needs goes, too: results, carries, operands.
core::Result<ir::Graph> remove_dead(const ir::Graph& graph);

}  // namespace mithril::passes

// What memory the statements of emitted text take, which run in the order of the nodes.
#pragma once
#include "core/status.h"
#include "ir/graph.h"
#include "passes/rematerialize.h"

namespace mithril::passes {

/// Estimates a graph with known sizes: each node is a step, and its results live until the last
/// read. Results of movements of one tensor (reshape, transpose, slices) lie in its memory. A typed
/// error where a size is not known.
core::Result<Execution> liveness(const ir::Graph& graph);

}  // namespace mithril::passes

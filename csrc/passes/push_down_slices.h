// Computes only the parts of values that somebody reads.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Moves slices towards the inputs, so that products and attention compute, row by row, only what
/// somebody reads: a classifier reads the first token of a sequence. Sizes must be known. Returns
/// the graph as it is where that saves less than a hundredth of the products. Each element that
/// stays is computed as before.
core::Result<ir::Graph> push_down_slices(const ir::Graph& graph);

}  // namespace mithril::passes

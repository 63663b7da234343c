// Masks that are data become integer arrays: what plans index by.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Before: %0 = index(%x, %m) : f32[k]                                (x: f32[n, 3], m: bool[n, 3])
/// After:  %0 = true_places(%m) : i64[k]  %1 = reshape(%x, shape=('3*n',))
///         %2 = index(%1, %0) : f32[k]
/// The axes that a mask takes become one; one is made for a mask that takes none.
core::Result<ir::Graph> places_of_masks(const ir::Graph& graph);

}  // namespace mithril::passes

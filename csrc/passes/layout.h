// Channels last, for backends whose windows want them there.
#pragma once
#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"

namespace mithril::passes {

/// Tells whether a target has functions of its own for images [n, h, w, c], and the graph
/// convolutions.
bool wants_channels_last(const ir::Graph& graph, const ir::Target& target);

/// Computes images [n, c, h, w] as [n, h, w, c] from one convolution to the next: through
/// elementwise ops, reductions, pools, pads and joins. Transposes are left where images enter and
/// leave such a stretch.
core::Result<ir::Graph> layout(const ir::Graph& graph, const ir::Target& target);

}  // namespace mithril::passes

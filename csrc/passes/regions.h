// Passes inside of the graphs that nodes own.
#pragma once
#include <functional>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

using GraphPass = std::function<core::Result<ir::Graph>(const ir::Graph&)>;

/// The graph with what `pass` makes of each region, inner ones first. Loops are at most
/// ir::kMaxRegionDepth deep, and so is the recursion.
core::Result<ir::Graph> map_regions(const ir::Graph& graph, const GraphPass& pass);

/// The pass on every region, then on the graph.
GraphPass everywhere(GraphPass pass);

/// Tells whether nodes of the graph own graphs.
bool has_regions(const ir::Graph& graph);

/// Tells whether `holds` of the graph or of a region in it.
bool anywhere(const ir::Graph& graph, const std::function<bool(const ir::Graph&)>& holds);

/// Tells whether a node of the op is in the graph or in a region in it.
bool has_op(const ir::Graph& graph, ir::OpId op);

}  // namespace mithril::passes

// Replaces composite ops by their bodies.
#pragma once
#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"

namespace mithril::passes {

/// Before: %0 = softplus(%x) : f32[4]
/// After:  %0 = abs(%x) …  %5 = add(%1, %4) : f32[4]
/// Composites that `target` keeps whole stay. Bodies are expanded until none is left.
core::Result<ir::Graph> decompose(const ir::Graph& graph, const ir::Target& target);

/// Only composites for which `expand` says so, once each: what autodiff needs.
core::Result<ir::Graph> decompose_if(const ir::Graph& graph,
                                     const std::function<bool(const ir::OpDef&)>& expand);

/// The same, asked of each node.
using ExpandsNode = std::function<bool(const ir::Graph&, const ir::Node&, const ir::OpDef&)>;
core::Result<ir::Graph> decompose_nodes(const ir::Graph& graph, const ExpandsNode& expand);

}  // namespace mithril::passes

#include "passes/regions.h"

#include <algorithm>

namespace mithril::passes {

core::Result<ir::Graph> map_regions(const ir::Graph& graph, const GraphPass& pass) {
  ir::Graph out = graph;
  for (ir::Node& node : out.nodes) {
    for (std::shared_ptr<const ir::Graph>& region : node.regions) {
      MITHRIL_ASSIGN(const ir::Graph inner, map_regions(*region, pass));
      MITHRIL_ASSIGN(ir::Graph made, pass(inner));
      region = std::make_shared<const ir::Graph>(std::move(made));
    }
  }
  return out;
}

GraphPass everywhere(GraphPass pass) {
  return [pass = std::move(pass)](const ir::Graph& graph) -> core::Result<ir::Graph> {
    if (!has_regions(graph)) return pass(graph);
    MITHRIL_ASSIGN(const ir::Graph inner, map_regions(graph, pass));
    return pass(inner);
  };
}

bool has_regions(const ir::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const ir::Node& node) { return !node.regions.empty(); });
}

bool has_op(const ir::Graph& graph, ir::OpId op) {
  return anywhere(graph, [op](const ir::Graph& one) {
    return std::any_of(one.nodes.begin(), one.nodes.end(),
                       [op](const ir::Node& node) { return node.op == op; });
  });
}

bool anywhere(const ir::Graph& graph, const std::function<bool(const ir::Graph&)>& holds) {
  return holds(graph) ||
         std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const ir::Node& node) {
           return std::any_of(node.regions.begin(), node.regions.end(),
                              [&](const auto& region) { return anywhere(*region, holds); });
         });
}

}  // namespace mithril::passes

#include "passes/remove_dead.h"

#include <algorithm>

#include "passes/rewriter.h"

namespace mithril::passes {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;

core::Result<ir::Graph> remove_dead(const ir::Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  for (const ir::Output& output : graph.outputs) live[static_cast<size_t>(output.value)] = true;
  for (const ir::StateBinding& state : graph.states) {
    live[static_cast<size_t>(state.output)] = true;
  }
  const auto is_live = [&](const Node& node) {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId id) { return live[static_cast<size_t>(id)]; });
  };
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!is_live(*node)) continue;
    for (const ValueId id : node->operands) {
      if (id != kNoValue) live[static_cast<size_t>(id)] = true;
    }
  }
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    if (is_live(node)) rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace mithril::passes

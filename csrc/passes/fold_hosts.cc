#include "passes/fold_hosts.h"

#include <algorithm>

#include "passes/rewriter.h"

namespace mithril::passes {

core::Result<ir::Graph> fold_hosts(const ir::Graph& graph) {
  const auto is_host = [&](ir::ValueId id) {
    return id != ir::kNoValue && !graph.type(id).is_tensor;
  };
  const auto touches_host = [&](const ir::Node& node) {
    return std::any_of(node.operands.begin(), node.operands.end(), is_host) ||
           std::any_of(node.results.begin(), node.results.end(), is_host);
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), touches_host)) return graph;
  Rewriter rewriter(graph);
  for (const ir::Node& node : graph.nodes) {
    // Emitting evaluates host nodes and takes known host operands as attributes.
    touches_host(node) ? rewriter.emit_again(node) : rewriter.copy(node);
  }
  return rewriter.finish();
}

}  // namespace mithril::passes

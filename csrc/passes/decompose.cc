#include "passes/decompose.h"

#include <algorithm>

#include "ir/halves.h"
#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using ir::BodyKind;
using ir::Node;
using ir::OpDef;

namespace {

bool is_expandable(const ir::Graph& graph, const Node& node, const ExpandsNode& expand) {
  const OpDef& op = ir::Registry::global().get(node.op);
  const bool composed = op.body == BodyKind::kCompose || (op.expands && op.expands(graph, node));
  return composed && expand(graph, node, op);
}

void expand_node(Rewriter& rewriter, const OpDef& op, const Node& node) {
  const Node mapped = rewriter.mapped(node);  // the body reads it: a copy that stays
  ir::Builder& builder = rewriter.builder();
  builder.set_location(node.location);
  const uint32_t symbols = rewriter.graph().dims.symbol_count();
  std::vector<ir::Type> types;
  for (const ir::ValueId id : node.results) types.push_back(rewriter.from().type(id));
  const std::vector<ir::Value> results = ir::compose(builder, op, mapped, types);
  if (!builder.status().ok()) return;
  MITHRIL_CHECK(results.size() == node.results.size(), "the body of {} has {} results, not {}",
                op.name, results.size(), node.results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    MITHRIL_CHECK(static_cast<bool>(results[i]), "the body of {} gives no '{}'", op.name,
                  op.outputs[i].name);
    rewriter.keep_symbols(types[i], results[i], symbols);
    rewriter.map(node.results[i], results[i]);
  }
}

}  // namespace

core::Result<ir::Graph> decompose_nodes(const ir::Graph& graph, const ExpandsNode& expand) {
  constexpr int kMostRounds = 64;  // nesting of bodies
  ir::Graph current = graph;
  for (int round = 0; round < kMostRounds; ++round) {
    const ir::Registry& registry = ir::Registry::global();
    const bool any = std::any_of(current.nodes.begin(), current.nodes.end(),
                                 [&](const Node& n) { return is_expandable(current, n, expand); });
    if (!any) return current;
    Rewriter rewriter(current);
    for (const Node& node : current.nodes) {
      const OpDef& op = registry.get(node.op);
      if (is_expandable(current, node, expand)) {
        expand_node(rewriter, op, node);
      } else {
        rewriter.copy(node);
      }
    }
    MITHRIL_ASSIGN(ir::Graph next, rewriter.finish());
    current = std::move(next);
  }
  return core::fail(core::ErrorKind::kInternal, core::Code::kInternal,
                    "bodies of ops are nested more than {} deep", kMostRounds);
}

core::Result<ir::Graph> decompose_if(const ir::Graph& graph,
                                     const std::function<bool(const OpDef&)>& expand) {
  return decompose_nodes(
      graph, [&](const ir::Graph&, const Node&, const OpDef& op) { return expand(op); });
}

core::Result<ir::Graph> decompose(const ir::Graph& graph, const ir::Target& target) {
  return decompose_if(graph,
                      [&](const OpDef& op) { return op.expands_first || !target.keeps(op); });
}

}  // namespace mithril::passes

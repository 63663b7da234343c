#include "passes/expand_gradients.h"

#include <algorithm>

#include "ir/registry.h"
#include "passes/backward.h"
#include "passes/decompose.h"
#include "passes/rewriter.h"
#include "passes/scan_gradient.h"

namespace mithril::passes {

using ir::Node;
using ir::Value;
using ir::ValueId;

namespace {

constexpr size_t kOf = 0, kWrt = 1;  // operands

bool is_gradient(const Node& node) {
  static const ir::OpId id = ir::Registry::global().find("gradient")->id;
  return node.op == id;
}

/// Copies the graph; its first gradient node, and those of the same value, become a program.
class Round {
 public:
  explicit Round(const ir::Graph& graph)
      : graph_(graph), rewriter_(graph), expanded_(graph.nodes.size(), false) {}

  core::Result<ir::Graph> run() {
    bool any = false;
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      if (expanded_[at]) continue;
      if (any || !is_gradient(graph_.nodes[at])) {
        rewriter_.copy(graph_.nodes[at]);
        continue;
      }
      MITHRIL_RETURN_IF_ERROR(expand(at));
      any = true;
    }
    return rewriter_.finish();
  }

 private:
  ValueId wrt(size_t at) { return rewriter_.mapped(graph_.nodes[at].operands[kWrt]).id; }

  // What is made later cannot be what this value depends on: it waits for its own round.
  std::vector<size_t> group_of(size_t first) {
    std::vector<size_t> out;
    for (size_t at = first; at < graph_.nodes.size(); ++at) {
      const Node& node = graph_.nodes[at];
      const bool same =
          is_gradient(node) && node.operands[kOf] == graph_.nodes[first].operands[kOf];
      if (same && wrt(at) != ir::kNoValue) out.push_back(at);
    }
    return out;
  }

  core::Status expand(size_t first) {
    const std::vector<size_t> group = group_of(first);
    ir::Builder& builder = rewriter_.builder();
    Backward backward(builder);
    for (const size_t at : group) backward.want(wrt(at));
    backward.find_dependents();
    builder.set_location(graph_.nodes[first].location);
    const Value of = rewriter_.mapped(graph_.nodes[first].operands[kOf]);
    backward.add(of.id, ir::ones_like(of));
    MITHRIL_RETURN_IF_ERROR(backward.run());
    for (const size_t at : group) {
      rewriter_.map(graph_.nodes[at].results[0], backward.take(wrt(at)));
      expanded_[at] = true;
    }
    return builder.status().ok() ? core::Status() : builder.take_status();
  }

  const ir::Graph& graph_;
  Rewriter rewriter_;
  std::vector<bool> expanded_;  // by node of `graph_`
};

}  // namespace

bool has_gradients(const ir::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), is_gradient);
}

core::Result<ir::Graph> expand_gradients(const ir::Graph& graph) {
  ir::Graph current = graph;
  while (has_gradients(current)) {
    MITHRIL_ASSIGN(const ir::Graph ready, decompose_if(current, [](const ir::OpDef& op) {
                     return op.expands_first || (op.differentiable && !op.gradient);
                   }));
    MITHRIL_ASSIGN(const ir::Graph told, stack_carries(ready));
    MITHRIL_ASSIGN(current, Round(told).run());
  }
  return current;
}

}  // namespace mithril::passes

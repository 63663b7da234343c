#include "passes/reduce_losses.h"

#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using ir::Node;

namespace {

constexpr const char* kName = "reduction";

// The loss whose single values `node` reduces to one number, or null. Others than the squared error
// may weigh their samples, of which their mean is another one.
const Node* loss_under(const ir::Graph& graph, const Node& node, const std::vector<int32_t>& uses) {
  const ir::Registry& registry = ir::Registry::global();
  const std::string& name = registry.get(node.op).name;
  if ((name != "mean" && name != "sum") || graph.type(node.results[0]).rank() != 0) return nullptr;
  const ir::ValueId each = node.operands[0];
  const Node* loss = graph.producer(each);
  if (loss == nullptr || registry.get(loss->op).name != "squared_error") return nullptr;
  const HostValue* reduction = loss->attrs.find(kName);
  const bool is_single =
      reduction == nullptr || reduction->is_none() || *reduction == HostValue("none");
  const bool is_floating = core::is_float(graph.type(each).dtype);
  return is_single && is_floating && uses[static_cast<size_t>(each)] == 1 ? loss : nullptr;
}

}  // namespace

bool wants_reduced_losses(const ir::Target& target) {
  return target.keeps_whole.contains("squared_error") && !target.decompose_all;
}

core::Result<ir::Graph> reduce_losses(const ir::Graph& graph, const ir::Target& target) {
  if (!wants_reduced_losses(target)) return graph;
  const std::vector<int32_t> uses = ir::use_counts(graph);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const Node* loss = loss_under(graph, node, uses);
    if (loss == nullptr) {
      rewriter.copy(node);
      continue;
    }
    const Node mapped = rewriter.mapped(*loss);
    ir::Builder& builder = rewriter.builder();
    builder.set_location(loss->location);
    ir::Attrs attrs = loss->attrs;
    attrs.set(kName, HostValue(ir::Registry::global().get(node.op).name));
    rewriter.map(node.results[0], builder.call("squared_error",
                                               {builder.value(mapped.operands[0]),
                                                builder.value(mapped.operands[1])},
                                               std::move(attrs)));
  }
  return rewriter.finish();  // the single values are dead
}

}  // namespace mithril::passes

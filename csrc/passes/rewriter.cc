#include "passes/rewriter.h"

#include "ir/registry.h"

namespace mithril::passes {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;

Rewriter::Rewriter(const ir::Graph& from)
    : from_(from), to_(from.frame()), builder_(to_), map_(from.values.size(), kNoValue) {
  for (const ValueId id : from.inputs) {
    const ir::ValueInfo& info = from.value(id);
    const ValueId made = to_.add_input(info.name, info.type, info.role);
    to_.value(made).host = info.host;
    map_[static_cast<size_t>(id)] = made;
  }
}

Node Rewriter::mapped(const Node& node) const {
  Node out = node;
  for (ValueId& id : out.operands) {
    if (id != kNoValue) id = map_[static_cast<size_t>(id)];
  }
  out.results.clear();
  return out;
}

void Rewriter::copy(const Node& node) {
  interrupts_.check(1);
  Node made = mapped(node);
  std::vector<ir::Type> types;
  for (const ValueId id : node.results) types.push_back(from_.type(id));
  const ir::NodeId at = to_.add_node(node.op, std::move(made.operands), std::move(made.attrs),
                                     std::move(types), node.location);
  to_.nodes[static_cast<size_t>(at)].regions = node.regions;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const ValueId result = to_.node(at).results[i];
    to_.value(result).host = from_.value(node.results[i]).host;
    map_[static_cast<size_t>(node.results[i])] = result;
  }
}

void Rewriter::emit_again(const Node& node) {
  if (!node.regions.empty()) {  // the results of a region follow from nothing else
    copy(node);
    return;
  }
  std::vector<ir::Operand> operands;
  for (const ValueId id : node.operands) {
    operands.emplace_back(id == kNoValue ? ir::Value{} : mapped(id));
  }
  emit_again(node, std::move(operands));
}

void Rewriter::emit_again(const Node& node, std::vector<ir::Operand> operands) {
  interrupts_.check(1);
  builder_.set_location(node.location);
  const uint32_t symbols = to_.dims.symbol_count();
  const auto results =
      builder_.call_all(ir::Registry::global().get(node.op), std::move(operands), node.attrs);
  if (!builder_.status().ok()) return;
  for (size_t i = 0; i < node.results.size(); ++i) {
    keep_symbols(from_.type(node.results[i]), results[i], symbols);
    map(node.results[i], results[i]);
  }
}

void Rewriter::keep_symbols(const ir::Type& old, ir::Value made, uint32_t first_new) {
  if (!made || !old.is_tensor || !made.type().is_tensor || made.rank() != old.rank()) return;
  for (size_t axis = 0; axis < old.rank(); ++axis) {
    infer::Dim& dim = to_.value(made.id).type.shape[axis];
    if (dim.known() || !to_.dims.is_symbol(dim)) continue;
    if (to_.dims.symbol_index(dim) >= first_new) dim = old.shape[axis];
  }
}

core::Result<ir::Graph> Rewriter::finish() {
  MITHRIL_RETURN_IF_ERROR(builder_.take_status());
  for (const ir::Output& output : from_.outputs) {
    to_.outputs.push_back({output.name, map_[static_cast<size_t>(output.value)]});
  }
  for (const ir::StateBinding& state : from_.states) {
    to_.states.push_back({map_[static_cast<size_t>(state.input)],
                          map_[static_cast<size_t>(state.output)], state.initial});
  }
  return std::move(to_);
}

}  // namespace mithril::passes

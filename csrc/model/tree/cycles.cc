#include "model/tree/cycles.h"

#include "model/outline/outline.h"

namespace mithril::model {
namespace {

// What runs as a whole: an op, or the loop that it borders.
NodeId unit(const ModelTree& tree, NodeId leaf) {
  const Node& node = tree.node(leaf);
  const bool is_border = node.op != nullptr && is_mark(node.op->name) && node.parent != kNone;
  return is_border ? node.parent : leaf;
}

NodeId writer(const ModelTree& tree, ConnId wire) {
  while (tree.conn(wire).producer != wire) wire = tree.conn(wire).producer;
  return unit(tree, tree.conn(wire).node);
}

// Who writes what a key reads, at whichever level; kNone for an input.
NodeId source(const ModelTree& tree, ConnId key) {
  ConnId wire = tree.surviving(tree.conn(key).outer);
  while (wire != kNone && !tree.conn(wire).produced()) {
    wire = tree.surviving(tree.conn(wire).outer);
  }
  return wire == kNone ? kNone : writer(tree, wire);
}

}  // namespace

bool feeds_itself(const ModelTree& tree, const std::vector<ConnId>& wires) {
  enum class Visit : uint8_t { kNo, kOpen, kDone };
  std::unordered_map<NodeId, Visit> visits;
  std::vector<NodeId> stack;
  for (const ConnId wire : wires) {
    if (tree.conn(wire).produced()) stack.push_back(writer(tree, wire));
  }
  while (!stack.empty()) {
    const NodeId at = stack.back();
    Visit& visit = visits[at];
    if (visit != Visit::kNo) {
      visit = Visit::kDone;
      stack.pop_back();
      continue;
    }
    visit = Visit::kOpen;
    for (const ConnId key : tree.node(at).conns) {
      const NodeId from = tree.conn(key).produced() ? kNone : source(tree, key);
      if (from == kNone) continue;
      const Visit before = visits[from];
      if (before == Visit::kOpen) return true;
      if (before == Visit::kNo) stack.push_back(from);
    }
  }
  return false;
}

}  // namespace mithril::model

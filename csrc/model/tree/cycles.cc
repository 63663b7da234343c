#include "model/tree/cycles.h"

#include "model/outline/outline.h"

namespace mithril::model {
namespace {

// What runs as a whole: an op, or the loop that it borders.
NodeId unit(const Arena& arena, NodeId leaf) {
  const Node& node = arena.node(leaf);
  const bool is_border = node.op != nullptr && is_mark(node.op->name) && node.parent != kNone;
  return is_border ? node.parent : leaf;
}

NodeId writer(const Arena& arena, ConnId wire) {
  while (arena.conn(wire).producer != wire) wire = arena.conn(wire).producer;
  return unit(arena, arena.conn(wire).node);
}

// Who writes what a key reads, at whichever level; kNone for an input.
NodeId source(const Arena& arena, ConnId key) {
  ConnId wire = arena.surviving(arena.conn(key).outer);
  while (wire != kNone && !arena.conn(wire).produced()) {
    wire = arena.surviving(arena.conn(wire).outer);
  }
  return wire == kNone ? kNone : writer(arena, wire);
}

}  // namespace

bool feeds_itself(const Arena& arena, const std::vector<ConnId>& wires) {
  enum class Visit : uint8_t { kNo, kOpen, kDone };
  std::unordered_map<NodeId, Visit> visits;
  std::vector<NodeId> stack;
  for (const ConnId wire : wires) {
    if (arena.conn(wire).produced()) stack.push_back(writer(arena, wire));
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
    for (const ConnId key : arena.node(at).conns) {
      const NodeId from = arena.conn(key).produced() ? kNone : source(arena, key);
      if (from == kNone) continue;
      const Visit before = visits[from];
      if (before == Visit::kOpen) return true;
      if (before == Visit::kNo) stack.push_back(from);
    }
  }
  return false;
}

}  // namespace mithril::model

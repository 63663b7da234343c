#include "select/fuse.h"

#include <algorithm>

#include "ir/registry.h"
#include "select/tile_lowering.h"

namespace mithril::select {

using core::HostValue;
using ir::BodyKind;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::OpDef;
using ir::ValueId;

std::string_view text(FusionBlocker blocker) {
  switch (blocker) {
    case FusionBlocker::kNone: return "";
    case FusionBlocker::kOff: return "fusion is switched off";
    case FusionBlocker::kOwnKernel: return "it is no pointwise op and no reduction";
    case FusionBlocker::kAfterKernel: return "that is no loop, and only loops are joined";
    case FusionBlocker::kFull: return "that loop has as many nodes as a loop may have";
    case FusionBlocker::kOtherShape: return "its elements are not those of that loop";
    case FusionBlocker::kReducedTwice: return "it reduces what that loop has reduced already";
    case FusionBlocker::kOtherAxes: return "it reduces other axes than that loop";
    case FusionBlocker::kNoAxes: return "it reduces no axis";
    case FusionBlocker::kLongRow:
      return "rows are so long that a loop of its own, shared by threads, reads them faster";
    case FusionBlocker::kLostAxes:
      return "it reads reduced values that have lost their axes (keepdim)";
    case FusionBlocker::kPositions:
      return "places are counted in row-major order, in which that loop does not run";
    case FusionBlocker::kSingleRows: return "it reduces rows of one element";
    case FusionBlocker::kReduces:
      return "that loop reduces, and only pointwise loops move to a later one";
    case FusionBlocker::kReadBetween: return "what that loop makes is read before";
    case FusionBlocker::kNoEpilogues: return "that kernel gives its results as a whole";
    case FusionBlocker::kNotPointwise:
      return "it reduces, and that kernel finishes a block at a time";
    case FusionBlocker::kRearranged: return "it does not read those results element by element";
    case FusionBlocker::kNotAtOnce: return "it depends on places, or is a single number";
    case FusionBlocker::kReadEarlier: return "those results are read before";
    case FusionBlocker::kManyMatrices:
      return "it reads and writes so many large arrays that it is faster in one sweep";
    case FusionBlocker::kManyOperands:
      return "together they have more operands than a kernel of the device takes";
    case FusionBlocker::kNotOfKernels: return "the device has no numbers as precise as it needs";
  }
  return "";
}

std::vector<int64_t> reduced_axes(const Node& node, size_t rank) {
  std::vector<int64_t> out;
  const HostValue* axis = node.attrs.find("axis");
  const auto add = [&](const HostValue& value) {
    const int64_t at = value.as_int();
    out.push_back(at < 0 ? at + static_cast<int64_t>(rank) : at);
  };
  if (axis != nullptr && axis->is_int()) {
    add(*axis);
  } else if (axis != nullptr && axis->is_sequence()) {
    for (const HostValue& item : axis->items()) add(item);
  } else {
    for (size_t i = 0; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

/// A lane section after a reduction runs on the thread that has the row: rows longer than this
/// are cheaper as loops of their own.
constexpr int64_t kLongestReread = 1 << 16;

/// A program is compiled, verified and kept in registers as a whole, and a loop looks over its
/// operands in pairs: beyond this a chain goes on in the next loop.
constexpr size_t kMostNodes = 256;

/// Tells whether a node may join a loop: as what, or why not.
struct Fit {
  Fit(Spread as) : spread(as) {}            // NOLINT: a value or a reason
  Fit(FusionBlocker why) : blocker(why) {}  // NOLINT: a value or a reason
  explicit operator bool() const { return blocker == FusionBlocker::kNone; }
  Spread spread = Spread::kOutside;
  FusionBlocker blocker = FusionBlocker::kNone;
};

std::vector<int64_t> dims(const ir::Graph& graph, ValueId id) {
  return ir::static_dims(graph.type(id).shape);
}

// Random numbers and ranges count the points of the domain in row-major order, kept axes first:
// that is the value's own order only when the reduced axes are the last ones.
bool counts_positions(const ir::Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return ir::Registry::global().get(node.op).random ||
         std::all_of(node.operands.begin(), node.operands.end(),
                     [&](ValueId v) { return v == kNoValue || !graph.type(v).is_tensor; });
}
bool is_trailing(const std::vector<int64_t>& axes, size_t rank) {
  return axes.empty() || axes.front() == static_cast<int64_t>(rank - axes.size());
}

// The domain with its reduced axes as 1.
std::vector<int64_t> kept_shape(const Group& group) {
  std::vector<int64_t> out = group.shape;
  for (const int64_t axis : group.reduced) out[static_cast<size_t>(axis)] = 1;
  return out;
}

// Why the nodes of an earlier group cannot run with those of a later one, whatever reads them.
FusionBlocker blocker_to_move(const ir::Graph& graph, const Group& from, const Group& to) {
  if (!to.is_loop) return FusionBlocker::kOwnKernel;
  if (!from.is_loop || from.product != ir::kNoNode) return FusionBlocker::kAfterKernel;
  if (!from.reduced.empty()) return FusionBlocker::kReduces;
  if (from.shape != to.shape) return FusionBlocker::kOtherShape;
  if (from.nodes.size() + to.nodes.size() > kMostNodes) return FusionBlocker::kFull;
  if (counts_positions(graph, from) && !is_trailing(to.reduced, to.shape.size())) {
    return FusionBlocker::kPositions;
  }
  const bool rows_are_single = !to.reduced.empty() && kept_shape(to) == to.shape;
  return rows_are_single ? FusionBlocker::kSingleRows : FusionBlocker::kNone;
}

class Fuser {
 public:
  Fuser(const ir::Graph& graph, bool enabled, size_t most_operands)
      : graph_(graph), enabled_(enabled), most_operands_(most_operands), operands_(graph) {
    out_.group_of.assign(graph.nodes.size(), -1);
    out_.spread.assign(graph.values.size(), Spread::kOutside);
    readers_.resize(graph.values.size());
    for (size_t at = 0; at < graph.nodes.size(); ++at) {
      for (const ValueId id : graph.nodes[at].operands) {
        if (id != kNoValue) readers_[static_cast<size_t>(id)].push_back(static_cast<NodeId>(at));
      }
    }
  }

  Fusion run() {
    // Constants come first: they wait for nothing, so none comes between two loops.
    for (const bool constants : {true, false}) {
      for (size_t at = 0; at < graph_.nodes.size(); ++at) {
        if (is_constant(graph_.nodes[at]) == constants) place(static_cast<NodeId>(at));
      }
    }
    drop_empty(out_);
    find_outputs();
    return std::move(out_);
  }

 private:
  std::vector<int64_t> dims(ValueId id) const { return select::dims(graph_, id); }
  Spread spread(ValueId id) const { return out_.spread[static_cast<size_t>(id)]; }

  static bool is_constant(const Node& node) {
    return ir::Registry::global().get(node.op).has(ir::Trait::kLiteral);
  }

  int32_t group_of(ValueId id) const {
    const NodeId node = graph_.value(id).node;
    return node == ir::kNoNode ? -1 : out_.group_of[static_cast<size_t>(node)];
  }

  int32_t last_group(const Node& node) const {
    int32_t last = -1;
    for (const ValueId id : node.operands) {
      if (id != kNoValue) last = std::max(last, group_of(id));
    }
    return last;
  }

  void place(NodeId id) {
    const Node& node = graph_.node(id);
    const OpDef& op = ir::Registry::global().get(node.op);
    const bool loop = (op.body == BodyKind::kPointwise || op.body == BodyKind::kRow) &&
                      graph_.type(node.results[0]).is_tensor;
    const int32_t last = last_group(node);
    const FusionBlocker blocker = last < 0    ? FusionBlocker::kNone
                                  : !loop     ? FusionBlocker::kOwnKernel
                                  : !enabled_ ? FusionBlocker::kOff
                                              : join(last, id, node, op);
    if (last < 0 || blocker != FusionBlocker::kNone) {
      start(id, node, op, loop);
      out_.groups.back().began = id;
      out_.groups.back().blocker = blocker;
      out_.groups.back().before = last;
    }
    if (!loop || !enabled_) return;
    const int32_t at = out_.group_of[static_cast<size_t>(id)];
    for (const ValueId operand : node.operands) {
      if (operand == kNoValue) continue;
      const int32_t earlier = group_of(operand);
      if (earlier < 0 || earlier == at || !can_move(earlier, at)) continue;
      Group& to = out_.groups[static_cast<size_t>(at)];
      if (fits(to.nodes, out_.groups[static_cast<size_t>(earlier)].nodes)) {
        move_into(earlier, at);
      } else {
        to.is_crowded = true;
      }
    }
  }

  // Whether the nodes of an earlier loop may run with those of group `at`, and nothing that runs
  // between them reads what they make.
  bool can_move(int32_t earlier, int32_t at) const {
    const Group& from = out_.groups[static_cast<size_t>(earlier)];
    const Group& to = out_.groups[static_cast<size_t>(at)];
    if (blocker_to_move(graph_, from, to) != FusionBlocker::kNone) return false;
    return std::all_of(from.nodes.begin(), from.nodes.end(), [&](NodeId node) {
      const auto& results = graph_.node(node).results;
      return std::all_of(results.begin(), results.end(),
                         [&](ValueId id) { return is_read_from(id, earlier, at); });
    });
  }

  // Whether what reads the value runs in group `own`, or not before group `at`.
  bool is_read_from(ValueId id, int32_t own, int32_t at) const {
    const std::vector<NodeId>& readers = readers_[static_cast<size_t>(id)];
    return std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const int32_t group = out_.group_of[static_cast<size_t>(reader)];
      return group < 0 || group == own || group >= at;
    });
  }

  void move_into(int32_t earlier, int32_t at) {
    std::vector<NodeId>& from = out_.groups[static_cast<size_t>(earlier)].nodes;
    std::vector<NodeId>& to = out_.groups[static_cast<size_t>(at)].nodes;
    for (const NodeId node : from) out_.group_of[static_cast<size_t>(node)] = at;
    to.insert(to.end(), from.begin(), from.end());
    std::sort(to.begin(), to.end());  // the order of the graph
    from.clear();
  }

  void start(NodeId id, const Node& node, const OpDef& op, bool loop) {
    Group group;
    group.is_loop = loop;
    group.nodes.push_back(id);
    if (loop && op.body == BodyKind::kRow) {
      group.shape = dims(node.operands[0]);
      group.reduced = reduced_axes(node, group.shape.size());
    } else if (loop) {
      group.shape = dims(node.results[0]);
    }
    out_.group_of[static_cast<size_t>(id)] = static_cast<int32_t>(out_.groups.size());
    out_.groups.push_back(std::move(group));
    if (loop) set_spread(node, op.body == BodyKind::kRow ? Spread::kRow : Spread::kLane);
  }

  void set_spread(const Node& node, Spread spread) {
    for (const ValueId id : node.results) out_.spread[static_cast<size_t>(id)] = spread;
  }

  FusionBlocker join(int32_t at, NodeId id, const Node& node, const OpDef& op) {
    Group& group = out_.groups[static_cast<size_t>(at)];
    if (!group.is_loop) return FusionBlocker::kAfterKernel;
    if (group.nodes.size() >= kMostNodes) return FusionBlocker::kFull;
    const Fit fit =
        op.body == BodyKind::kRow ? fit_reduction(group, at, node) : fit_pointwise(group, at, id);
    if (!fit) return fit.blocker;
    if (!fits(group.nodes, {id})) return FusionBlocker::kManyOperands;
    if (op.body == BodyKind::kRow && group.reduced.empty()) {
      group.reduced = reduced_axes(node, group.shape.size());
    }
    group.nodes.push_back(id);
    out_.group_of[static_cast<size_t>(id)] = at;
    set_spread(node, fit.spread);
    return FusionBlocker::kNone;
  }

  // A reduction over the whole domain of the group, or over its reduced axes.
  Fit fit_reduction(const Group& group, int32_t at, const Node& node) const {
    const ValueId operand = node.operands[0];
    const bool reduced = group_of(operand) == at && spread(operand) != Spread::kLane;
    if (dims(operand) != group.shape) {
      return reduced ? FusionBlocker::kReducedTwice : FusionBlocker::kOtherShape;
    }
    if (reduced) return FusionBlocker::kReducedTwice;
    const auto axes = reduced_axes(node, group.shape.size());
    if (counts_positions(graph_, group) && !is_trailing(axes, group.shape.size())) {
      return FusionBlocker::kPositions;
    }
    // What a group without reductions computed so far must stay lane values: all of it is.
    if (group.reduced.empty())
      return axes.empty() ? Fit(FusionBlocker::kNoAxes) : Fit(Spread::kRow);
    if (axes != group.reduced) return FusionBlocker::kOtherAxes;
    return rereads_too_much(group) ? Fit(FusionBlocker::kLongRow) : Fit(Spread::kRow);
  }

  Fit fit_pointwise(const Group& group, int32_t at, NodeId id) const {
    const Node& node = graph_.node(id);
    const auto shape = dims(node.results[0]);
    if (!is_trailing(group.reduced, group.shape.size()) && counts_positions(graph_, id)) {
      return FusionBlocker::kPositions;
    }
    const Fit lane =
        shape == group.shape ? fit_lane(group, at, node) : Fit(FusionBlocker::kOtherShape);
    if (lane) return lane;
    if (!group.reduced.empty() && shape == kept_shape(group) && is_row(group, at, node)) {
      return Spread::kRow;
    }
    return lane;
  }

  // Row values enter a lane expression only with their reduced axes kept as 1.
  Fit fit_lane(const Group& group, int32_t at, const Node& node) const {
    bool reads_row = false;
    for (const ValueId id : node.operands) {
      if (id == kNoValue || group_of(id) != at) continue;
      if (spread(id) == Spread::kRow) {
        if (dims(id) != kept_shape(group)) return FusionBlocker::kLostAxes;
        reads_row = true;
      } else if (dims(id) != group.shape) {
        return FusionBlocker::kOtherShape;
      }
    }
    return reads_row && rereads_too_much(group) ? Fit(FusionBlocker::kLongRow) : Fit(Spread::kLane);
  }

  bool is_row(const Group& group, int32_t at, const Node& node) const {
    for (const ValueId id : node.operands) {
      if (id == kNoValue || group_of(id) != at) continue;
      if (spread(id) != Spread::kRow || dims(id) != kept_shape(group)) return false;
    }
    return true;
  }

  // Whether a kernel has room for the operands of both.
  bool fits(std::vector<NodeId> nodes, const std::vector<NodeId>& more) const {
    if (most_operands_ == kAnyOperands) return true;
    nodes.insert(nodes.end(), more.begin(), more.end());
    std::sort(nodes.begin(), nodes.end());
    return operands_.count(nodes) <= most_operands_;
  }

  static bool rereads_too_much(const Group& group) {
    int64_t row = 1;
    for (const int64_t axis : group.reduced) row *= group.shape[static_cast<size_t>(axis)];
    return row > kLongestReread;
  }

  void find_outputs() {
    std::vector<bool> read_outside(graph_.values.size(), false);
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      for (const ValueId id : graph_.nodes[at].operands) {
        if (id != kNoValue && group_of(id) != out_.group_of[at]) {
          read_outside[static_cast<size_t>(id)] = true;
        }
      }
    }
    for (const ir::Output& output : graph_.outputs) {
      read_outside[static_cast<size_t>(output.value)] = true;
    }
    for (const ir::StateBinding& state : graph_.states) {
      read_outside[static_cast<size_t>(state.output)] = true;
    }
    for (Group& group : out_.groups) {
      for (const NodeId node : group.nodes) {
        for (const ValueId id : graph_.node(node).results) {
          if (read_outside[static_cast<size_t>(id)]) group.outputs.push_back(id);
        }
      }
    }
  }

  const ir::Graph& graph_;
  bool enabled_;
  size_t most_operands_;
  OperandCounter operands_;
  std::vector<std::vector<NodeId>> readers_;  // by value
  Fusion out_;
};

}  // namespace

bool counts_positions(const ir::Graph& graph, const Group& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(),
                     [&](NodeId id) { return counts_positions(graph, id); });
}

void drop_empty(Fusion& fusion) {
  std::vector<int32_t> kept(fusion.groups.size());
  int32_t count = 0;
  for (size_t i = 0; i < fusion.groups.size(); ++i) {
    kept[i] = fusion.groups[i].nodes.empty() ? -1 : count++;
  }
  const auto renumber = [&](int32_t& group) {
    if (group >= 0) group = kept[static_cast<size_t>(group)];
  };
  std::erase_if(fusion.groups, [](const Group& group) { return group.nodes.empty(); });
  for (int32_t& group : fusion.group_of) renumber(group);
  for (Group& group : fusion.groups) renumber(group.before);
}

std::vector<Boundary> boundaries(const ir::Graph& graph, const Fusion& fusion, int32_t at) {
  const Group& group = fusion.groups[static_cast<size_t>(at)];
  std::vector<Boundary> out;
  std::vector<int32_t> seen;
  for (const NodeId reader : group.nodes) {
    for (const ValueId id : graph.node(reader).operands) {
      const NodeId maker = id == kNoValue ? ir::kNoNode : graph.value(id).node;
      if (maker == ir::kNoNode) continue;
      const int32_t from = fusion.group_of[static_cast<size_t>(maker)];
      if (from == at || std::find(seen.begin(), seen.end(), from) != seen.end()) continue;
      seen.push_back(from);
      const bool is_refused = reader == group.began && from == group.before;
      const FusionBlocker apart =
          blocker_to_move(graph, fusion.groups[static_cast<size_t>(from)], group);
      const FusionBlocker own = is_refused ? group.blocker : apart;
      const FusionBlocker why = reader == group.product ? FusionBlocker::kOwnKernel : own;
      const FusionBlocker unmoved =
          group.is_crowded ? FusionBlocker::kManyOperands : FusionBlocker::kReadBetween;
      out.push_back({from, reader, why == FusionBlocker::kNone ? unmoved : why});
    }
  }
  return out;
}

OperandCounter::OperandCounter(const ir::Graph& graph)
    : graph_(graph), readers_(graph.values.size()), is_result_(graph.values.size(), false) {
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    for (const ValueId id : graph.nodes[at].operands) {
      if (id != kNoValue) readers_[static_cast<size_t>(id)].push_back(static_cast<NodeId>(at));
    }
  }
  for (const ir::Output& output : graph.outputs) {
    is_result_[static_cast<size_t>(output.value)] = true;
  }
  for (const ir::StateBinding& state : graph.states) {
    is_result_[static_cast<size_t>(state.output)] = true;
  }
}

bool OperandCounter::is_read_elsewhere(ValueId id, const std::vector<NodeId>& nodes) const {
  const std::vector<NodeId>& readers = readers_[static_cast<size_t>(id)];
  return is_result_[static_cast<size_t>(id)] ||
         std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
           return !std::binary_search(nodes.begin(), nodes.end(), reader);
         });
}

size_t OperandCounter::count(const std::vector<NodeId>& nodes) const {
  std::vector<ValueId> all;
  for (const NodeId node : nodes) {
    for (const ValueId id : graph_.node(node).operands) {
      if (id == kNoValue || !graph_.type(id).is_tensor) continue;
      const NodeId maker = graph_.value(id).node;
      const bool is_own =
          maker != ir::kNoNode && std::binary_search(nodes.begin(), nodes.end(), maker);
      if (!is_own && scalar_constant(graph_, id) == nullptr) all.push_back(id);
    }
    for (const ValueId id : graph_.node(node).results) {
      if (is_read_elsewhere(id, nodes)) all.push_back(id);
    }
  }
  std::sort(all.begin(), all.end());
  return static_cast<size_t>(std::unique(all.begin(), all.end()) - all.begin());
}

Fusion fuse(const ir::Graph& graph, bool enabled, size_t most_operands) {
  return Fuser(graph, enabled, most_operands).run();
}

}  // namespace mithril::select

#include "passes/rematerialize.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "ir/registry.h"
#include "passes/remove_dead.h"

namespace mithril::passes {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using Place = Execution::Place;

constexpr int kMostTries = 30;                // a try plans the whole program
constexpr int kSparingTries = 4;              // by programs that nobody asked to be smaller
constexpr int64_t kMuch = int64_t{64} << 20;  // bytes
constexpr int64_t kLeastPart = 16;            // of the peak: less is not worth a try of theirs
// Of the FLOPs, next to nothing: loops that wait for memory take ten to twenty times as long as
// products for those that they are counted for.
constexpr double kSparingShare = 1.0 / 500;
constexpr double kParts[] = {0.25, 0.06, 1};  // of the peak: what a try is to take away, 1 is all
constexpr double kForwardShare = 1.0 / 3;
constexpr int64_t kSmallPart = 16;  // what is so much smaller than a value may stay in its stead
constexpr size_t kLongestChain = 1024;
constexpr int32_t kAlways = std::numeric_limits<int32_t>::max();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Holds when the values of a graph are in memory.
class Lives {
 public:
  Lives(const ir::Graph& graph, const Execution& execution)
      : graph_(graph),
        execution_(execution),
        base_(graph.values.size(), kNoValue),
        uses_(graph.values.size()) {
    for (const ValueId id : graph.inputs) find_base(id);
    for (const Node& node : graph.nodes) {
      for (const ValueId id : node.results) find_base(id);
    }
    for (size_t at = 0; at < graph.nodes.size(); ++at) {
      for (const ValueId id : graph.nodes[at].operands) note_use(id, execution.step_of[at]);
    }
    for (const ir::Output& output : graph.outputs) note_use(output.value, kAlways);
    for (const ir::StateBinding& state : graph.states) note_use(state.output, kAlways);
    for (auto& uses : uses_) std::sort(uses.begin(), uses.end());
  }

  const ir::Graph& graph() const { return graph_; }
  const Execution& execution() const { return execution_; }
  /// The value in whose memory it lies; kNoValue: it stays inside of a step.
  ValueId base(ValueId id) const { return base_[static_cast<size_t>(id)]; }
  const Execution::Memory& memory(ValueId id) const {
    return execution_.memory[static_cast<size_t>(id)];
  }
  /// The step that makes it; -1: it is there from the beginning.
  int32_t first(ValueId id) const {
    const NodeId node = graph_.value(id).node;
    return node == kNoNode ? -1 : execution_.step_of[static_cast<size_t>(node)];
  }
  int32_t last(ValueId base) const {
    if (memory(base).place == Place::kHeld) return kAlways;
    const auto& uses = uses_[static_cast<size_t>(base)];
    return uses.empty() ? first(base) : std::max(first(base), uses.back());
  }
  /// Steps that read it, in order.
  const std::vector<int32_t>& uses(ValueId base) const { return uses_[static_cast<size_t>(base)]; }

 private:
  void find_base(ValueId id) {
    if (memory(id).place != Place::kNone) {
      base_[static_cast<size_t>(id)] = id;
      return;
    }
    const Node* node = graph_.producer(id);
    if (node == nullptr || first(id) >= 0 || node->operands.empty()) return;
    const ValueId from = node->operands[0];
    if (from != kNoValue) base_[static_cast<size_t>(id)] = base(from);
  }

  void note_use(ValueId id, int32_t step) {
    if (id == kNoValue || step < 0 || base(id) == kNoValue) return;
    uses_[static_cast<size_t>(base(id))].push_back(step);
  }

  const ir::Graph& graph_;
  const Execution& execution_;
  std::vector<ValueId> base_;
  std::vector<std::vector<int32_t>> uses_;  // by base
};

// Same operands, same bits: what has parts of its own may take long or never end.
bool can_repeat(const ir::Graph& graph, const Node& node) {
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  const bool is_drawn = op.random && op.body != ir::BodyKind::kPointwise;
  const bool is_users = op.family == "user" || op.family == "opaque";
  return node.regions.empty() && !is_drawn && !is_users && graph.type(node.results[0]).is_tensor;
}

/// A value that gives its memory back after the peak.
struct Candidate {
  ValueId value = kNoValue;
  int64_t freed = 0;
  double flops = 0;
  double gain() const { return static_cast<double>(freed) / (flops + 1); }
};

/// Orders what may be computed again after a peak, the most bytes for a FLOP first.
class Candidates {
 public:
  Candidates(const Lives& lives, int32_t peak) : lives_(lives), peak_(peak) {}

  std::vector<Candidate> find(const std::set<ValueId>& refused) {
    std::vector<Candidate> out;
    for (size_t i = 0; i < lives_.graph().values.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      if (refused.contains(id) || !is_idle(id)) continue;
      if (const auto found = priced(id)) out.push_back(*found);
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Candidate& a, const Candidate& b) { return a.gain() > b.gain(); });
    return out;
  }

 private:
  // In memory at the peak, and neither read nor written there.
  bool is_idle(ValueId id) const {
    const Execution::Memory& memory = lives_.memory(id);
    if (memory.place != Place::kTemporary || memory.bytes == 0) return false;
    const auto& uses = lives_.uses(id);
    const int32_t last = lives_.last(id);
    return lives_.first(id) < peak_ && last > peak_ && last != kAlways &&
           !std::binary_search(uses.begin(), uses.end(), peak_);
  }

  std::optional<Candidate> priced(ValueId id) {
    const auto& uses = lives_.uses(id);
    step_ = *std::upper_bound(uses.begin(), uses.end(), peak_);
    room_ = lives_.memory(id).bytes / kSmallPart;
    extended_ = 0;
    chain_.clear();
    const double flops = price(lives_.graph().value(id).node);
    const int64_t freed = lives_.memory(id).bytes - extended_;
    if (flops == kInfinite || freed <= 0) return std::nullopt;
    return Candidate{id, freed, flops};
  }

  // Of a node and what it needs again.
  double price(NodeId at) {
    if (at == kNoNode) return kInfinite;
    const Node& node = lives_.graph().node(at);
    if (!can_repeat(lives_.graph(), node) || chain_.size() > kLongestChain) return kInfinite;
    if (!chain_.insert(at).second) return 0;
    double flops = lives_.execution().flops[static_cast<size_t>(at)];
    for (const ValueId id : node.operands) {
      if (id == kNoValue || is_there(id)) continue;
      flops += price(lives_.graph().value(id).node);
      if (flops == kInfinite) break;
    }
    return flops;
  }

  // When the chain runs; what is small is kept till then.
  bool is_there(ValueId id) {
    if (lives_.graph().value(id).node == kNoNode) return true;
    const ValueId base = lives_.base(id);
    if (base == kNoValue) return lives_.first(id) < 0;
    if (lives_.last(base) >= step_) return true;
    if (lives_.memory(base).bytes > room_) return false;
    if (lives_.last(base) <= peak_) extended_ += lives_.memory(base).bytes;
    return true;
  }

  const Lives& lives_;
  const int32_t peak_;
  int32_t step_ = 0;
  int64_t room_ = 0, extended_ = 0;
  std::set<NodeId> chain_;
};

/// Writes the graph in the order of its steps, with copies of what is no longer there.
class Writer {
 public:
  Writer(const Lives& lives, int32_t peak, const std::vector<Candidate>& evicted)
      : lives_(lives),
        from_(lives.graph()),
        peak_(peak),
        evicted_(from_.values.size(), false),
        made_(from_.values.size(), kNoValue),
        again_(from_.values.size()),
        after_op_(ir::Registry::global().find("after")->id) {
    for (const Candidate& one : evicted) evicted_[static_cast<size_t>(one.value)] = true;
  }

  ir::Graph write() {
    to_ = from_.frame();
    for (const ValueId id : from_.inputs) {
      const ir::ValueInfo& info = from_.value(id);
      made(id) = to_.add_input(info.name, info.type, info.role);
      to_.value(made(id)).host = info.host;
    }
    const std::vector<std::vector<NodeId>> steps = nodes_of_steps();
    for (size_t step = 0; step < steps.size(); ++step)
      write_step(static_cast<int32_t>(step), steps[step]);
    for (const ir::Output& output : from_.outputs) {
      to_.outputs.push_back({output.name, original(output.value)});
    }
    for (const ir::StateBinding& state : from_.states) {
      to_.states.push_back({original(state.input), original(state.output), state.initial});
    }
    return std::move(to_);
  }

  int32_t nodes() const { return nodes_; }
  double flops() const { return flops_; }

 private:
  struct Again {
    ValueId value = kNoValue;  // of the new graph
    int32_t step = -1;
  };

  ValueId& made(ValueId id) { return made_[static_cast<size_t>(id)]; }
  Again& again(ValueId id) { return again_[static_cast<size_t>(id)]; }
  int32_t step_of(NodeId node) const {
    return lives_.execution().step_of[static_cast<size_t>(node)];
  }

  std::vector<std::vector<NodeId>> nodes_of_steps() const {
    std::vector<std::vector<NodeId>> out(lives_.execution().live.size());
    for (size_t at = 0; at < from_.nodes.size(); ++at) {
      const int32_t step = step_of(static_cast<NodeId>(at));
      if (step >= 0) out[static_cast<size_t>(step)].push_back(static_cast<NodeId>(at));
    }
    return out;
  }

  void write_step(int32_t step, const std::vector<NodeId>& nodes) {
    step_ = step;
    anchor_ = anchor_of(nodes);
    for (const NodeId at : nodes) {
      std::vector<ValueId> operands;
      for (const ValueId id : from_.node(at).operands) operands.push_back(operand(id));
      const NodeId copied = copy(at, std::move(operands));
      for (size_t i = 0; i < from_.node(at).results.size(); ++i) {
        const ValueId id = from_.node(at).results[i];
        made(id) = to_.node(copied).results[i];
        if (lives_.memory(id).place == Place::kTemporary) latest_ = made(id);
      }
    }
  }

  NodeId copy(NodeId at, std::vector<ValueId> operands) {
    const Node& node = from_.node(at);
    std::vector<ir::Type> types;
    for (const ValueId id : node.results) types.push_back(from_.type(id));
    const NodeId out =
        to_.add_node(node.op, std::move(operands), node.attrs, std::move(types), node.location);
    to_.nodes[static_cast<size_t>(out)].regions = node.regions;
    for (size_t i = 0; i < node.results.size(); ++i) {
      to_.value(to_.node(out).results[i]).host = from_.value(node.results[i]).host;
    }
    return out;
  }

  // Views and constants are written where they are read first.
  ValueId original(ValueId id) {
    if (id == kNoValue || made(id) != kNoValue) return id == kNoValue ? id : made(id);
    const NodeId at = from_.value(id).node;
    std::vector<ValueId> operands;
    for (const ValueId operand : from_.node(at).operands) operands.push_back(original(operand));
    const NodeId copied = copy(at, std::move(operands));
    for (size_t i = 0; i < from_.node(at).results.size(); ++i) {
      made(from_.node(at).results[i]) = to_.node(copied).results[i];
    }
    return made(id);
  }

  /// Gives what a node of the step under way reads.
  ValueId operand(ValueId id) {
    room_ = 0;
    if (id != kNoValue && lives_.base(id) != kNoValue) {
      room_ = lives_.memory(lives_.base(id)).bytes / kSmallPart;
    }
    return resolve(id, 0);
  }

  ValueId resolve(ValueId id, size_t depth) {
    if (id == kNoValue || is_there(id)) return original(id);
    if (again(id).value != kNoValue) return again(id).value;
    const NodeId at = from_.value(id).node;
    if (!can_repeat(from_, from_.node(at)) || depth > kLongestChain) return original(id);
    std::vector<ValueId> operands;
    bool waits = false;
    for (const ValueId operand : from_.node(at).operands) {
      operands.push_back(resolve(operand, depth + 1));
      waits = waits || is_copied_here(operand, operands.back());
    }
    if (!waits) delay(at, operands);
    const NodeId copied = copy(at, std::move(operands));
    for (size_t i = 0; i < from_.node(at).results.size(); ++i) {
      again(from_.node(at).results[i]) = {to_.node(copied).results[i], step_};
    }
    if (step_of(at) >= 0) ++nodes_;
    flops_ += lives_.execution().flops[static_cast<size_t>(at)];
    return again(id).value;
  }

  bool is_copied_here(ValueId id, ValueId as) const {
    if (id == kNoValue) return false;
    const Again& copied = again_[static_cast<size_t>(id)];
    return copied.value == as && copied.step == step_;
  }

  bool is_there(ValueId id) const {
    const NodeId maker = from_.value(id).node;
    if (maker == kNoNode || step_of(maker) == step_) return true;
    const ValueId base = lives_.base(id);
    if (base == kNoValue) return step_of(maker) < 0;
    if (evicted_[static_cast<size_t>(base)]) return step_ <= peak_;
    return lives_.last(base) >= step_ || lives_.memory(base).bytes <= room_;
  }

  // Lets the first operand that is computed wait for the anchor.
  void delay(NodeId at, std::vector<ValueId>& operands) {
    if (anchor_ == kNoValue) return;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Node* maker = operands[i] == kNoValue ? nullptr : to_.producer(operands[i]);
      const bool is_constant = maker != nullptr && maker->operands.empty();
      if (operands[i] == kNoValue || is_constant || !to_.type(operands[i]).is_tensor) continue;
      ValueId& late = after_.try_emplace({operands[i], step_}, kNoValue).first->second;
      if (late == kNoValue) {
        const NodeId made = to_.add_node(after_op_, {operands[i], anchor_}, {},
                                         {to_.type(operands[i])}, from_.node(at).location);
        late = to_.node(made).results[0];
      }
      operands[i] = late;
      return;
    }
  }

  /// Finds what copies for a step wait for: the last that it reads, if made at the peak or later;
  /// else what the step before has made.
  ValueId anchor_of(const std::vector<NodeId>& nodes) {
    int32_t latest = peak_ - 1;
    ValueId out = kNoValue;
    for (const NodeId at : nodes) {
      for (const ValueId id : from_.node(at).operands) {
        const ValueId base = id == kNoValue ? kNoValue : lives_.base(id);
        if (base == kNoValue || lives_.first(base) <= latest || lives_.first(base) >= step_) {
          continue;
        }
        latest = lives_.first(base);
        out = made(base);
      }
    }
    return out == kNoValue ? latest_ : out;
  }

  const Lives& lives_;
  const ir::Graph& from_;
  const int32_t peak_;
  std::vector<bool> evicted_;
  std::vector<ValueId> made_;  // by old value
  std::vector<Again> again_;   // by old value: its copy
  const ir::OpId after_op_;
  std::map<std::pair<ValueId, int32_t>, ValueId> after_;
  ir::Graph to_;
  int32_t step_ = 0;
  int64_t room_ = 0;
  ValueId anchor_ = kNoValue, latest_ = kNoValue;
  int32_t nodes_ = 0;
  double flops_ = 0;
};

/// Tries sets of candidates at the peak, the best ones first, and keeps what makes it lower.
class Search {
 public:
  Search(const ir::Graph& graph, Execution execution, const Measure& measure)
      : measure_(measure), execution_(std::move(execution)) {
    best_.graph = graph;
    best_.before = best_.after = execution_.bytes;
  }

  core::Result<Recomputed> run(const RematerializeOptions& options) {
    double flops = 0;
    for (const double each : execution_.flops) flops += each;
    if (options.rematerializes) {
      MITHRIL_RETURN_IF_ERROR(lower({.flops = flops * kForwardShare}));
    } else if (options.unasked && allocates_much(execution_)) {
      const int64_t least = execution_.bytes / kLeastPart;
      MITHRIL_RETURN_IF_ERROR(
          lower({.flops = flops * kSparingShare, .least = least, .tries = kSparingTries}));
    }
    if (options.limit) MITHRIL_RETURN_IF_ERROR(lower({.bytes = options.limit}));
    return std::move(best_);
  }

 private:
  /// Says what the next try takes: a part of the peak's bytes, then ever fewer candidates.
  struct Aim {
    size_t part = 0;  // of kParts
    size_t most = std::numeric_limits<size_t>::max();
    size_t fewest = std::numeric_limits<size_t>::max();  // of those that missed
    std::set<ValueId> refused;                           // alone they are no use

    int64_t bytes(int64_t peak, int64_t over) const {
      if (part + 1 == std::size(kParts)) return std::numeric_limits<int64_t>::max();
      return std::min(over, static_cast<int64_t>(kParts[part] * static_cast<double>(peak)) + 1);
    }

    void miss(const std::vector<Candidate>& chosen) {
      if (chosen.size() == 1) refused.insert(chosen[0].value);
      fewest = std::min(fewest, chosen.size());
      if (part + 1 < std::size(kParts)) {
        ++part;
      } else {
        most = fewest = std::max<size_t>(fewest / 2, 1);
      }
    }
  };

  /// Bounds how far it goes and at what price.
  struct Bounds {
    std::optional<int64_t> bytes;  // of a run: enough
    double flops = kInfinite;      // of all that is computed again
    int64_t least = 1;             // bytes that a try must promise
    int tries = kMostTries;
  };

  core::Status lower(const Bounds& bounds) {
    Aim aim;
    for (int tries = 0; tries < bounds.tries && !execution_.live.empty(); ++tries) {
      if (bounds.bytes && execution_.bytes <= *bounds.bytes) break;
      const Lives lives(best_.graph, execution_);
      const auto highest = std::max_element(execution_.live.begin(), execution_.live.end());
      const auto peak = static_cast<int32_t>(highest - execution_.live.begin());
      const int64_t over = bounds.bytes ? execution_.bytes - *bounds.bytes : *highest;
      const std::vector<Candidate> chosen =
          choose(Candidates(lives, peak).find(aim.refused), aim.bytes(*highest, over),
                 bounds.flops - best_.flops, aim.most);
      int64_t freed = 0;
      for (const Candidate& one : chosen) freed += one.freed;
      if (freed < bounds.least) break;
      MITHRIL_ASSIGN(const bool better, attempt(lives, peak, chosen, bounds.flops));
      if (better) {
        aim = {};
      } else {
        aim.miss(chosen);
      }
    }
    return {};
  }

  static std::vector<Candidate> choose(const std::vector<Candidate>& candidates, int64_t wanted,
                                       double flops, size_t most) {
    std::vector<Candidate> out;
    for (const Candidate& one : candidates) {
      if (wanted <= 0 || out.size() >= most) break;
      if (one.flops > flops) continue;
      wanted -= one.freed;
      flops -= one.flops;
      out.push_back(one);
    }
    return out;
  }

  core::Result<bool> attempt(const Lives& lives, int32_t peak, const std::vector<Candidate>& chosen,
                             double most_flops) {
    Writer writer(lives, peak, chosen);
    MITHRIL_ASSIGN(ir::Graph graph,
                   remove_dead(writer.write()));  // what only moves to a later step
    if (best_.flops + writer.flops() > most_flops) return false;
    MITHRIL_ASSIGN(Execution execution, measure_(graph));
    if (height(execution) >= height(execution_)) return false;
    best_.graph = std::move(graph);
    best_.nodes += writer.nodes();
    best_.flops += writer.flops();
    best_.after = execution.bytes;
    execution_ = std::move(execution);
    return true;
  }

  static std::pair<int64_t, int64_t> height(const Execution& execution) {
    return {execution.bytes, *std::max_element(execution.live.begin(), execution.live.end())};
  }

  const Measure& measure_;
  Recomputed best_;
  Execution execution_;  // of the best graph
};

}  // namespace

bool allocates_much(const Execution& execution) { return execution.bytes > kMuch; }

core::Result<Recomputed> rematerialize(const ir::Graph& graph, const Measure& measure,
                                       const RematerializeOptions& options) {
  MITHRIL_ASSIGN(Execution execution, measure(graph));
  return rematerialize(graph, std::move(execution), measure, options);
}

core::Result<Recomputed> rematerialize(const ir::Graph& graph, Execution execution,
                                       const Measure& measure,
                                       const RematerializeOptions& options) {
  return Search(graph, std::move(execution), measure).run(options);
}

}  // namespace mithril::passes

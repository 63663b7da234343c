// The ops that outputs need, and kinds for what nothing decides.
#include <algorithm>

#include "model/flatten/flat_model.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

std::vector<NodeId> FlatModel::all_leaves() const {
  std::vector<NodeId> leaves_found, stack{node()};
  while (!stack.empty()) {
    const NodeId at = stack.back();
    stack.pop_back();
    const Node& n = tree().node(at);
    if (n.op != nullptr) leaves_found.push_back(at);
    stack.insert(stack.end(), n.children.rbegin(), n.children.rend());
  }
  return leaves_found;
}

void FlatModel::map_producers(const std::vector<NodeId>& all) {
  for (const NodeId leaf : all) {
    for (const ConnId c : tree().node(leaf).conns) {
      if (tree().conn(c).produced()) producer_[edge(c)] = c;
    }
  }
}

// Wires that depend on a discarded input.
std::unordered_set<EdgeId> FlatModel::spoiled(const std::vector<NodeId>& all) const {
  std::unordered_set<EdgeId> bad;
  for (const EdgeId e : discard_) {
    if (producer_.count(e) == 0) bad.insert(e);
  }
  for (size_t before = 0; before != bad.size() && !bad.empty();) {
    before = bad.size();
    for (const NodeId leaf : all) {
      const auto& conns = tree().node(leaf).conns;
      const bool reads = std::any_of(conns.begin(), conns.end(), [&](ConnId c) {
        return !tree().conn(c).produced() && bad.count(edge(c)) != 0;
      });
      if (!reads) continue;
      for (const ConnId c : conns) {
        if (tree().conn(c).produced()) bad.insert(edge(c));
      }
    }
  }
  return bad;
}

bool FlatModel::is_read(EdgeId e, const std::vector<NodeId>& all) const {
  return std::any_of(all.begin(), all.end(), [&](NodeId leaf) {
    const auto& conns = tree().node(leaf).conns;
    return std::any_of(conns.begin(), conns.end(),
                       [&](ConnId c) { return !tree().conn(c).produced() && edge(c) == e; });
  });
}

void FlatModel::find_outputs() {
  const Node& root = tree().node(node());
  const std::vector<NodeId> all = all_leaves();
  map_producers(all);
  const std::unordered_set<EdgeId> bad = spoiled(all);
  std::vector<ConnId> wanted = root.outputs;
  if (wanted.empty()) {
    for (const auto& [sequence, c] : root.couts) wanted.push_back(c);
  }
  std::unordered_set<std::string> taken;
  for (const ConnId c : root.conns) {
    if (tree().conn(c).merged == kNone && !tree().conn(c).name.empty()) {
      taken.insert(tree().conn(c).name);
    }
  }
  for (const ConnId c : wanted) {
    if (bad.count(edge(c)) != 0) continue;
    if (discard_.count(edge(c)) != 0) {
      if (!options.drops_discarded && is_read(edge(c), all)) unreturned_.push_back(edge(c));
      continue;
    }
    std::string name = tree().conn(c).name;
    if (name.empty()) {
      name = tree().conn(c).origin;
      while (taken.count(name) != 0) name.insert(0, 1, '_');
      taken.insert(name);
    }
    outputs.emplace_back(std::move(name), edge(c));
  }
  for (const auto& [name, wire] : options.fetch) {
    outputs.emplace_back(name, edge(resolve_anywhere(at_, wire, options.where)));
  }
  if (!outputs.empty()) return;
  if (!wanted.empty()) {
    out.warnings.push_back({"EmptyModelWarning", "discard_keys leave no output"});
    return;
  }
  if (root.children.empty() && root.op == nullptr) {
    out.warnings.push_back({"EmptyModelWarning", "the model is empty: it has no outputs"});
    return;
  }
  core::Error error = core::fail(ErrorKind::kKey, Code::kKeyMissing,
                                 "the model has no outputs: nothing is exposed, and there is no "
                                 "canonical output");
  error.hint = "expose a key with `expose_keys`, or choose one with `set_cout`";
  raise(std::move(error), options.where);
}

const std::string& FlatModel::mode(NodeId leaf) const {
  static const std::string kNoMode, kTrain = "train", kEval = "eval";
  const HostValue* given = tree().node(leaf).attrs.find("mode");
  if (given == nullptr) return kNoMode;
  for (const std::string* named : {&kTrain, &kEval}) {
    if (given->is_string() && given->as_string() == *named) return *named;
  }
  if (!given->is_none()) return kNoMode;  // another op's own mode
  return options.mode == Mode::kTrain ? kTrain : kEval;
}

bool FlatModel::has_state(NodeId leaf) const {
  const std::string& own = mode(leaf);
  return own.empty() ? options.mode == Mode::kTrain : own == "train";
}

std::unordered_set<NodeId> FlatModel::reachable() const {
  std::unordered_map<EdgeId, EdgeId> state_of;  // what feeds a state input
  for (const Binding& binding : bindings) state_of[binding.input] = binding.output;
  std::unordered_set<NodeId> needed;
  std::vector<EdgeId> stack;
  for (const auto& [name, e] : outputs) stack.push_back(e);
  stack.insert(stack.end(), unreturned_.begin(), unreturned_.end());
  while (!stack.empty()) {
    const EdgeId e = stack.back();
    stack.pop_back();
    const auto written = producer_.find(e);
    if (written == producer_.end()) {
      const auto state = state_of.find(e);
      if (state != state_of.end()) {
        stack.push_back(state->second);
        state_of.erase(state);
      }
      continue;
    }
    const NodeId leaf = tree().conn(written->second).node;
    if (!needed.insert(leaf).second) continue;
    for (const ConnId c : tree().node(leaf).conns) {
      if (!tree().conn(c).produced()) stack.push_back(edge(c));
    }
  }
  return needed;
}

void FlatModel::find_leaves() {
  std::vector<NodeId> stack{node()};
  while (!stack.empty()) {  // state bindings of all levels
    const NodeId at = stack.back();
    const Node& n = tree().node(at);
    stack.pop_back();
    for (const State& state : n.states) {
      bindings.push_back(
          {edge(tree().surviving(state.input)), edge(tree().surviving(state.output)), at});
      if (state.initial) initial_state_[bindings.back().input] = *state.initial;
    }
    stack.insert(stack.end(), n.children.rbegin(), n.children.rend());
  }
  const std::unordered_set<NodeId> needed = reachable();
  std::unordered_map<NodeId, uint8_t> seen;
  for (const NodeId start : all_leaves()) {
    if (needed.count(start) == 0) continue;
    stack.push_back(start);
    while (!stack.empty()) {
      const NodeId at = stack.back();
      uint8_t& state = seen[at];
      if (state != 0) {
        if (state == 1) leaves.push_back({at, mode(at)});
        state = 2;
        stack.pop_back();
        continue;
      }
      state = 1;
      const size_t first = stack.size();
      for (const ConnId c : tree().node(at).conns) {
        if (tree().conn(c).produced()) continue;
        const auto written = producer_.find(edge(c));
        if (written == producer_.end()) continue;
        const NodeId from = tree().conn(written->second).node;
        if (seen.find(from) == seen.end()) stack.push_back(from);
      }
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
    }
  }
  for (const FlatLeaf& leaf : leaves) {
    const Node& n = tree().node(leaf.node);
    for (const ConnId c : n.conns) {
      if (tree().conn(c).produced()) continue;
      const ir::InputDef* input = n.op->find_input(tree().conn(c).name);
      readers_.emplace(edge(c), Reader{leaf.node, input});
      // A trainable key tells more than a plain reader that came first.
      Reader& reader = readers_[edge(c)];
      const bool says_more = input != nullptr && (input->trainable || !input->next.empty());
      const bool said =
          reader.input != nullptr && (reader.input->trainable || !reader.input->next.empty());
      if (says_more && !said) reader = {leaf.node, input};
    }
    for (const ir::InputDef& input : n.op->inputs) {
      needs_rng |= is_random_key(input) && has_state(leaf.node);
    }
  }
}

namespace {
// The kind that data have, or the next wider one: bool < int < float.
KindSet preferred_kind(KindSet kinds, core::Kind given) {
  for (const core::Kind kind : {core::Kind::kBool, core::Kind::kInt, core::Kind::kFloat}) {
    if (kind >= given && kinds.meets(infer::tensor_of(kind))) return infer::tensor_of(kind);
  }
  return kinds.meets(infer::kTensorInt) ? infer::kTensorInt : infer::kTensorBool;
}
}  // namespace

std::vector<EdgeId> FlatModel::open_inputs() const {
  std::vector<EdgeId> found;
  for (const ConnId c : root_inputs()) {
    const EdgeId e = edge(c);
    if (readers_.count(e) != 0 && constant(e) == nullptr) found.push_back(e);
  }
  return found;
}

std::vector<infer::CellId> FlatModel::cells_of(EdgeId e) const {
  std::vector<infer::CellId> items = tensors_of(e);
  return items.empty() ? std::vector<infer::CellId>{cell(e)} : items;
}

void FlatModel::note_open_kinds() {
  for (const EdgeId e : open_inputs()) {
    for (const infer::CellId at : cells_of(e)) {
      const KindSet kinds = solver_->kinds(at) & infer::kTensor;
      if (kinds.count() > 1) open_kinds_[at.index] = kinds;
    }
  }
}

core::Status FlatModel::decide_wire(infer::CellId at, infer::FactId fact, core::Kind given) {
  KindSet kinds = solver_->kinds(at);
  if (!kinds.decided()) {
    MITHRIL_RETURN_IF_ERROR(solver_->assert_kind(at, infer::kTensor, fact));
    MITHRIL_RETURN_IF_ERROR(solver_->propagate());
    kinds = solver_->kinds(at);
  }
  if (!kinds.is_tensor() || kinds.single()) return {};
  MITHRIL_RETURN_IF_ERROR(solver_->assert_kind(at, preferred_kind(kinds, given), fact));
  return solver_->propagate();
}

// What is trained comes first, and of data the widest: those that are tied have one kind.
core::Status FlatModel::decide_given(infer::FactId fact) {
  if (options.element_kinds.empty()) return {};
  for (const EdgeId e : open_inputs()) {
    if (!is_trained(e)) continue;
    for (const infer::CellId at : cells_of(e)) MITHRIL_RETURN_IF_ERROR(decide_wire(at, fact));
  }
  for (const core::Kind kind : {core::Kind::kFloat, core::Kind::kInt, core::Kind::kBool}) {
    for (const auto& [key, item, given] : options.element_kinds) {
      const std::vector<infer::CellId> cells = cells_of(edge(option_key(key, "evaluate", true)));
      if (given != kind || item >= cells.size()) continue;
      MITHRIL_RETURN_IF_ERROR(decide_wire(cells[item], fact, kind));
    }
  }
  return {};
}

core::Status FlatModel::decide() {
  const infer::FactId fact = solver_->new_fact(options.where, "undecided inputs are float tensors");
  note_open_kinds();
  MITHRIL_RETURN_IF_ERROR(decide_given(fact));
  for (const EdgeId e : open_inputs()) {
    MITHRIL_RETURN_IF_ERROR(decide_wire(cell(e), fact));
    for (const infer::CellId item : tensors_of(e)) {
      MITHRIL_RETURN_IF_ERROR(decide_wire(item, fact));
    }
  }
  return {};
}

const HostValue* FlatModel::constant(EdgeId e) const {
  const auto found = constants_.find(e);
  if (found != constants_.end()) return &found->second;
  const Edge& at = tree().edges[e];
  return at.value && !at.initial ? &*at.value : nullptr;
}

}  // namespace mithril::model

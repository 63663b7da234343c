// What a model can tell about itself: why a wire is as it is, which sizes are legal, which inputs
// look like misspelt wires.
#include <algorithm>

#include "model/explain/explain.h"

namespace mithril::model {

using core::Code;
using core::Error;
using core::ErrorKind;

// --- why ----------------------------------------------------------------------------------------

std::vector<infer::Reason> Model::why(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  const ConnId conn = resolve_anywhere(at, key, {});
  solve();
  ModelTree& tree = at.tree();
  const infer::CellId cell = tree.cell(tree.conn(conn).edge);
  constexpr size_t kMostFacts = 64;
  return Narrator(tree, *tree.solver).chain(tree.solver->facts_behind(cell), kMostFacts, 0);
}

// --- legal sizes --------------------------------------------------------------------------------

namespace {

/// Tries sizes on a copy of the solver; every trial is undone.
class Search {
 public:
  Search(const infer::Solver& solver, int64_t most, uint64_t steps)
      : solver_(solver.clone()), most_(most), steps_(steps) {}

  infer::Solver& solver() { return solver_; }
  /// Symbols of inputs: a size that holds for empty data only is none to offer.
  void keep_positive(std::vector<infer::Dim> symbols) { positive_ = std::move(symbols); }

  std::vector<int64_t> legal(infer::Dim symbol, const std::vector<infer::Dim>& others) {
    std::vector<int64_t> out;
    for (const int64_t size : candidates(symbol)) {
      const infer::Mark mark = solver_.mark();
      if (holds(symbol, size) && completes(others)) out.push_back(size);
      solver_.undo(mark);
    }
    return out;
  }

 private:
  std::vector<int64_t> candidates(infer::Dim symbol) const {
    std::vector<int64_t> few = solver_.possible_values(symbol);
    std::erase_if(few, [this](int64_t size) { return size < 1 || size > most_; });
    if (!few.empty()) return few;
    for (int64_t size = 1; size <= most_; ++size) few.push_back(size);
    return few;
  }

  bool holds(infer::Dim symbol, int64_t size) {
    if (used_ >= steps_) {
      Error error = core::fail(ErrorKind::kUnsupported, Code::kStepLimit,
                               "solve: the search is not finished after its last step");
      error.hint = "give a larger steps=, a smaller at_most=, or the keys that matter";
      raise(std::move(error));
    }
    const uint64_t before = solver_.steps();  // an undo takes steps back
    const bool ok = solver_.assume(symbol, size).ok() && solver_.propagate().ok();
    used_ += 1 + solver_.steps() - before;
    return ok && std::none_of(positive_.begin(), positive_.end(), [this](infer::Dim dim) {
             const infer::Dim now = solver_.resolve(dim);
             return now.known() && now.value() < 1;
           });
  }

  // Depth first, each open symbol in turn.
  bool completes(const std::vector<infer::Dim>& others) {
    const auto open = std::find_if(others.begin(), others.end(), [this](infer::Dim symbol) {
      const infer::Dim now = solver_.resolve(symbol);
      return !now.known() && solver_.dims().is_symbol(now);
    });
    if (open == others.end()) return true;
    const infer::Dim symbol = solver_.resolve(*open);
    for (const int64_t size : candidates(symbol)) {
      const infer::Mark mark = solver_.mark();
      const bool found = holds(symbol, size) && completes(others);
      solver_.undo(mark);
      if (found) return true;
    }
    return false;
  }

  infer::Solver solver_;
  std::vector<infer::Dim> positive_;
  int64_t most_;
  uint64_t steps_;
  uint64_t used_ = 0;
};

void add_symbols(infer::Solver& solver, infer::CellId cell, std::vector<infer::Dim>& out) {
  if (!cell.valid() || !solver.kinds(cell).is_tensor()) return;
  const infer::ShapeView view = solver.shape_view(cell);
  for (const auto* part : {&view.prefix, &view.suffix}) {
    for (const infer::Dim dim : *part) {
      const infer::Dim now = solver.resolve(dim);
      if (now.known()) continue;
      for (const infer::Dim symbol : solver.dims().symbols_of(now)) {
        if (std::find(out.begin(), out.end(), symbol) == out.end()) out.push_back(symbol);
      }
    }
  }
}

}  // namespace

std::vector<LegalSizes> Model::legal_sizes(const std::vector<KeyRef>& keys, int64_t most,
                                           uint64_t steps) const {
  const Access::At at = Access::at(*this);
  std::vector<ConnId> conns;
  for (const KeyRef& key : keys) conns.push_back(resolve_anywhere(at, key, {}));
  if (keys.empty()) conns = at.get().conns;
  solve();
  Search search(*at.tree().solver, most, steps);
  infer::ShapeNames names;
  std::vector<infer::Dim> symbols;
  for (const ConnId c : conns) {
    const infer::CellId cell = at.tree().edge_of(c).cell;
    add_symbols(search.solver(), cell, symbols);
    // The names that `shapes` gives: by first appearance.
    if (cell.valid() && keys.empty()) search.solver().print_shape(cell, names);
  }
  std::vector<infer::Dim> inputs;
  for (const ConnId c : at.get().conns) {
    if (!at.tree().conn(c).produced()) {
      add_symbols(search.solver(), at.tree().edge_of(c).cell, inputs);
    }
  }
  search.keep_positive(std::move(inputs));
  std::vector<LegalSizes> out;
  for (const infer::Dim symbol : symbols) {
    out.push_back({names.dim(search.solver().dims(), symbol), search.legal(symbol, symbols)});
  }
  return out;
}

// --- near misses --------------------------------------------------------------------------------

namespace {

Error::Fact place_of(const ModelTree& tree, ConnId key, std::string_view verb) {
  if (key == kNone) return {};
  const NodeId node = tree.conn(key).node;
  return {fmt::format("{} by '{}' of {}", verb, tree.key(key), title(tree.node(node))),
          tree.node(node).where, title(tree.node(node)), 0};
}

// Names that differ in their numbers only, or are short, are different names.
bool is_near(const std::string& name, const std::string& other) {
  constexpr size_t kShortest = 4;
  if (name.size() < kShortest || other.size() < kShortest) return false;
  const auto letters = [](std::string text) {
    std::erase_if(text, [](unsigned char c) { return c >= '0' && c <= '9'; });
    return text;
  };
  return letters(name) != letters(other) && !core::suggestion(name, {other}).empty();
}

}  // namespace

std::vector<NearMiss> Model::near_misses() const {
  const Access::At at = Access::at(*this);
  const ModelTree& tree = at.tree();
  std::vector<ConnId> inputs, wires;
  for (const ConnId c : at.get().conns) {
    const Conn& conn = tree.conn(c);
    if (conn.merged != kNone || conn.name.empty() || tree.is_valued(c)) continue;
    if (conn.produced()) wires.push_back(c);
    if (!conn.produced() && !tree.edge_of(c).trainable) inputs.push_back(c);
  }
  std::vector<NearMiss> out;
  for (const ConnId input : inputs) {
    for (const ConnId wire : wires) {
      if (!is_near(tree.conn(input).name, tree.conn(wire).name)) continue;
      out.push_back({tree.conn(input).name, tree.conn(wire).name,
                     place_of(tree, tree.conn(input).first_consumer, "read"),
                     place_of(tree, tree.conn(wire).producer, "written")});
      break;
    }
  }
  return out;
}

std::optional<infer::Reason> Model::first_reader(std::string_view key) const {
  const Access::At at = Access::at(*this);
  const ConnId conn = at.tree().find(at.node, key);
  if (conn == kNone || at.tree().conn(conn).first_consumer == kNone) return std::nullopt;
  return place_of(at.tree(), at.tree().conn(conn).first_consumer, "read");
}

}  // namespace mithril::model

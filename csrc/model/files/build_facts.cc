// Plays what a model file says was said, in its order, with the same stops of the solver.
#include "model/files/build.h"
#include "model/files/type.h"
#include "model/files/usual.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

// Counts entries of the history up to the next run of the solver.
class Stops {
 public:
  explicit Stops(const std::vector<int64_t>* runs) : runs_(runs) {}
  bool is_next() {
    if (runs_ == nullptr || at_ + 1 >= runs_->size() || ++count_ < (*runs_)[at_]) return false;
    count_ = 0;
    if (++times_ == (*runs_)[at_ + 1]) {
      times_ = 0;
      at_ += 2;
    }
    return true;
  }

 private:
  const std::vector<int64_t>* runs_;
  size_t at_ = 0;
  int64_t count_ = 0, times_ = 0;
};

}  // namespace

void ModelBuilder::state_facts() {
  std::vector<const Made*> ops;
  for (const Made& made : made_) {
    if (made.op != nullptr) ops.push_back(&made);
  }
  const std::vector<Run> usual{{true, 0, ops.size()}, {false, 0, file_.facts.size()}};
  const std::vector<Run>& order = file_.history ? file_.history->order : usual;
  check_order(order, ops.size());
  Stops stops(file_.history ? &file_.history->stops : nullptr);
  const auto solve_at_stop = [&] {
    if (stops.is_next()) check(tree_.infer(), where_, tree_.node(0).name);
  };
  size_t done = 0;
  for (const Run& run : order) {
    for (size_t i = run.first; i < run.first + run.count; ++i, ++done) {
      while (is_merged_next(done)) {
        merge_next();
        solve_at_stop();
      }
      run.ops ? state_op(*ops[i], i) : state_statement(file_.facts[i], i);
      solve_at_stop();
    }
  }
  while (joined_ < parts_.size()) {
    merge_next();
    solve_at_stop();
  }
  for (size_t i = 0; i < made_.size(); ++i) {
    tree_.node(made_[i].node).where = place(&HistoryRecord::models, i);
  }
  for (const Made* made : ops) {
    if (made->part == nullptr) continue;
    if (!made->part->cins) {
      for (const ConnId c : usual_cins(tree_, made->node)) tree_.add_cin(c);
    }
    if (!made->part->couts) {
      for (const ConnId c : usual_couts(tree_, made->node)) tree_.add_cout(c);
    }
  }
  check_values();
}

void ModelBuilder::check_values() const {
  for (const Conn& c : tree_.conns) {
    const Edge& edge = tree_.edges[tree_.root(c.edge)];
    if (c.outer != kNone || !edge.value || edge.initial) continue;
    if (c.produced()) {
      refuse(fmt::format("'{}' is computed and cannot have a value", edge.label),
             ErrorKind::kMultiWrite, Code::kMultiWrite);
    }
    if (!edge.differentiable.value_or(false)) continue;
    refuse(fmt::format("'{}' has a fixed value and cannot be differentiable", edge.label),
           ErrorKind::kValue, Code::kDifferentiability);
  }
}

void ModelBuilder::check_order(const std::vector<Run>& order, size_t ops) const {
  std::vector<bool> seen(ops + file_.facts.size());
  size_t count = 0;
  for (const Run& run : order) {
    const size_t base = run.ops ? 0 : ops, most = run.ops ? ops : file_.facts.size();
    if (run.first > most || run.count > most - run.first) refuse("a history of other facts");
    for (size_t i = run.first; i < run.first + run.count; ++i) {
      if (seen[base + i]) refuse("a history that has a fact twice");
      seen[base + i] = true;
      ++count;
    }
  }
  if (count != seen.size()) refuse("a history without some of the facts");
}

Location ModelBuilder::place(const std::vector<int64_t> HistoryRecord::*list, size_t index) const {
  if (!file_.history) return {};
  return place((*file_.history).*list, index);
}

Location ModelBuilder::place(const std::vector<int64_t>& places, size_t index) const {
  Location out;
  if (2 * index + 1 >= places.size()) refuse("a history that lacks places");
  const auto file = static_cast<size_t>(places[2 * index]);
  if (file >= file_.history->files.size()) refuse("a history that lacks files");
  out.file = file_.history->files[file];
  out.line = static_cast<int>(places[2 * index + 1]);
  return out;
}

void ModelBuilder::state_op(const Made& made, size_t index) {
  const uint32_t fact =
      tree_.new_fact(place(&HistoryRecord::ops, index), title(tree_.node(made.node)));
  mention_ = {-1, 0};
  for (const Said& said : made.op->facts) {
    uint32_t scope = kNone;
    state(said, made.node, fact, scope);
  }
  for (const auto& [key, value] : made.op->values) {
    state_value(wire(made.node, key), value, fact);
  }
  tree_.state_rule(made.node, fact);
}

void ModelBuilder::state_statement(const StatementRecord& record, size_t index) {
  const uint32_t fact = tree_.new_fact(place(&HistoryRecord::facts, index), std::string(record.by));
  uint32_t scope = kNone;
  mention_ = {static_cast<int64_t>(index), 0};
  for (const Said& said : record.says) state(said, model_named(said.model), fact, scope);
  if (record.constraint) state_constraint(*record.constraint, fact);
}

void ModelBuilder::state_constraint(const ConstraintRecord& record, uint32_t fact) {
  NodeId node = model_named(record.model);
  if (record.part) {
    const std::vector<NodeId>& parts = tree_.node(node).children;
    const auto part = static_cast<size_t>(*record.part);
    if (part >= parts.size() || tree_.node(parts[part]).op == nullptr) {
      refuse(fmt::format("a constraint on part {} of {}, which is no op", part, describe(node)));
    }
    node = parts[part];
  }
  UserConstraint added;
  for (const Name key : record.keys) {
    added.keys.push_back(wire(node, key));
    added.edges.push_back(edge_of_mention(added.keys.back()));
  }
  for (const int64_t number : record.after) {
    if (static_cast<size_t>(number) >= tree_.node(node).constraints.size()) {
      refuse("a constraint that waits for one that is not there yet");
    }
    added.after.push_back(static_cast<uint32_t>(number));
  }
  added.name = record.name;
  auto relate = find_ ? find_(record.name, static_cast<int>(record.keys.size())) : nullptr;
  if (!relate) refuse_unregistered(record.name);
  tree_.state_constraint(node, std::move(added), std::move(relate), fact);
}

void ModelBuilder::refuse_unregistered(Name name) const {
  core::Error error =
      core::fail(ErrorKind::kKey, Code::kOpUnknown, "{}: no constraint is registered as '{}'",
                 kWhat, name.substr(0, 200));
  error.hint = fmt::format(
      "register its function before reading: ml.constraints.register(function, name='{}')",
      name.substr(0, 60));
  raise(std::move(error), where_);
}

NodeId ModelBuilder::model_named(Name id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) refuse(fmt::format("there is no submodel '{}'", id.substr(0, 200)));
  return found->second;
}

// `scope`: of the names of sizes in this statement, made when it is needed.
void ModelBuilder::state(const Said& said, NodeId model, uint32_t fact, uint32_t& scope) {
  const ConnId conn = wire(model, said.wire);
  const bool has_next = said.type == Said::Type::kNext;
  const ConnId next = has_next ? wire(model_named(said.next_model), said.next) : kNone;
  if (has_next) {
    const auto bound = next_.find(outermost(conn));
    if (bound == next_.end() || bound->second != outermost(next)) {
      refuse(fmt::format("'{}' does not carry state", said.wire));
    }
  }
  const EdgeId edge = edge_of_mention(conn);
  const EdgeId next_edge = has_next ? edge_of_mention(next) : kNone;
  const size_t first = tree_.log.size();
  state(said, conn, next, fact, scope);
  for (size_t i = first; i < tree_.log.size(); ++i) {
    tree_.log[i].id = edge;
    if (has_next) tree_.log[i].other = next_edge;
  }
}

void ModelBuilder::state(const Said& said, ConnId conn, ConnId next, uint32_t fact,
                         uint32_t& scope) {
  switch (said.type) {
    case Said::Type::kNothing:
      if (said.is_newer) return;
      refuse("a fact that says nothing");
    case Said::Type::kType:
      if (!said.interval || said.content.kinds != kMeasured) {
        tree_.state_type(conn, said.content, fact);
      }
      if (said.interval) tree_.state_interval(conn, *said.interval, fact);
      return;
    case Said::Type::kShape: {
      uint32_t at = kNone;
      if (said.scope) {
        const auto [found, is_new] = scopes_.emplace(*said.scope, kNone);
        if (is_new) found->second = tree_.new_scope();
        at = found->second;
      } else {
        if (scope == kNone) scope = tree_.new_scope();
        at = scope;
      }
      return tree_.state_shape(conn, said.shape, at, fact);
    }
    case Said::Type::kValue: return state_value(conn, said.value, fact);
    case Said::Type::kNext: return tree_.state_next(conn, next, fact);
  }
}

void ModelBuilder::state_value(ConnId conn, const HostValue& value, uint32_t fact) {
  const Edge& edge = tree_.edge_of(conn);
  if (edge.value && !(*edge.value == value && !edge.initial)) {
    refuse(fmt::format("'{}' would have two values", tree_.key(conn)), ErrorKind::kValue,
           Code::kValueConflict);
  }
  tree_.state_value(conn, value, false, fact);
}

}  // namespace mithril::model

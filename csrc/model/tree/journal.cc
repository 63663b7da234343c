// Transactions: what a call did to a tree is kept, or taken back entry by entry.
#include "model/tree/tree.h"

namespace mithril::model {

void ModelTree::refuse_busy(const Location& where) const {
  if (!recording_ && readers_ == 0) return;
  core::Error error = core::fail(core::ErrorKind::kFrozen, core::Code::kModelFrozen,
                                 "the model is busy: a call that changes or compiles it has not "
                                 "returned yet");
  error.hint = "a constraint states facts about the keys that it is given, and changes no model";
  raise(std::move(error), where);
}

Transaction::Transaction(ModelTree& tree, Purpose purpose) : tree_(tree) {
  tree.refuse_busy({});
  if (purpose == Purpose::kChange) tree.part_from_snapshots();
  tree.start();
}

Transaction::~Transaction() {
  if (done_) return;
  tree_.undo_to_start();
  tree_.finish();
}

void Transaction::commit() {
  if (tree_.mark_) tree_.solver->release(*tree_.mark_);
  tree_.finish();
  done_ = true;
}

void ModelTree::start() {
  recording_ = true;
  ++stamp_;
  start_nodes_ = nodes.size();
  start_conns_ = conns.size();
  start_edges_ = edges.size();
  start_facts_ = facts.size();
  start_scopes_ = scopes.size();
  start_log_ = log.size();
  start_statements_ = statements.size();
  start_played_ = played;
  had_solver_ = solver != nullptr;
}

void ModelTree::finish() {
  recording_ = false;
  undo_.clear();
  saved_conns_.clear();
  saved_edges_.clear();
  saved_nodes_.clear();
  relabelled_.clear();
  mark_.reset();
}

void ModelTree::undo_to_start() {
  if (mark_) solver->undo(*mark_);
  for (auto entry = undo_.rbegin(); entry != undo_.rend(); ++entry) undo(*entry);
  nodes.resize(start_nodes_);
  conns.resize(start_conns_);
  edges.resize(start_edges_);
  facts.resize(start_facts_);
  scopes.resize(start_scopes_);
  log.resize(start_log_);
  statements.resize(start_statements_);
  played = start_played_;
  while (!stops.empty() && stops.back() > start_log_) stops.pop_back();
  if (had_solver_) return;
  solver.reset();
  for (Fact& fact : facts) fact.id = {};
  for (infer::ScopeId& scope : scopes) scope = {};
}

void ModelTree::undo(const Undo& entry) {
  using Type = Undo::Type;
  switch (entry.type) {
    case Type::kConn: conns[entry.a] = std::move(saved_conns_[entry.b]); return;
    case Type::kEdge: edges[entry.a] = std::move(saved_edges_[entry.b]); return;
    default: break;
  }
  Node& n = nodes[entry.node];
  switch (entry.type) {
    case Type::kConn:
    case Type::kEdge: return;
    case Type::kNode: n = std::move(saved_nodes_[entry.a]); return;
    case Type::kPopConn: n.conns.pop_back(); return;
    case Type::kPopNumber: n.numbered.pop_back(); return;
    case Type::kPopChild: n.children.pop_back(); return;
    case Type::kPopOutput: n.outputs.pop_back(); return;
    case Type::kEraseName: n.names.erase(entry.text); return;
    case Type::kInsertName: n.names.emplace(entry.text, entry.a); return;
    case Type::kEraseChildName: n.child_names.erase(entry.text); return;
    case Type::kEraseCin:
      n.cins.erase(entry.a);
      n.next_sequence = entry.a;
      return;
    case Type::kInsertCin: n.cins.insert(entry.a, entry.b); return;
    case Type::kEraseCout:
      n.couts.erase(entry.a);
      n.next_sequence = entry.a;
      return;
    case Type::kInsertCout: n.couts.insert(entry.a, entry.b); return;
  }
}

}  // namespace mithril::model

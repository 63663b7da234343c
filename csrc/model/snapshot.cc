#include "model/snapshot.h"

#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

// The copy has the solver's state, too, so that it says what the tree would have said.
std::unique_ptr<ModelTree> ModelTree::copy() const {
  auto out = std::make_unique<ModelTree>();
  out->nodes = nodes;
  out->conns = conns;
  out->edges = edges;
  out->facts = facts;
  out->scopes = scopes;
  out->log = log;
  out->statements = statements;
  out->played = played;
  out->stops = stops;
  out->item_names_ = item_names_;
  out->stamp_ = stamp_;
  if (solver != nullptr) out->solver = std::make_unique<infer::Solver>(solver->clone());
  return out;
}

void ModelTree::part_from_snapshots() {
  if (const std::shared_ptr<Home> before = snapshot.lock()) before->tree = copy();
  snapshot.reset();
}

namespace {

/// The home that snapshots of a tree look at.
std::shared_ptr<Home> shared_view(const std::shared_ptr<Home>& live) {
  if (std::shared_ptr<Home> found = live->tree->snapshot.lock()) return found;
  auto made = std::make_shared<Home>();
  made->tree = live->tree;
  live->tree->snapshot = made;
  return made;
}

// The id before an edit, of one after it.
uint32_t before_cut(const std::vector<uint32_t>& removed, size_t count, uint32_t id) {
  for (const uint32_t gone : removed) {
    if (gone > id) break;
    ++id;
  }
  return id < count ? id : kNone;
}

// The id in `home`, of one in the tree that it leads to at once.
uint32_t step_back(const Home& home, uint32_t id, bool is_node) {
  if (home.cut != nullptr) {
    return is_node ? before_cut(home.cut->nodes, home.cut->node_count, id)
                   : before_cut(home.cut->conns, home.cut->conn_count, id);
  }
  const uint32_t offset = is_node ? home.offsets.nodes : home.offsets.conns;
  return id < offset ? kNone : id - offset;
}

/// The id in `origin`, of one in `home`; kNone where the first does not lead to the second.
uint32_t id_in(const std::shared_ptr<Home>& origin, const Home* home, uint32_t id, bool is_node) {
  std::vector<const Home*> passed;
  const Home* at = origin.get();
  for (; at != home && at->forward != nullptr; at = at->forward.get()) passed.push_back(at);
  if (at != home) return kNone;
  for (auto step = passed.rbegin(); step != passed.rend() && id != kNone; ++step) {
    id = step_back(**step, id, is_node);
  }
  return id;
}

}  // namespace

Snapshot::Snapshot(const Model& model) : origin_(Access::at(model).home), model_(model) {
  const Access::At at = Access::at(model);
  nodes_ = static_cast<uint32_t>(at.tree().nodes.size());
  conns_ = static_cast<uint32_t>(at.tree().conns.size());
  model_ = Access::model(shared_view(at.home), at.node);
}

Connection Snapshot::wire(const Connection& now) const {
  const WireState& state = *Access::state(now);
  if (state.type != WireState::Type::kAttached) return now;
  const Access::At own = Access::at(model_);
  Access::locate(state);  // throws for a removed one
  if (state.home == own.home) return now;
  const uint32_t id = id_in(origin_, state.home.get(), state.conn, false);
  if (id < conns_) return Access::connection(own.home, own.tree().surviving(id));
  raise(core::fail(core::ErrorKind::kKey, core::Code::kForeign,
                   "connection '{}' does not belong to {} as it was compiled", now.key(),
                   title(own.get())));
}

std::optional<Model> Snapshot::part(const Model& now) const {
  const Access::At at = Access::at(now), own = Access::at(model_);
  if (at.home == own.home) return now;
  const uint32_t id = id_in(origin_, at.home.get(), at.node, true);
  if (id >= nodes_) return std::nullopt;
  return Access::model(own.home, id);
}

}  // namespace mithril::model

// Copying (part of) a tree with its log of facts, and taking wires out of one.
#include <algorithm>
#include <unordered_map>

#include "model/edit/edit.h"

namespace mithril::model {

// --- IdMap --------------------------------------------------------------------------------------

IdMap::IdMap(std::vector<uint32_t> kept, size_t total) : kept_(std::move(kept)) {
  if (kept_.size() < total / 8) return;  // a small part of a large tree: looked up
  dense_.assign(total, kNone);
  for (uint32_t i = 0; i < kept_.size(); ++i) dense_[kept_[i]] = i;
}

uint32_t IdMap::operator()(uint32_t old) const {
  if (old == kNone) return kNone;
  uint32_t place = kNone;
  if (!dense_.empty()) {
    place = old < dense_.size() ? dense_[old] : kNone;
  } else {
    const auto at = std::lower_bound(kept_.begin(), kept_.end(), old);
    if (at != kept_.end() && *at == old) place = static_cast<uint32_t>(at - kept_.begin());
  }
  return place == kNone || lost_.empty() ? place : lost_[place];
}

std::vector<uint32_t> IdMap::removed(size_t total) const {
  std::vector<uint32_t> out;
  for (uint32_t id = 0; id < total; ++id) {
    if ((*this)(id) == kNone) out.push_back(id);
  }
  return out;
}

void IdMap::drop(const std::vector<uint8_t>& dead) {
  lost_.resize(kept_.size());
  uint32_t next = 0;
  for (size_t i = 0; i < kept_.size(); ++i) lost_[i] = dead[i] != 0 ? kNone : next++;
}

namespace {

// --- one record ---------------------------------------------------------------------------------

template <class Map>
void filter(std::vector<uint32_t>& ids, const Map& map) {
  for (uint32_t& id : ids) id = map(id);
  std::erase(ids, kNone);
}

template <class Map>
void filter(ConnSet& set, const Map& map) {
  ConnSet out;
  for (const auto& [sequence, conn] : set) {
    if (const ConnId kept = map(conn); kept != kNone) out.insert(sequence, kept);
  }
  set = std::move(out);
}

template <class Names, class Map>
void filter_names(Names& names, const Map& map) {
  for (auto at = names.begin(); at != names.end();) {
    at->second = map(at->second);
    at = at->second == kNone ? names.erase(at) : std::next(at);
  }
}

// A constraint that loses a key is no more, nor are those that wait for it; the numbers stay.
template <class Conns>
void renumber_constraints(std::vector<UserConstraint>& constraints, const Conns& conns) {
  for (UserConstraint& constraint : constraints) {
    const size_t keys = constraint.keys.size();
    filter(constraint.keys, conns);
    const bool waits_for_none =
        std::any_of(constraint.after.begin(), constraint.after.end(),
                    [&](uint32_t number) { return constraints[number].keys.empty(); });
    if (constraint.keys.size() != keys || waits_for_none) constraint.keys.clear();
  }
}

template <class Nodes, class Conns>
void renumber(Node& n, const Nodes& nodes, const Conns& conns) {
  n.parent = nodes(n.parent);
  filter(n.children, nodes);
  filter_names(n.child_names, nodes);
  filter(n.conns, conns);
  filter(n.outputs, conns);
  filter(n.cins, conns);
  filter(n.couts, conns);
  filter_names(n.names, conns);
  for (ConnId& c : n.numbered) c = conns(c);
  while (!n.numbered.empty() && n.numbered.back() == kNone) n.numbered.pop_back();
  for (State& state : n.states) {
    state.input = conns(state.input);
    state.output = conns(state.output);
  }
  std::erase_if(n.states, [](const State& s) { return s.input == kNone || s.output == kNone; });
  renumber_constraints(n.constraints, conns);
}

template <class Conns>
void renumber(Conn& c, const Conns& conns) {
  c.outer = conns(c.outer);
  c.merged = conns(c.merged);
  c.producer = conns(c.producer);
  c.first_consumer = conns(c.first_consumer);
}

// --- what to copy -------------------------------------------------------------------------------

std::vector<NodeId> nodes_below(const ModelTree& from, NodeId root,
                                const std::vector<NodeId>& gone) {
  const std::unordered_set<NodeId> left_out(gone.begin(), gone.end());
  std::vector<NodeId> out, stack{root};
  while (!stack.empty()) {
    const NodeId at = stack.back();
    stack.pop_back();
    if (left_out.count(at) != 0) continue;
    out.push_back(at);
    const auto& children = from.node(at).children;
    stack.insert(stack.end(), children.begin(), children.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<ConnId> conns_of(const ModelTree& from, const std::vector<NodeId>& nodes) {
  std::vector<ConnId> out;
  for (const NodeId n : nodes) {
    out.insert(out.end(), from.node(n).conns.begin(), from.node(n).conns.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Tells whether an entry plays a constraint that is no more.
bool lost_a_key(const ModelTree& tree, const Entry& entry) {
  return entry.type == Entry::Type::kConstraint &&
         tree.node(entry.id).constraints[entry.other].keys.empty();
}

/// Copies entries and statements that are kept, with the facts and scopes that they rest on.
class LogCopier {
 public:
  LogCopier(const ModelTree& from, const Copy& copy, const Deletion& deletion)
      : from_(from), copy_(copy), to_(copy.tree()) {
    for (const auto& [conn, facets] : deletion.said) {
      taken_back_.emplace_back(from.root(from.conn(conn).edge), facets);
    }
    for (const Entry& entry : from.log) {
      if (entry.type == Entry::Type::kSame) bound_.insert(entry.fact);
    }
  }

  void run() {
    for (const Entry& entry : from_.log) copy(entry);
    for (const Statement& statement : from_.statements) copy(statement);
  }

 private:
  bool is_taken_back(EdgeId root, Facets facet) const {
    return std::any_of(taken_back_.begin(), taken_back_.end(), [&](const auto& item) {
      return item.first == root && (item.second & facet) != 0;
    });
  }

  // The facet of a statement, or of the statement that an entry follows from.
  bool statement_is_taken_back(ConnId conn, uint32_t fact) const {
    const EdgeId root = from_.root(from_.conn(conn).edge);
    return std::any_of(from_.statements.begin(), from_.statements.end(),
                       [&](const Statement& statement) {
                         return statement.conn == conn && statement.fact == fact &&
                                is_taken_back(root, facet_of(statement));
                       });
  }

  Facets facet_of(const Statement& statement) const {
    if (statement.initial) return kValueFacet;
    // Inputs that carry state are not differentiable, whatever else is said.
    return bound_.count(statement.fact) != 0 ? Facets{0} : kDifferentiabilityFacet;
  }

  bool is_taken_back(const Entry& entry) const {
    if (taken_back_.empty() || entry.conn == kNone) return false;
    if (entry.implied) return statement_is_taken_back(entry.conn, entry.fact);
    const EdgeId root = from_.root(from_.conn(entry.conn).edge);
    switch (entry.type) {
      case Entry::Type::kKinds:
      case Entry::Type::kInterval: return is_taken_back(root, kTypeFacet);
      case Entry::Type::kShape: return is_taken_back(root, kShapeFacet);
      case Entry::Type::kValue: return is_taken_back(root, kValueFacet);
      default: return false;
    }
  }

  uint32_t fact(uint32_t old) {
    const auto [found, is_new] = facts_.emplace(old, to_.facts.size());
    if (is_new) to_.facts.push_back({from_.facts[old].where, from_.facts[old].text, {}});
    return found->second;
  }

  uint32_t scope(uint32_t old) {
    const auto [found, is_new] = scopes_.emplace(old, to_.scopes.size());
    if (is_new) to_.scopes.emplace_back();
    return found->second;
  }

  void copy(const Entry& entry) {
    if (entry.type == Entry::Type::kUnify || is_taken_back(entry)) return;
    Entry out = entry;
    if (is_of_node(entry.type)) {
      out.id = copy_.nodes(entry.id);
      if (out.id == kNone || lost_a_key(to_, out)) return;
    } else {
      out.conn = copy_.conns(entry.conn);
      if (out.conn == kNone) return;
      out.id = kNone;  // edges are made by repair
    }
    if (entry.type == Entry::Type::kShape) out.other = scope(entry.other);
    out.fact = fact(entry.fact);
    to_.log.push_back(std::move(out));
  }

  void copy(const Statement& statement) {
    const ConnId conn = copy_.conns(statement.conn);
    if (conn == kNone) return;
    const EdgeId root = from_.root(from_.conn(statement.conn).edge);
    if (is_taken_back(root, facet_of(statement))) return;
    Statement out = statement;
    out.conn = conn;
    out.fact = fact(statement.fact);
    to_.statements.push_back(std::move(out));
  }

  const ModelTree& from_;
  const Copy& copy_;
  ModelTree& to_;
  std::vector<std::pair<EdgeId, Facets>> taken_back_;
  std::unordered_set<uint32_t> bound_;  // facts of bind_state
  std::unordered_map<uint32_t, uint32_t> facts_, scopes_;
};

void copy_records(const ModelTree& from, NodeId root, Copy& copy) {
  ModelTree& to = copy.tree();
  for (const NodeId id : copy.nodes.kept()) {
    Node& n = to.nodes.emplace_back(from.node(id));
    renumber(n, copy.nodes, copy.conns);
    if (id == root) n.parent = kNone;
  }
  for (const ConnId id : copy.conns.kept()) {
    const Conn& old = from.conn(id);
    Conn& c = to.conns.emplace_back(old);
    c.node = copy.nodes(old.node);
    c.edge = kNone;
    c.stamp = 0;
    renumber(c, copy.conns);
    if (old.node == root) c.outer = kNone;
    copy.was_produced.push_back(old.produced());
    copy.readers.push_back(old.consumers);
  }
}

// Wires whose value is cleared are ordinary inputs afterwards.
void mark_opened(const ModelTree& from, const Deletion& deletion, Copy& copy) {
  std::unordered_set<EdgeId> roots;
  for (const auto& [conn, facets] : deletion.said) {
    if ((facets & kValueFacet) != 0) roots.insert(from.root(from.conn(conn).edge));
  }
  copy.opened.assign(copy.conns.kept().size(), 0);
  if (roots.empty()) return;
  for (size_t i = 0; i < copy.conns.kept().size(); ++i) {
    copy.opened[i] = roots.count(from.root(from.conn(copy.conns.kept()[i]).edge)) != 0;
  }
}

}  // namespace

Copy copy_tree(const ModelTree& from, NodeId root, const Deletion& deletion) {
  Copy copy;
  copy.home = std::make_shared<Home>();
  copy.home->tree = std::make_unique<ModelTree>();
  std::vector<NodeId> nodes = nodes_below(from, root, deletion.nodes);
  std::vector<ConnId> conns = conns_of(from, nodes);
  copy.nodes = IdMap(std::move(nodes), from.nodes.size());
  copy.conns = IdMap(std::move(conns), from.conns.size());
  copy.root = copy.nodes(root);
  copy_records(from, root, copy);
  copy.waiting.assign(copy.conns.kept().size(), 0);
  for (const ConnId c : deletion.waiting) copy.waiting[copy.conns(c)] = 1;
  mark_opened(from, deletion, copy);
  LogCopier(from, copy, deletion).run();
  return copy;
}

void drop_conns(ModelTree& tree, const std::vector<uint8_t>& dead) {
  std::vector<ConnId> places(tree.conns.size());
  ConnId next = 0;
  for (size_t i = 0; i < places.size(); ++i) places[i] = dead[i] != 0 ? kNone : next++;
  if (next == places.size()) return;
  const auto nodes = [](NodeId id) { return id; };
  const auto conns = [&](ConnId id) { return id == kNone ? kNone : places[id]; };
  for (Node& n : tree.nodes) renumber(n, nodes, conns);
  for (Conn& c : tree.conns) renumber(c, conns);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != kNone && places[i] != i) tree.conns[places[i]] = std::move(tree.conns[i]);
  }
  tree.conns.resize(next);
  for (Entry& entry : tree.log) entry.conn = conns(entry.conn);
  std::erase_if(tree.log, [&](const Entry& entry) {
    return is_of_node(entry.type) ? lost_a_key(tree, entry) : entry.conn == kNone;
  });
  for (Statement& statement : tree.statements) statement.conn = conns(statement.conn);
  std::erase_if(tree.statements,
                [](const Statement& statement) { return statement.conn == kNone; });
}

}  // namespace mithril::model

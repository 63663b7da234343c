// ModelTree: reading, writing under a journal, appending one tree to another.
#include "model/tree/tree.h"

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "model/tree/naming.h"

namespace mithril::model {

// --- ConnSet ------------------------------------------------------------------------------------

namespace {
bool before(const std::pair<uint32_t, ConnId>& item, uint32_t sequence) {
  return item.first < sequence;
}
}  // namespace

void ConnSet::insert(uint32_t sequence, ConnId conn) {
  if (items_.empty() || items_.back().first < sequence) {
    items_.emplace_back(sequence, conn);
    return;
  }
  items_.insert(std::lower_bound(items_.begin(), items_.end(), sequence, before), {sequence, conn});
}

void ConnSet::erase(uint32_t sequence) {
  items_.erase(std::lower_bound(items_.begin(), items_.end(), sequence, before));
}

void ConnSet::shift(uint32_t conns) {
  for (auto& [sequence, conn] : items_) conn += conns;
}

// --- reading ------------------------------------------------------------------------------------

EdgeId ModelTree::root(EdgeId edge) const {
  while (edges[edge].parent != kNone) edge = edges[edge].parent;
  return edge;
}

ConnId ModelTree::surviving(ConnId conn) const {
  while (conn != kNone && conns[conn].merged != kNone) conn = conns[conn].merged;
  return conn;
}

NodeId ModelTree::outermost(NodeId id) const {
  while (nodes[id].parent != kNone) id = nodes[id].parent;
  return id;
}

KeyKind ModelTree::kind(ConnId id) const {
  const Conn& c = conns[id];
  if (!c.produced()) return c.latent ? KeyKind::kLatentInput : KeyKind::kInput;
  if (c.exposed) return KeyKind::kOutput;
  return c.consumers > 0 ? KeyKind::kInternal : KeyKind::kLatentOutput;
}

std::string ModelTree::key(ConnId id) const {
  const Conn& c = conns[id];
  return c.name.empty() ? fmt::format("${}", c.number) : c.name;
}

uint32_t number_of(std::string_view key) {
  if (key.size() < 2 || key[0] != '$' || key[1] == '0') return 0;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(key.data() + 1, key.data() + key.size(), number);
  return error == std::errc() && end == key.data() + key.size() ? number : 0;
}

ConnId ModelTree::find(NodeId id, std::string_view key) const {
  const Node& n = nodes[id];
  if (n.op != nullptr) {
    for (const ConnId c : n.conns) {
      if (conns[c].name == key) return c;
    }
    return kNone;
  }
  if (const uint32_t number = number_of(key); number != 0) {
    if (number > n.numbered.size()) return kNone;
    const ConnId c = n.numbered[number - 1];
    if (c == kNone) return kNone;
    const bool stands = conns[c].merged == kNone && conns[c].name.empty();
    return stands ? c : kNone;
  }
  const auto found = n.names.find(std::string(key));
  return found == n.names.end() ? kNone : found->second;
}

ConnId ModelTree::visible(ConnId conn, NodeId node) const {
  conn = surviving(conn);
  while (conn != kNone && conns[conn].node != node) conn = surviving(conns[conn].outer);
  return conn;
}

bool ModelTree::is_valued(ConnId conn) const {
  const Edge& edge = edge_of(conn);
  return edge.value && !edge.initial;
}

std::vector<ConnId> ModelTree::externals(NodeId id) const {
  const Node& n = nodes[id];
  std::vector<ConnId> out;
  for (const ConnId c : n.conns) {
    if (conns[c].merged == kNone && kind(c) == KeyKind::kInput) out.push_back(c);
  }
  out.insert(out.end(), n.outputs.begin(), n.outputs.end());
  for (const auto& [sequence, c] : n.couts) {
    if (!conns[c].exposed) out.push_back(c);
  }
  return out;
}

std::vector<std::string> ModelTree::key_names(NodeId id) const {
  std::vector<std::string> out;
  for (const ConnId c : nodes[id].conns) {
    if (conns[c].merged == kNone) out.push_back(key(c));
  }
  return out;
}

std::vector<std::string> ModelTree::child_names(NodeId id) const {
  const Node& n = nodes[id];
  std::unordered_map<std::string_view, uint32_t> count, next;
  for (const NodeId c : n.children) {
    if (nodes[c].name.empty()) ++count[nodes[c].class_name];
  }
  const auto taken = [&](const std::string& name) { return n.child_names.count(name) != 0; };
  std::vector<std::string> out;
  for (const NodeId c : n.children) {
    const Node& child = nodes[c];
    if (!child.name.empty()) {
      out.push_back(child.name);
    } else if (count[child.class_name] == 1 && !taken(child.class_name)) {
      out.push_back(child.class_name);
    } else {
      std::string name;
      do {
        name = fmt::format("{}_{}", child.class_name, next[child.class_name]++);
      } while (taken(name));
      out.push_back(std::move(name));
    }
  }
  return out;
}

std::string ModelTree::path(NodeId id) const {
  std::vector<std::string> names;
  while (nodes[id].parent != kNone) {
    const NodeId parent = nodes[id].parent;
    const auto& siblings = nodes[parent].children;
    const auto at = std::find(siblings.begin(), siblings.end(), id) - siblings.begin();
    std::string name = child_names(parent)[static_cast<size_t>(at)];
    if (nodes[id].name.empty()) name = core::lower_case(std::move(name));
    names.push_back(std::move(name));
    id = parent;
  }
  std::string out = nodes[id].name;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!out.empty()) out += '.';
    out += *name;
  }
  return out;
}

std::vector<NodeId> ModelTree::topological(NodeId id) const {
  // Depth first over producers, in the order of insertion: that order itself where it is legal.
  const Node& n = nodes[id];
  std::unordered_map<NodeId, uint8_t> state;
  std::vector<NodeId> out, stack;
  for (const NodeId start : n.children) {
    stack.push_back(start);
    while (!stack.empty()) {
      const NodeId at = stack.back();
      uint8_t& seen = state[at];
      if (seen != 0) {
        if (seen == 1) {
          seen = 2;
          out.push_back(at);
        }
        stack.pop_back();
        continue;
      }
      seen = 1;
      const size_t first = stack.size();
      for (const ConnId c : nodes[at].conns) {
        if (conns[c].produced()) continue;
        const ConnId outer = surviving(conns[c].outer);
        if (outer == kNone || !conns[outer].produced()) continue;
        const NodeId producer = conns[conns[outer].producer].node;
        if (state[producer] == 0) stack.push_back(producer);
      }
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
    }
  }
  return out;
}

// --- writing ------------------------------------------------------------------------------------

void ModelTree::record(Undo::Type type, NodeId node, uint32_t a, uint32_t b, std::string text) {
  if (is_old_node(node)) undo_.push_back({type, node, a, b, std::move(text)});
}

Conn& ModelTree::edit(ConnId id) {
  Conn& c = conns[id];
  if (recording_ && id < start_conns_ && c.stamp != stamp_) {
    c.stamp = stamp_;
    undo_.push_back({Undo::Type::kConn, kNone, id, static_cast<uint32_t>(saved_conns_.size()), {}});
    saved_conns_.push_back(c);
  }
  return c;
}

Edge& ModelTree::edit_edge(EdgeId id) {
  Edge& e = edges[id];
  if (recording_ && id < start_edges_ && e.stamp != stamp_) {
    e.stamp = stamp_;
    undo_.push_back({Undo::Type::kEdge, kNone, id, static_cast<uint32_t>(saved_edges_.size()), {}});
    saved_edges_.push_back(e);
  }
  return e;
}

void ModelTree::save_node(NodeId id) {
  if (!is_old_node(id)) return;
  undo_.push_back({Undo::Type::kNode, id, static_cast<uint32_t>(saved_nodes_.size()), kNone, {}});
  saved_nodes_.push_back(nodes[id]);
}

NodeId ModelTree::new_node() {
  nodes.emplace_back();
  return static_cast<NodeId>(nodes.size() - 1);
}

EdgeId ModelTree::new_edge() {
  edges.emplace_back();
  return static_cast<EdgeId>(edges.size() - 1);
}

void ModelTree::label(EdgeId edge, const std::string& name) {
  Edge& e = edit_edge(edge);
  if (e.label == name) return;
  e.label = name;
  if (e.cell.valid()) relabelled_.push_back(edge);
}

ConnId ModelTree::new_conn(NodeId id, EdgeId edge, std::string name, std::string origin) {
  const auto conn = static_cast<ConnId>(conns.size());
  Conn& c = conns.emplace_back();
  c.node = id;
  c.edge = edge;
  c.origin = std::move(origin);
  Node& n = nodes[id];
  n.conns.push_back(conn);
  record(Undo::Type::kPopConn, id);
  if (n.op != nullptr) {
    label(root(edge), name);
    c.name = std::move(name);
  } else if (name.empty()) {
    n.numbered.push_back(conn);
    c.number = static_cast<uint32_t>(n.numbered.size());
    record(Undo::Type::kPopNumber, id);
  } else {
    set_name(conn, std::move(name));
  }
  return conn;
}

// What was said of a parameter by its name goes with it to a new one.
void ModelTree::rename_initializers(ConnId conn, const std::string& name) {
  const NodeId id = conns[conn].node;
  if (nodes[id].initializers.empty()) return;
  const std::string old = Paths(*this).name(conn);
  save_node(id);
  for (Initializer& initializer : nodes[id].initializers) {
    if (initializer.pattern == old) initializer.pattern = name;
  }
}

void ModelTree::set_name(ConnId conn, std::string name) {
  rename_initializers(conn, name);
  Conn& c = edit(conn);
  Node& n = nodes[c.node];
  if (!c.name.empty()) {
    record(Undo::Type::kInsertName, c.node, conn, kNone, c.name);
    n.names.erase(c.name);
  }
  if (n.parent == kNone) label(root(c.edge), name);
  record(Undo::Type::kEraseName, c.node, kNone, kNone, name);
  n.names.emplace(name, conn);
  c.name = std::move(name);
}

void ModelTree::add_cin(ConnId conn) {
  if (conns[conn].cin != kNone) return;
  Conn& c = edit(conn);
  c.cin = nodes[c.node].next_sequence++;
  nodes[c.node].cins.insert(c.cin, conn);
  record(Undo::Type::kEraseCin, c.node, c.cin);
}

void ModelTree::add_cout(ConnId conn) {
  if (conns[conn].cout != kNone) return;
  Conn& c = edit(conn);
  c.cout = nodes[c.node].next_sequence++;
  nodes[c.node].couts.insert(c.cout, conn);
  record(Undo::Type::kEraseCout, c.node, c.cout);
}

void ModelTree::remove_cin(ConnId conn) {
  if (conns[conn].cin == kNone) return;
  Conn& c = edit(conn);
  nodes[c.node].cins.erase(c.cin);
  record(Undo::Type::kInsertCin, c.node, c.cin, conn);
  c.cin = kNone;
}

void ModelTree::remove_cout(ConnId conn) {
  if (conns[conn].cout == kNone) return;
  Conn& c = edit(conn);
  nodes[c.node].couts.erase(c.cout);
  record(Undo::Type::kInsertCout, c.node, c.cout, conn);
  c.cout = kNone;
}

void ModelTree::expose(ConnId conn) {
  if (conns[conn].exposed) {
    if (conns[conn].by_freeze) edit(conn).by_freeze = false;
    return;
  }
  Conn& c = edit(conn);
  c.exposed = true;
  nodes[c.node].outputs.push_back(conn);
  record(Undo::Type::kPopOutput, c.node);
}

void ModelTree::add_child(NodeId parent, NodeId child) {
  save_node(child);
  nodes[child].parent = parent;
  nodes[parent].children.push_back(child);
  record(Undo::Type::kPopChild, parent);
  if (nodes[child].name.empty()) return;
  nodes[parent].child_names.emplace(nodes[child].name, child);
  record(Undo::Type::kEraseChildName, parent, kNone, kNone, nodes[child].name);
}

void ModelTree::freeze(NodeId id) {
  if (nodes[id].frozen) return;
  save_node(id);
  nodes[id].frozen = true;
  std::vector<ConnId> couts;
  for (const auto& [sequence, c] : nodes[id].couts) {
    if (!conns[c].exposed) couts.push_back(c);
  }
  for (const ConnId c : couts) {
    expose(c);
    edit(c).by_freeze = true;
  }
}

uint32_t ModelTree::new_fact(Location where, std::string text) {
  facts.push_back({std::move(where), std::move(text), {}});
  return static_cast<uint32_t>(facts.size() - 1);
}

uint32_t ModelTree::new_scope() {
  scopes.emplace_back();
  return static_cast<uint32_t>(scopes.size() - 1);
}

EdgeId ModelTree::unite(EdgeId a, EdgeId b, std::string_view what, const Location& where,
                        std::string_view by) {
  a = root(a);
  b = root(b);
  if (a == b) return a;
  const Edge& left = edges[a];
  const Edge& right = edges[b];
  if (left.value && right.value && !(*left.value == *right.value)) {
    raise_two_values(*this, what, left, right);
  }
  if (left.differentiable && right.differentiable && left.differentiable != right.differentiable) {
    raise_two_differentiabilities(*this, what, left, right);
  }
  const bool keep_a = left.size >= right.size;
  const EdgeId top = keep_a ? a : b, low = keep_a ? b : a;
  Edge& to = edit_edge(top);
  Edge& from = edit_edge(low);
  if (to.cell.valid() && from.cell.valid()) {
    Entry entry;
    entry.type = Entry::Type::kUnify;
    entry.id = top;
    entry.other = low;
    entry.fact = new_fact(where, std::string(by));
    log.push_back(std::move(entry));
  } else if (from.cell.valid()) {
    to.cell = from.cell;
  }
  from.parent = top;
  to.size += from.size;
  if (!to.value && from.value) {
    to.value = from.value;
    to.initial = from.initial;
    to.value_fact = from.value_fact;
  }
  to.trainable |= from.trainable;
  if (!to.differentiable) {
    to.differentiable = from.differentiable;
    to.differentiable_fact = from.differentiable_fact;
  }
  return top;
}

// --- appending ----------------------------------------------------------------------------------

namespace {
void shift(uint32_t& id, uint32_t offset) {
  if (id != kNone) id += offset;
}
void shift_all(std::vector<uint32_t>& ids, uint32_t offset) {
  for (uint32_t& id : ids) shift(id, offset);
}
}  // namespace

Offsets ModelTree::append(const ModelTree& other) {
  const Offsets at{static_cast<uint32_t>(nodes.size()), static_cast<uint32_t>(conns.size()),
                   static_cast<uint32_t>(edges.size())};
  const auto fact_offset = static_cast<uint32_t>(facts.size());
  const auto scope_offset = static_cast<uint32_t>(scopes.size());
  for (const Node& from : other.nodes) {
    Node& n = nodes.emplace_back(from);
    shift(n.parent, at.nodes);
    shift_all(n.children, at.nodes);
    shift_all(n.conns, at.conns);
    shift_all(n.outputs, at.conns);
    shift_all(n.numbered, at.conns);
    n.cins.shift(at.conns);
    n.couts.shift(at.conns);
    for (auto& [name, c] : n.names) c += at.conns;
    for (auto& [name, c] : n.child_names) c += at.nodes;
    for (State& state : n.states) {
      state.input += at.conns;
      state.output += at.conns;
    }
    for (UserConstraint& constraint : n.constraints) {
      shift_all(constraint.keys, at.conns);
      shift_all(constraint.edges, at.edges);
      constraint.finished += at.edges;
    }
  }
  for (const Conn& from : other.conns) {
    Conn& c = conns.emplace_back(from);
    c.node += at.nodes;
    c.edge += at.edges;
    shift(c.outer, at.conns);
    shift(c.merged, at.conns);
    shift(c.producer, at.conns);
    shift(c.first_consumer, at.conns);
    c.stamp = 0;
  }
  for (const Edge& from : other.edges) {
    Edge& e = edges.emplace_back(from);
    shift(e.parent, at.edges);
    e.cell = {};
    shift(e.value_fact, fact_offset);
    shift(e.differentiable_fact, fact_offset);
    e.stamp = 0;
  }
  for (const Fact& from : other.facts) facts.push_back({from.where, from.text, {}});
  scopes.resize(scopes.size() + other.scopes.size());
  for (const Entry& from : other.log) {
    Entry& e = log.emplace_back(from);
    e.id += is_of_node(e.type) ? at.nodes : at.edges;
    if (e.type == Entry::Type::kShape) shift(e.other, scope_offset);
    if (e.type == Entry::Type::kUnify || e.type == Entry::Type::kSame) shift(e.other, at.edges);
    e.fact += fact_offset;
    shift(e.conn, at.conns);
  }
  for (const Statement& from : other.statements) {
    Statement& statement = statements.emplace_back(from);
    statement.conn += at.conns;
    statement.fact += fact_offset;
  }
  return at;
}

}  // namespace mithril::model

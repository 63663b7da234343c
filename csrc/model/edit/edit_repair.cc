// From a copy whose links were cut to what composing it without the removed parts would have made.
// Inner models first, as they are composed.
#include <algorithm>
#include <unordered_map>

#include "model/edit/edit.h"

namespace mithril::model {

namespace {

// A key that its parent had no wire for reads or writes a new one.
void connect_lifted(ModelTree& a, ConnId key, ConnId wire) {
  Conn& w = a.edit(wire);
  if (a.conn(key).produced()) {
    w.producer = key;
    if (a.conn(key).cout == kNone) return;
    a.add_cout(wire);
    if (!a.node(w.node).frozen) return;
    a.expose(wire);
    a.edit(wire).by_freeze = true;
    return;
  }
  w.first_consumer = key;
  w.consumers = 1;
  w.latent = a.is_valued(key);
  if (!w.latent && a.conn(key).cin != kNone) a.add_cin(wire);
}

class Repair {
 public:
  explicit Repair(Copy& copy) : copy_(copy), a_(copy.tree()) {}

  void run() {
    dead_.assign(a_.conns.size(), 0);
    reads_cin_.assign(a_.conns.size(), 0);
    canonical_changed_.assign(a_.conns.size(), 0);
    index_what_was_said();
    for (const NodeId n : bottom_up()) a_.node(n).op != nullptr ? leaf(n) : composite(n);
    for (const NodeId n : bottom_up()) label_edges(n);
    for (size_t c = 0; c < copy_.waiting.size(); ++c) {
      if (copy_.waiting[c] != 0 && a_.conns[c].producer == c) a_.conns[c].producer = kNone;
    }
    finish_log();
    drop_conns(a_, dead_);
    copy_.conns.drop(dead_);
  }

 private:
  void index_what_was_said() {
    for (const Entry& entry : a_.log) {
      if (entry.type == Entry::Type::kValue) values_[entry.conn].push_back(&entry);
      if (entry.type == Entry::Type::kSame) binding_[outermost(entry.conn)] = entry.fact;
    }
    for (const Statement& statement : a_.statements)
      statements_[statement.conn].push_back(&statement);
  }

  // The wire as the outermost model sees it: a file says there what was said of an inner one.
  ConnId outermost(ConnId c) const {
    for (ConnId at = a_.surviving(c); at != kNone; at = a_.surviving(a_.conn(at).outer)) c = at;
    return c;
  }

  std::vector<NodeId> bottom_up() const {
    std::vector<NodeId> out, stack{copy_.root};
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      out.push_back(at);
      const auto& children = a_.node(at).children;
      stack.insert(stack.end(), children.begin(), children.end());
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  void say(ConnId c) {
    Edge& edge = a_.edges[a_.root(a_.conn(c).edge)];
    if (const auto found = values_.find(c); found != values_.end()) {
      edge.value = *found->second.front()->value;
      edge.initial = false;
      edge.value_fact = found->second.front()->fact;
    }
    const auto found = statements_.find(c);
    if (found == statements_.end()) return;
    for (const Statement* statement : found->second) {
      if (undone_.count(statement->fact) != 0) continue;
      if (statement->differentiable) {
        edge.differentiable = statement->differentiable;
        edge.differentiable_fact = statement->fact;
      }
      if (!statement->initial || edge.value) continue;
      edge.value = *statement->initial;
      edge.value_fact = statement->fact;
      edge.initial = true;
    }
  }

  // --- leaves -----------------------------------------------------------------------------------

  static bool is_trainable(const ir::OpDef& op, const std::string& key) {
    if (const ir::InputDef* input = op.find_input(key)) return input->trainable;
    return op.output_index(key) < 0 && !op.inputs.empty() && op.inputs.back().trainable;
  }

  void leaf(NodeId id) {
    const ir::OpDef& op = *a_.node(id).op;
    for (const ConnId c : a_.node(id).conns) {
      Conn& conn = a_.conns[c];
      conn.edge = a_.new_edge();
      a_.edges[conn.edge].trainable = !conn.produced() && is_trainable(op, conn.name);
      say(c);
      const auto& canonical = op.canonical_inputs;
      const bool is_canonical =
          std::find(canonical.begin(), canonical.end(), conn.name) != canonical.end();
      if (copy_.opened[c] != 0 && is_canonical && !a_.is_valued(c)) a_.add_cin(c);
    }
  }

  // --- models of models -------------------------------------------------------------------------

  void composite(NodeId id) {
    for (const ConnId w : a_.node(id).conns) {
      Conn& wire = a_.conns[w];
      wire.consumers = 0;
      const ConnId first = wire.first_consumer;
      if (first != kNone && dead_[first] != 0) wire.first_consumer = kNone;
      // A writer to come is as good as one: the wire is its own meanwhile.
      wire.producer = copy_.waiting[w] != 0 && copy_.was_produced[w] != 0 ? w : kNone;
    }
    const std::vector<NodeId> children = a_.node(id).children;
    for (const NodeId child : children) join_keys(child);
    for (const NodeId child : children) lift_keys(a_, child);
    grow();
    check_states(id);
    const std::vector<ConnId> wires = a_.node(id).conns;
    for (const ConnId w : wires) {
      if (a_.conn(w).merged == kNone) settle(w);
    }
    for (const ConnId w : wires) {
      if (a_.conn(w).merged == kNone) continue;
      dead_[w] = dead_[a_.surviving(w)];
      a_.conns[w].edge = a_.conn(a_.surviving(w)).edge;
    }
  }

  void grow() {
    dead_.resize(a_.conns.size());
    reads_cin_.resize(a_.conns.size());
    canonical_changed_.resize(a_.conns.size());
    copy_.was_produced.resize(a_.conns.size());
    copy_.readers.resize(a_.conns.size());
    copy_.waiting.resize(a_.conns.size());
    copy_.opened.resize(a_.conns.size());
  }

  void join_keys(NodeId child) {
    for (const ConnId key : a_.node(child).conns) {
      if (dead_[key] != 0 || a_.conn(key).merged != kNone) continue;
      const ConnId w = a_.surviving(a_.conn(key).outer);
      if (w == kNone) continue;
      Conn& wire = a_.conns[w];
      if (wire.edge == kNone) {
        wire.edge = a_.conn(key).edge;
      } else {
        a_.unite(wire.edge, a_.conn(key).edge, "");
      }
      canonical_changed_[w] |= canonical_changed_[key];
      if (a_.conn(key).produced()) {
        wire.producer = key;
        continue;
      }
      ++wire.consumers;
      if (wire.first_consumer == kNone) wire.first_consumer = key;
      if (a_.conn(key).cin != kNone) reads_cin_[w] = 1;
    }
  }

  // State needs its input and something that computes its output.
  void check_states(NodeId id) {
    std::erase_if(a_.node(id).states, [&](const State& state) {
      const ConnId input = a_.surviving(state.input), output = a_.surviving(state.output);
      const bool stands =
          a_.conn(output).produced() && !a_.conn(input).produced() && a_.conn(input).consumers > 0;
      if (stands) {
        carries_state_.insert(input);
      } else {
        copy_.opened[input] = 1;
        if (const auto bound = binding_.find(outermost(input)); bound != binding_.end()) {
          undone_.insert(bound->second);
        }
      }
      return !stands;
    });
  }

  void settle(ConnId w) {
    const bool was_produced = copy_.was_produced[w] != 0, had_readers = copy_.readers[w] > 0;
    const bool is_produced = a_.conn(w).produced(), has_readers = a_.conn(w).consumers > 0;
    const bool had_any = was_produced || had_readers;
    if (had_any && !is_produced && !has_readers && copy_.waiting[w] == 0) return kill(w);
    if (a_.conn(w).edge == kNone) a_.conns[w].edge = a_.new_edge();
    say(w);
    if (copy_.waiting[w] != 0) return;
    const ConnId other = is_produced ? a_.conn(w).producer : a_.conn(w).first_consumer;
    if (other != kNone) a_.conns[w].origin = a_.conn(other).origin;  // files may lack both
    if (!is_produced) return settle_input(w, was_produced);
    if (has_readers || !(had_readers || canonical_changed_[w] != 0)) return;
    if (a_.conn(a_.conn(w).producer).cout == kNone) return;
    a_.add_cout(w);
    canonical_changed_[w] = 1;
    if (!a_.node(a_.conn(w).node).frozen) return;
    a_.expose(w);
    a_.conns[w].by_freeze = true;
  }

  void settle_input(ConnId w, bool was_produced) {
    Conn& wire = a_.conns[w];
    bool is_new = was_produced;
    if (was_produced) {
      hide(w);
      wire.latent = false;
    }
    if (copy_.opened[w] != 0 && carries_state_.count(w) == 0) {
      wire.latent = false;
      is_new = true;
    }
    if (is_new && reads_cin_[w] != 0 && !a_.is_valued(w) && !wire.latent) a_.add_cin(w);
    const bool lost = wire.consumers < copy_.readers[w] || canonical_changed_[w] != 0;
    if (!lost || reads_cin_[w] != 0 || wire.cin == kNone) return;
    a_.remove_cin(w);
    canonical_changed_[w] = 1;
  }

  void hide(ConnId w) {
    Conn& wire = a_.conns[w];
    if (wire.exposed) std::erase(a_.node(wire.node).outputs, w);
    wire.exposed = wire.by_freeze = false;
    a_.remove_cout(w);
  }

  void kill(ConnId w) {
    hide(w);
    a_.remove_cin(w);
    dead_[w] = 1;
    a_.conns[w].latent = true;  // no key that the outer model has a wire for
    if (a_.conn(w).edge == kNone) a_.conns[w].edge = a_.new_edge();
  }

  // --- at the end -------------------------------------------------------------------------------

  // Errors call a wire by the name that the outermost model has for it, else by the op's key.
  void label_edges(NodeId id) {
    for (const ConnId c : a_.node(id).conns) {
      if (dead_[c] != 0 || a_.conn(c).name.empty() || a_.conn(c).merged != kNone) continue;
      Edge& edge = a_.edges[a_.root(a_.conn(c).edge)];
      if (a_.node(id).op == nullptr || edge.label.empty()) edge.label = a_.conn(c).name;
    }
  }

  void finish_log() {
    for (Node& n : a_.nodes) {
      for (UserConstraint& constraint : n.constraints) {
        constraint.edges.clear();
        for (const ConnId key : constraint.keys) constraint.edges.push_back(a_.conn(key).edge);
        constraint.finished = a_.new_edge();
      }
    }
    std::unordered_map<ConnId, ConnId> next;
    for (const Node& n : a_.nodes) {
      for (const State& s : n.states) next[outermost(s.input)] = a_.surviving(s.output);
    }
    for (Entry& entry : a_.log) {
      if (is_of_node(entry.type)) continue;
      entry.id = a_.root(a_.conn(entry.conn).edge);
      if (entry.type != Entry::Type::kSame) continue;
      const auto found = next.find(outermost(entry.conn));
      if (found != next.end()) entry.other = a_.root(a_.conn(found->second).edge);
    }
    if (undone_.empty()) return;
    std::erase_if(a_.log, [&](const Entry& entry) {
      return undone_.count(entry.fact) != 0 && !is_of_node(entry.type);
    });
    std::erase_if(a_.statements, [&](const Statement& c) { return undone_.count(c.fact) != 0; });
  }

  Copy& copy_;
  ModelTree& a_;
  std::vector<uint8_t> dead_, reads_cin_;
  std::vector<uint8_t> canonical_changed_;  // a key is canonical no more, or now
  std::unordered_map<ConnId, std::vector<const Entry*>> values_;
  std::unordered_map<ConnId, std::vector<const Statement*>> statements_;
  std::unordered_set<ConnId> carries_state_;
  std::unordered_map<ConnId, uint32_t>
      binding_;  // outermost wire of an input that carries state -> its fact
  std::unordered_set<uint32_t> undone_;  // facts of states that are no more
};

}  // namespace

void repair(Copy& copy) { Repair(copy).run(); }

void lift_keys(ModelTree& tree, NodeId child) {
  const NodeId parent = tree.node(child).parent;
  for (const ConnId key : tree.externals(child)) {
    if (tree.surviving(tree.conn(key).outer) != kNone) continue;
    const ConnId wire = tree.new_conn(parent, tree.conn(key).edge, "", tree.conn(key).origin);
    tree.edit(key).outer = wire;
    connect_lifted(tree, key, wire);
  }
}

// --- Draft --------------------------------------------------------------------------------------

Draft::Draft(const Access::At& at, NodeId root, const Deletion& deletion)
    : old_(at.home), copy_(copy_tree(at.tree(), root, deletion)) {
  repair(copy_);
}

void Draft::adopt() {
  auto cut = std::make_unique<Cut>();
  cut->node_count = old_->tree->nodes.size();
  cut->conn_count = old_->tree->conns.size();
  cut->nodes = copy_.nodes.removed(cut->node_count);
  cut->conns = copy_.conns.removed(cut->conn_count);
  // Trees before the last one that only an older tree leads to are skipped from now on.
  for (auto last = old_->before.lock(); last != nullptr; last = old_->before.lock()) {
    const auto older = last->before.lock();
    if (older == nullptr || last.use_count() > 2) break;
    Cut& both = *older->cut;
    both.nodes = Cut::join(both.nodes, last->cut->nodes, both.node_count);
    both.conns = Cut::join(both.conns, last->cut->conns, both.conn_count);
    older->forward = old_;
    old_->before = older;
  }
  old_->forward = copy_.home;
  old_->cut = std::move(cut);
  old_->tree.reset();
  copy_.home->before = old_;
}

}  // namespace mithril::model

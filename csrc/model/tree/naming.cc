#include "model/tree/naming.h"

#include <unordered_set>

#include "core/text.h"

namespace mithril::model {

namespace {

// Names of one model: the user's are taken, generated ones avoid them and each other.
class Generator {
 public:
  Generator(const ModelTree& tree, NodeId node) : tree_(tree), node_(tree.node(node)) {
    for (const ConnId c : node_.conns) {
      if (tree_.conn(c).merged == kNone && !tree_.conn(c).name.empty()) {
        taken_.insert(tree_.conn(c).name);
      }
    }
    single_cin_ = node_.cins.size() == 1 ? node_.cins.begin()->second : kNone;
    if (taken_.count("input") != 0) single_cin_ = kNone;
    for (const ConnId c : node_.conns) {
      if (is_plain_input(c)) ++repeats_[tree_.conn(c).origin];
    }
    const std::vector<NodeId> order = tree_.topological(node);
    for (size_t i = 0; i < order.size(); ++i) index_[order[i]] = i;
  }

  bool is_unnamed(ConnId c) const {
    return tree_.conn(c).merged == kNone && tree_.conn(c).name.empty();
  }

  std::string input(ConnId c) {
    if (c == single_cin_) return "input";
    const std::string& origin = tree_.conn(c).origin;
    std::string name =
        repeats_[origin] > 1 ? fmt::format("{}_{}", origin, next_[origin]++) : origin;
    while (name == "input" || taken_.count(name) != 0) name.insert(0, 1, '_');
    taken_.insert(name);
    return name;
  }

  std::string internal(ConnId c) const {
    const Conn& conn = tree_.conn(c);
    const ConnId other = conn.produced() ? conn.producer : conn.first_consumer;
    const Conn& key = other == kNone ? conn : tree_.conn(other);  // files have wires nobody reads
    const auto found = index_.find(key.node);
    return fmt::format("_{}_{}_{}", tree_.node(key.node).class_name,
                       found == index_.end() ? 0 : found->second, key.origin);
  }

 private:
  bool is_plain_input(ConnId c) const {
    return is_unnamed(c) && tree_.kind(c) == KeyKind::kInput && c != single_cin_;
  }

  const ModelTree& tree_;
  const Node& node_;
  ConnId single_cin_ = kNone;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> repeats_, next_;
  std::unordered_map<NodeId, size_t> index_;
};

}  // namespace

std::vector<std::pair<ConnId, std::string>> generated_names(const ModelTree& tree, NodeId node,
                                                            bool internals, bool outputs) {
  std::vector<std::pair<ConnId, std::string>> out;
  if (tree.node(node).op != nullptr) return out;
  Generator generator(tree, node);
  for (const ConnId c : tree.node(node).conns) {
    if (!generator.is_unnamed(c)) continue;
    const KeyKind kind = tree.kind(c);
    const bool is_output = kind == KeyKind::kOutput || kind == KeyKind::kLatentOutput;
    if (kind == KeyKind::kInput) {
      out.emplace_back(c, generator.input(c));
    } else if (is_output ? outputs : internals) {
      out.emplace_back(c, generator.internal(c));
    }
  }
  return out;
}

namespace {

// Tells whether compiling gives the wire a name: a key of the model, or a state that is bound in
// it.
bool is_compiled_key(const ModelTree& tree, ConnId c) {
  const KeyKind kind = tree.kind(c);
  const bool is_state = kind == KeyKind::kLatentInput && !tree.is_valued(c);
  return kind == KeyKind::kInput || kind == KeyKind::kOutput || is_state;
}

}  // namespace

std::vector<std::pair<ConnId, std::string>> names_by_origin(const ModelTree& tree, NodeId node) {
  std::vector<std::pair<ConnId, std::string>> out;
  std::unordered_set<std::string> taken;
  std::unordered_map<std::string, int> sharing, next;
  for (const ConnId c : tree.node(node).conns) {
    if (tree.conn(c).merged != kNone) continue;
    if (!tree.conn(c).name.empty()) taken.insert(tree.conn(c).name);
    if (is_compiled_key(tree, c)) ++sharing[tree.conn(c).origin];
  }
  for (const ConnId c : tree.node(node).conns) {
    const Conn& conn = tree.conn(c);
    if (conn.merged != kNone || !conn.name.empty() || !is_compiled_key(tree, c)) continue;
    std::string name = conn.origin;
    if (sharing[name] > 1 || taken.count(name) != 0) {
      int& number = next[conn.origin];
      do name = fmt::format("{}_{}", conn.origin, number++);
      while (taken.count(name) != 0);
    }
    taken.insert(name);
    out.emplace_back(c, std::move(name));
  }
  return out;
}

const std::string& Paths::segment(NodeId node) {
  const auto found = segments_.find(node);
  if (found != segments_.end()) return found->second;
  const NodeId parent = tree_.node(node).parent;
  if (parent == kNone) return segments_[node] = tree_.node(node).name;
  const std::vector<std::string> names = tree_.child_names(parent);
  const std::vector<NodeId>& children = tree_.node(parent).children;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool given = !tree_.node(children[i]).name.empty();
    segments_[children[i]] = given ? names[i] : core::lower_case(names[i]);
  }
  return segments_[node];
}

std::string Paths::path(NodeId node) {
  constexpr size_t kEnds = 16;
  std::vector<const std::string*> names;
  for (NodeId at = node; at != kNone; at = tree_.node(at).parent) {
    // Of very deep nests only both ends are shown: the middle would cost the square of the depth.
    names.push_back(names.size() < kEnds || tree_.node(at).parent == kNone ? &segment(at)
                                                                           : nullptr);
  }
  std::string out;
  bool skipped = false;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (*name == nullptr) {
      if (!skipped) out += "...";
      skipped = true;
      continue;
    }
    if ((*name)->empty()) continue;
    if (!out.empty() && !out.ends_with("...")) out += '.';
    out += **name;
  }
  return out;
}

const std::string& Paths::counted_segment(NodeId node) {
  const auto found = counted_.find(node);
  if (found != counted_.end()) return found->second;
  std::unordered_map<std::string_view, size_t> count;
  for (const NodeId child : tree_.node(tree_.node(node).parent).children) {
    const Node& part = tree_.node(child);
    const size_t number = count[part.class_name]++;
    counted_[child] = part.name.empty()
                          ? fmt::format("{}_{}", core::lower_case(part.class_name), number)
                          : part.name;
  }
  return counted_[node];
}

std::vector<std::pair<std::string, std::string>> compiled_names(const Model& model) {
  const Access::At at = Access::at(model);
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [conn, name] : names_by_origin(at.tree(), at.node)) {
    out.emplace_back(at.tree().key(conn), name);
  }
  return out;
}

ConnId named_key(const ModelTree& tree, ConnId wire) {
  do {
    const Conn& c = tree.conn(wire);
    const ConnId next = c.first_consumer != kNone ? c.first_consumer : c.producer;
    if (next == kNone) break;
    wire = tree.surviving(next);
  } while (tree.conn(wire).name.empty() && tree.node(tree.conn(wire).node).op == nullptr);
  return wire;
}

std::string Paths::name(ConnId wire) {
  const std::string& own = tree_.conn(wire).name;
  return own.empty() ? key_path(wire, tree_.conn(wire).node) : own;
}

std::string Paths::key_path(ConnId wire, NodeId root) {
  const Conn& named = tree_.conn(named_key(tree_, wire));
  return key_path(named.node, named.name.empty() ? named.origin : named.name, root);
}

std::string Paths::key_path(NodeId node, const std::string& key, NodeId root) {
  constexpr size_t kMostParts = 32;  // of a nest that is deeper the outer parts are left out
  std::vector<const std::string*> parts{&key};
  for (NodeId at = node; at != root && at != kNone && parts.size() < kMostParts;
       at = tree_.node(at).parent) {
    if (tree_.node(at).parent != kNone) parts.push_back(&counted_segment(at));
  }
  std::string out;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!out.empty()) out += '.';
    out += **part;
  }
  return out;
}

std::string Paths::long_name(ConnId wire, NodeId root) {
  const Conn& key = tree_.conn(named_key(tree_, wire));
  std::string name = key.name.empty() ? key.origin : key.name;
  for (NodeId at = key.node; at != root && tree_.node(at).parent != kNone;
       at = tree_.node(at).parent) {
    name = fmt::format("{}_{}", core::lower_case(segment(at)), name);
  }
  return name;
}

}  // namespace mithril::model

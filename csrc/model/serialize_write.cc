// A model's tree and its log of facts as JSON. Order is that of creation everywhere, so that a
// change of the model changes the lines about it and no others.
#include <algorithm>
#include <set>

#include "model/serialize.h"
#include "model/serialize_usual.h"
#include "model/serialize_value.h"
#include "model/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;
using core::JsonWriter;

namespace {

constexpr size_t kLongestPath = 120;

/// What the user said in one call: entries of the log that rest on one fact.
struct Statement {
  uint32_t fact = kNone;
  std::vector<const Entry*> entries;
};

class ModelWriter {
 public:
  ModelWriter(const Arena& arena, NodeId top) : arena_(arena), top_(top) {}
  std::string write(bool history, std::string_view training);

 private:
  void number_nodes();
  std::string id_of(NodeId parent, const std::string& name) const;
  void find_tops();
  void sort_log();
  void sort_entry(const Entry& entry, const std::unordered_map<uint32_t, NodeId>& leaf_of);
  void name_scopes();

  void write_model(NodeId id);
  void write_leaf(NodeId id);
  void write_wires(NodeId id);
  void write_sets(NodeId id);
  void write_origins(NodeId id);
  void write_edges(NodeId id);
  void write_states(NodeId id);
  void write_child(NodeId id);
  void write_child_keys(NodeId id);
  void write_statements();
  void write_entry(const Entry& entry, std::string_view wire, std::string_view model);
  void write_history();
  void write_order();
  void write_stops();
  void write_place(const Location& where);

  void text(std::string_view key, const std::string& value, std::string_view usual = "");
  template <class Conns>
  void keys(std::string_view key, const Conns& conns);
  std::vector<ConnId> wires(NodeId id) const;
  ConnId top(EdgeId edge) const { return tops_.at(arena_.root(edge)); }

  const Arena& arena_;
  NodeId top_;
  JsonWriter out_;
  std::vector<NodeId> order_;  // parents before children, in the order of insertion
  std::unordered_map<NodeId, std::string> ids_;
  std::unordered_map<NodeId, size_t> leaf_index_;
  std::unordered_map<EdgeId, ConnId> tops_;  // root -> the wire of the outermost model that sees it
  std::unordered_map<NodeId, std::vector<const Entry*>> said_of_leaf_;
  std::unordered_map<NodeId, uint32_t> fact_of_leaf_;
  std::vector<Statement> statements_;
  std::vector<std::pair<bool, size_t>> log_;     // a leaf's rule, or a statement, by number
  std::vector<size_t> starts_;                   // places of these in the arena
  std::unordered_map<uint32_t, size_t> scopes_;  // those that need a number
  std::vector<std::string> files_;
  std::unordered_map<std::string, size_t> file_index_;
};

// --- gathering ----------------------------------------------------------------------------------

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t out = 0xCBF29CE484222325u;
  for (const char c : text) out = (out ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return out;
}

// "encoder/attn"; what is nested deep gets a name of bounded length.
std::string ModelWriter::id_of(NodeId parent, const std::string& name) const {
  std::string out = escaped(name);
  if (parent != top_) out = ids_.at(parent) + "/" + out;
  return out.size() <= kLongestPath ? out : fmt::format("~x{:016x}", hash_of(out));
}

void ModelWriter::number_nodes() {
  std::vector<NodeId> stack{top_};
  std::set<std::string> taken;
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    order_.push_back(id);
    const Node& node = arena_.node(id);
    if (node.op != nullptr) leaf_index_.emplace(id, leaf_index_.size());
    stack.insert(stack.end(), node.children.rbegin(), node.children.rend());
    const bool has_models = std::any_of(node.children.begin(), node.children.end(),
                                        [&](NodeId c) { return arena_.node(c).op == nullptr; });
    if (!has_models) continue;
    const std::vector<std::string> names = arena_.child_names(id);
    for (size_t i = 0; i < names.size(); ++i) {
      if (arena_.node(node.children[i]).op != nullptr) continue;
      std::string child = id_of(id, names[i]);
      while (!taken.insert(child).second) child += '~';
      ids_.emplace(node.children[i], std::move(child));
    }
  }
}

void ModelWriter::find_tops() {
  for (const NodeId id : order_) {
    for (const ConnId c : wires(id)) {
      if (arena_.surviving(arena_.conn(c).outer) == kNone)
        tops_.emplace(arena_.root(arena_.conn(c).edge), c);
    }
  }
}

void ModelWriter::sort_log() {
  std::unordered_map<uint32_t, NodeId> leaf_of;  // fact -> the leaf that it made
  for (const Entry& entry : arena_.log) {
    if (entry.type == Entry::Type::kRule) leaf_of.emplace(entry.fact, entry.id);
  }
  for (const Entry& entry : arena_.log) sort_entry(entry, leaf_of);
}

void ModelWriter::sort_entry(const Entry& entry,
                             const std::unordered_map<uint32_t, NodeId>& leaf_of) {
  if (entry.type == Entry::Type::kRule) {
    const auto index = leaf_index_.find(entry.id);
    if (index == leaf_index_.end()) return;
    log_.emplace_back(true, index->second);
    starts_.push_back(static_cast<size_t>(&entry - arena_.log.data()));
    fact_of_leaf_[entry.id] = entry.fact;
    return;
  }
  // Wires that became one are one in the file.
  if (entry.type == Entry::Type::kUnify || tops_.count(arena_.root(entry.id)) == 0) return;
  if (const auto leaf = leaf_of.find(entry.fact); leaf != leaf_of.end()) {
    said_of_leaf_[leaf->second].push_back(&entry);
    return;
  }
  if (statements_.empty() || statements_.back().fact != entry.fact) {
    log_.emplace_back(false, statements_.size());
    starts_.push_back(static_cast<size_t>(&entry - arena_.log.data()));
    statements_.push_back({entry.fact, {}});
  }
  statements_.back().entries.push_back(&entry);
}

bool has_names(const ShapeTemplate& shape) {
  return std::any_of(shape.begin(), shape.end(),
                     [](const auto& item) { return !item.name.empty(); });
}

// Names of sizes mean the same within one statement; a scope that is not just that gets a number.
void ModelWriter::name_scopes() {
  std::unordered_map<uint32_t, const void*> user;
  std::vector<uint32_t> order;
  std::set<uint32_t> special;
  const auto visit = [&](const std::vector<const Entry*>& entries) {
    std::set<uint32_t> found;
    for (const Entry* entry : entries) {
      if (entry->type != Entry::Type::kShape || !has_names(*entry->shape)) continue;
      const auto [at, is_new] = user.emplace(entry->other, &entries);
      if (is_new) order.push_back(entry->other);
      if (at->second != &entries) special.insert(entry->other);
      found.insert(entry->other);
    }
    if (found.size() > 1) special.insert(found.begin(), found.end());
  };
  for (const NodeId id : order_) {
    const auto said = said_of_leaf_.find(id);
    if (said != said_of_leaf_.end()) visit(said->second);
  }
  for (const Statement& statement : statements_) visit(statement.entries);
  for (const uint32_t scope : order) {
    if (special.count(scope) != 0) scopes_.emplace(scope, scopes_.size());
  }
}

// --- writing ------------------------------------------------------------------------------------

std::string ModelWriter::write(bool history, std::string_view training) {
  number_nodes();
  find_tops();
  sort_log();
  name_scopes();
  out_.begin_object();
  text("format", "mithril-model");
  text("version", fmt::format("{}.{}", kFileMajor, kFileMinor));
  out_.key("model");
  write_model(top_);
  out_.key("submodels");
  out_.begin_object();
  for (const NodeId id : order_) {
    if (id == top_ || arena_.node(id).op != nullptr) continue;
    out_.key(ids_.at(id));
    write_model(id);
  }
  out_.end_object();
  write_statements();
  if (!training.empty()) {
    out_.key("training");
    core::JsonReader in(training, "training");
    core::copy_value(in, out_);
    in.finish();
    in.status().or_throw();
  }
  if (history) write_history();
  out_.end_object();
  return out_.take();
}

void ModelWriter::text(std::string_view key, const std::string& value, std::string_view usual) {
  if (value == usual) return;
  out_.key(key);
  out_.string(value);
}

template <class Conns>
void ModelWriter::keys(std::string_view key, const Conns& conns) {
  out_.key(key);
  out_.begin_array();
  for (const ConnId c : conns) out_.string(arena_.key(c));
  out_.end_array();
}

std::vector<ConnId> ModelWriter::wires(NodeId id) const {
  std::vector<ConnId> out;
  for (const ConnId c : arena_.node(id).conns) {
    if (arena_.conn(c).merged == kNone) out.push_back(c);
  }
  return out;
}

std::vector<ConnId> members(const ConnSet& set) {
  std::vector<ConnId> out;
  for (const auto& [sequence, conn] : set) out.push_back(conn);
  return out;
}

// A constraint runs a Python function, which no file can hold.
void refuse_constraints(const Node& node) {
  for (const UserConstraint& constraint : node.constraints) {
    if (constraint.keys.empty()) continue;
    raise(core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                     "{}: a model with constraints of add_constraint cannot be written",
                     title(node)));
  }
}

void ModelWriter::write_model(NodeId id) {
  const Node& node = arena_.node(id);
  refuse_constraints(node);
  out_.begin_object();
  text("name", node.name);
  text("class", node.class_name, usual_class(node.op));
  if (id == top_ && node.op == nullptr && node.frozen) {
    out_.key("frozen");
    out_.boolean(true);
  }
  if (node.op != nullptr) write_leaf(id);
  write_wires(id);
  write_sets(id);
  if (node.op == nullptr) write_origins(id);
  write_edges(id);
  write_states(id);
  if (node.op == nullptr) {
    out_.key("parts");
    out_.begin_array();
    for (const NodeId child : node.children) write_child(child);
    out_.end_array();
  }
  out_.end_object();
}

void ModelWriter::write_wires(NodeId id) {
  const Node& node = arena_.node(id);
  const std::vector<ConnId> conns = wires(id);
  keys("wires", conns);
  uint32_t last = 0;
  for (const ConnId c : conns) {
    if (arena_.conn(c).name.empty()) last = std::max(last, arena_.conn(c).number);
  }
  if (last == node.numbered.size()) return;
  out_.key("numbered");
  out_.integer(static_cast<int64_t>(node.numbered.size()));
}

void ModelWriter::write_sets(NodeId id) {
  const Node& node = arena_.node(id);
  std::vector<ConnId> latent;
  for (const ConnId c : wires(id)) {
    if (arena_.conn(c).latent) latent.push_back(c);
  }
  keys("outputs", node.outputs);
  keys("cins", members(node.cins));
  keys("couts", members(node.couts));
  if (!latent.empty()) keys("latent", latent);
}

// Which key reads a wire first, and the innermost name: as submodels in their order make them.
void ModelWriter::write_origins(NodeId id) {
  std::unordered_map<ConnId, std::pair<size_t, ConnId>> readers;
  const Node& node = arena_.node(id);
  for (size_t i = 0; i < node.children.size(); ++i) {
    for (const ConnId c : wires(node.children[i])) {
      const ConnId outer = arena_.surviving(arena_.conn(c).outer);
      if (outer != kNone && !arena_.conn(c).produced()) readers.emplace(outer, std::pair(i, c));
    }
  }
  bool any = false;
  const auto each = [&](std::string_view key, auto is_unusual, auto write) {
    any = false;
    for (const ConnId c : wires(id)) {
      const auto found = readers.find(c);
      const ConnId reader = found == readers.end() ? kNone : found->second.second;
      if (!is_unusual(arena_.conn(c), reader)) continue;
      if (!any) {
        out_.key(key);
        out_.begin_object();
      }
      any = true;
      out_.key(arena_.key(c));
      write(arena_.conn(c));
    }
    if (any) out_.end_object();
  };
  each(
      "origins",
      [&](const Conn& c, ConnId reader) { return c.origin != usual_origin(arena_, c, reader); },
      [&](const Conn& c) { out_.string(c.origin); });
  each(
      "readers",
      [&](const Conn& c, ConnId reader) {
        return c.first_consumer != kNone && arena_.surviving(c.first_consumer) != reader;
      },
      [&](const Conn& c) {
        const ConnId reader = arena_.surviving(c.first_consumer);
        const auto& siblings = node.children;
        const auto part = std::find(siblings.begin(), siblings.end(), arena_.conn(reader).node);
        out_.begin_array(true);
        out_.integer(part - siblings.begin());
        out_.string(arena_.key(reader));
        out_.end_array();
      });
}

// What is known of a wire through all levels stands with the outermost model that sees it.
void ModelWriter::write_edges(NodeId id) {
  const auto each = [&](std::string_view key, auto is_wanted, auto write) {
    bool any = false;
    for (const ConnId c : wires(id)) {
      const Edge& edge = arena_.edge_of(c);
      if (tops_.at(arena_.root(arena_.conn(c).edge)) != c || !is_wanted(edge, c)) continue;
      if (!any) {
        out_.key(key);
        out_.begin_object();
      }
      any = true;
      out_.key(arena_.key(c));
      write(edge);
    }
    if (any) out_.end_object();
  };
  each(
      "differentiable", [](const Edge& e, ConnId) { return e.differentiable.has_value(); },
      [&](const Edge& e) { out_.boolean(*e.differentiable); });
  each(
      "initial", [](const Edge& e, ConnId) { return e.value && e.initial; },
      [&](const Edge& e) { write_value(out_, *e.value, fmt::format("wire '{}'", e.label)); });
  each(
      "labels", [&](const Edge& e, ConnId c) { return e.label != usual_label(arena_.conn(c)); },
      [&](const Edge& e) { out_.string(e.label); });
}

void ModelWriter::write_states(NodeId id) {
  const Node& node = arena_.node(id);
  if (node.states.empty()) return;
  out_.key("states");
  out_.begin_array();
  for (const State& state : node.states) {
    out_.begin_object();
    text("input", arena_.key(arena_.surviving(state.input)));
    text("output", arena_.key(arena_.surviving(state.output)));
    if (state.initial) {
      out_.key("initial");
      write_value(out_, *state.initial, "a state");
    }
    out_.end_object();
  }
  out_.end_array();
}

void ModelWriter::write_child(NodeId id) {
  const Node& node = arena_.node(id);
  out_.begin_object();
  if (node.op == nullptr) {
    text("model", ids_.at(id));
    write_child_keys(id);
  } else {
    text("name", node.name);
    write_leaf(id);
    write_child_keys(id);
    const std::vector<ConnId> cins = members(node.cins), couts = members(node.couts);
    if (cins != usual_cins(arena_, id)) keys("cins", cins);
    if (couts != usual_couts(arena_, id)) keys("couts", couts);
  }
  out_.end_object();
}

void ModelWriter::write_leaf(NodeId id) {
  const Node& node = arena_.node(id);
  if (node.op->family == "opaque") {
    core::Error error =
        core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                   "{} calls a function of this process, and no file can hold that", title(node));
    error.hint =
        "give the function a name on the backends (register_function) and write"
        " ml.Lambda(\"name\", ...)";
    raise(std::move(error));
  }
  text("op", node.op->name);
  text("class", node.class_name, usual_class(node.op));
  if (!node.attrs.empty()) {
    out_.key("attrs");
    out_.begin_object();
    for (const auto& [name, value] : node.attrs) {
      out_.key(name);
      write_value(out_, value, fmt::format("'{}' of {}", name, title(node)));
    }
    out_.end_object();
  }
  if (node.variadic >= 0) {
    out_.key("items");
    out_.integer(node.variadic);
  }
  const auto said = said_of_leaf_.find(id);
  if (said == said_of_leaf_.end()) return;
  const auto key_of = [&](const Entry* entry) {
    for (const ConnId c : node.conns) {
      if (arena_.conn(c).edge == entry->id) return arena_.key(c);
    }
    return arena_.key(top(entry->id));
  };
  const auto is_value = [](const Entry* e) { return e->type == Entry::Type::kValue; };
  if (std::any_of(said->second.begin(), said->second.end(), is_value)) {
    out_.key("values");
    out_.begin_object();
    for (const Entry* entry : said->second) {
      if (!is_value(entry)) continue;
      out_.key(key_of(entry));
      write_value(out_, *entry->value, fmt::format("'{}' of {}", key_of(entry), title(node)));
    }
    out_.end_object();
  }
  if (std::all_of(said->second.begin(), said->second.end(), is_value)) return;
  out_.key("facts");
  out_.begin_array();
  for (const Entry* entry : said->second) {
    if (!is_value(entry)) write_entry(*entry, key_of(entry), "");
  }
  out_.end_array();
}

void ModelWriter::write_child_keys(NodeId id) {
  out_.key("wires");
  out_.begin_object();
  for (const ConnId c : wires(id)) {
    const ConnId outer = arena_.surviving(arena_.conn(c).outer);
    if (outer == kNone && arena_.node(id).op == nullptr) continue;
    out_.key(arena_.key(c));
    outer == kNone ? out_.null() : out_.string(arena_.key(outer));
  }
  out_.end_object();
}

void ModelWriter::write_statements() {
  if (statements_.empty()) return;
  out_.key("facts");
  out_.begin_array();
  for (const Statement& statement : statements_) {
    out_.begin_object();
    text("by", arena_.facts[statement.fact].text);
    out_.key("says");
    out_.begin_array();
    for (const Entry* entry : statement.entries) {
      const ConnId wire = top(entry->id);
      const NodeId model = arena_.conn(wire).node;
      write_entry(*entry, arena_.key(wire), model == top_ ? "" : ids_.at(model));
    }
    out_.end_array();
    out_.end_object();
  }
  out_.end_array();
}

[[noreturn]] void refuse_to_write(std::string_view wire, std::string_view what) {
  raise(core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                   "'{}' has {}, which a model file cannot hold yet", wire, what));
}

void ModelWriter::write_entry(const Entry& entry, std::string_view wire, std::string_view model) {
  out_.begin_object();
  text("model", std::string(model));
  text("wire", std::string(wire), "$");
  switch (entry.type) {
    case Entry::Type::kKinds:
      if (entry.content) refuse_to_write(wire, "a type that says what its containers hold");
      out_.key("type");
      write_kinds(out_, entry.kinds);
      break;
    case Entry::Type::kShape:
      out_.key("shape");
      write_shape(out_, *entry.shape);
      if (const auto scope = scopes_.find(entry.other); scope != scopes_.end()) {
        out_.key("scope");
        out_.integer(static_cast<int64_t>(scope->second));
      }
      break;
    case Entry::Type::kValue:
      out_.key("value");
      write_value(out_, *entry.value, fmt::format("wire '{}'", wire));
      break;
    case Entry::Type::kSame: {
      const ConnId other = top(entry.other);
      const NodeId node = arena_.conn(other).node;
      text("next", arena_.key(other));
      text("next_model", node == top_ ? "" : ids_.at(node));
      break;
    }
    case Entry::Type::kInterval: refuse_to_write(wire, "an interval");
    case Entry::Type::kRule:
    case Entry::Type::kConstraint:
    case Entry::Type::kUnify: break;
  }
  out_.end_object();
}

// --- history ------------------------------------------------------------------------------------

void ModelWriter::write_place(const Location& where) {
  const auto [found, is_new] = file_index_.emplace(where.file, files_.size());
  if (is_new) files_.push_back(where.file);
  out_.integer(static_cast<int64_t>(found->second));
  out_.integer(where.line);
}

void ModelWriter::write_history() {
  out_.key("history");
  out_.begin_object();
  write_order();
  write_stops();
  out_.key("models");
  out_.begin_array(true);
  for (const NodeId id : order_) write_place(arena_.node(id).where);
  out_.end_array();
  out_.key("ops");
  out_.begin_array(true);
  for (const NodeId id : order_) {
    if (arena_.node(id).op != nullptr) write_place(arena_.facts[fact_of_leaf_.at(id)].where);
  }
  out_.end_array();
  out_.key("facts");
  out_.begin_array(true);
  for (const Statement& statement : statements_) write_place(arena_.facts[statement.fact].where);
  out_.end_array();
  out_.key("files");
  out_.begin_array();
  for (const std::string& file : files_) out_.string(file);
  out_.end_array();
  out_.end_object();
}

// Runs of the log: how many ops, how many facts, and so on in turn.
void ModelWriter::write_order() {
  out_.key("order");
  out_.begin_array(true);
  for (size_t i = 0; i < log_.size();) {
    size_t end = i + 1;
    while (end < log_.size() && log_[end].first == log_[i].first &&
           log_[end].second == log_[end - 1].second + 1) {
      ++end;
    }
    out_.string(log_[i].first ? "ops" : "facts");
    out_.integer(static_cast<int64_t>(log_[i].second));
    out_.integer(static_cast<int64_t>(end - i));
    i = end;
  }
  out_.end_array();
}

// After how many entries of the order the solver ran, as (distance, times) pairs.
void ModelWriter::write_stops() {
  std::vector<std::pair<size_t, int64_t>> runs;
  size_t item = 0, last = 0;
  for (const size_t stop : arena_.stops) {
    while (item < starts_.size() && starts_[item] < stop) ++item;
    if (item == last) continue;
    if (runs.empty() || runs.back().first != item - last) runs.emplace_back(item - last, 0);
    ++runs.back().second;
    last = item;
  }
  out_.key("stops");
  out_.begin_array(true);
  for (const auto& [distance, times] : runs) {
    out_.integer(static_cast<int64_t>(distance));
    out_.integer(times);
  }
  out_.end_array();
}

}  // namespace

std::string to_json(const Model& model, bool history, std::string_view training) {
  const Access::At at = Access::at(model);
  if (at.get().parent != kNone) {
    core::Error error =
        core::fail(ErrorKind::kValue, Code::kValueArgument,
                   "{} is a submodel, and files hold whole models", title(at.get()));
    error.hint = "write the outermost model";
    raise(std::move(error));
  }
  model.solve();
  return ModelWriter(at.arena(), at.node).write(history, training);
}

}  // namespace mithril::model

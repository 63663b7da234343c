// From records to a model: everything is checked here that composing would have seen to.
#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "model/serialize.h"
#include "model/serialize_record.h"
#include "model/serialize_usual.h"
#include "model/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

constexpr std::string_view kWhat = "model file";

class ModelBuilder {
 public:
  ModelBuilder(const FileRecord& file, Arena& arena, Location where)
      : file_(file), arena_(arena), where_(std::move(where)) {}
  void build();

 private:
  struct Made {
    NodeId node;
    const ModelRecord* model = nullptr;  // null: an op
    const OpRecord* op = nullptr;
    const PartRecord* part = nullptr;  // null: the outermost one
  };

  void make_nodes();
  void make_model(NodeId id, const ModelRecord& record);
  NodeId make_part(NodeId parent, const PartRecord& record);
  void make_op(NodeId id, const OpRecord& record);
  void add_wires(NodeId id, const ModelRecord& record, const PartRecord* part);
  void add_keys(NodeId id, const OpRecord& record, const std::vector<Name>& keys,
                const PartRecord* part);
  void add_wire(NodeId id, Name key, const PartRecord* part);
  void check_keys(NodeId id) const;
  void check_given(NodeId id, const PartRecord& part) const;
  EdgeId edge_of(NodeId id, Name key, const PartRecord* part, ConnId& outer);

  void connect();
  void connect_parts(NodeId id);
  void set_origins(const Made& made);
  void check_cycles(NodeId id) const;
  void finish_models();
  void set_kinds_of_keys(const Made& made);
  void set_canonical(NodeId id, const std::vector<Name>* names, bool inputs);
  void set_edges(const Made& made);
  void bind_states(const Made& made);
  void check_connected(NodeId id) const;

  void state_facts();
  void state_op(const Made& made, size_t index);
  void state_statement(const StatementRecord& record, size_t index);
  void state(const Said& said, NodeId model, uint32_t fact, uint32_t& scope);
  void state_value(ConnId conn, const HostValue& value, uint32_t fact);
  void check_values() const;
  void check_order(const std::vector<Run>& order, size_t ops) const;
  Location place(const std::vector<int64_t> HistoryRecord::*list, size_t index) const;

  ConnId wire(NodeId id, Name key) const;
  NodeId model_named(Name id) const;
  std::string describe(NodeId id) const { return title(arena_.node(id)); }
  [[noreturn]] void refuse(std::string problem, ErrorKind kind = ErrorKind::kParse,
                           Code code = Code::kParse) const;

  const FileRecord& file_;
  Arena& arena_;
  Location where_;
  std::vector<Made> made_;  // parents before children, in the order of insertion
  std::unordered_map<Name, NodeId> by_id_;
  std::unordered_map<int64_t, uint32_t> scopes_;
};

void ModelBuilder::refuse(std::string problem, ErrorKind kind, Code code) const {
  raise(core::fail(kind, code, "{}: {}", kWhat, problem), where_);
}

void ModelBuilder::build() {
  make_nodes();
  connect();
  finish_models();
  state_facts();
  check(arena_.infer(), where_, arena_.node(0).name);
}

// --- nodes and wires ----------------------------------------------------------------------------

void ModelBuilder::make_nodes() {
  std::unordered_map<Name, const ModelRecord*> records;
  for (const auto& [id, record] : file_.submodels) {
    if (!records.emplace(id, &record).second) refuse(fmt::format("two submodels '{}'", id));
    if (record.op.op != nullptr) refuse(fmt::format("submodel '{}' is an op, not a part", id));
  }
  struct Open {
    NodeId node;
    const ModelRecord* record;
    size_t next = 0;
  };
  const NodeId top = arena_.new_node();
  made_.push_back({top, &file_.model, nullptr, nullptr});
  make_model(top, file_.model);
  by_id_.emplace("", top);
  std::vector<Open> open{{top, &file_.model}};
  while (!open.empty()) {
    Open& at = open.back();
    if (at.next == at.record->parts.size()) {
      open.pop_back();
      continue;
    }
    const PartRecord& part = at.record->parts[at.next++];
    const NodeId id = make_part(at.node, part);
    if (part.op.op != nullptr) continue;
    const auto found = records.find(part.model);
    if (found == records.end()) refuse(fmt::format("there is no submodel '{}'", part.model));
    if (!by_id_.emplace(part.model, id).second) {
      refuse(fmt::format("submodel '{}' is a part of two models, or of itself", part.model));
    }
    made_.back().model = found->second;
    make_model(id, *found->second);
    open.push_back({id, found->second});
  }
  if (by_id_.size() != records.size() + 1) refuse("a submodel that is a part of no model");
}

void ModelBuilder::make_model(NodeId id, const ModelRecord& record) {
  const PartRecord* part = made_.back().part;
  Node& node = arena_.node(id);
  node.name = record.name;
  node.class_name = record.class_name.empty() ? usual_class(record.op.op) : record.class_name;
  node.frozen = part != nullptr || record.frozen;
  if (node.parent != kNone && !node.name.empty()) {
    if (!arena_.node(node.parent).child_names.emplace(node.name, id).second) {
      refuse(fmt::format("two submodels of {} are named '{}'", describe(node.parent), node.name));
    }
  }
  if (record.op.op == nullptr) return add_wires(id, record, part);
  if (!record.parts.empty()) refuse("a model that is an op has no parts");
  made_.back().op = &record.op;
  make_op(id, record.op);
  add_keys(id, record.op, record.wires, nullptr);
}

NodeId ModelBuilder::make_part(NodeId parent, const PartRecord& record) {
  const NodeId id = arena_.new_node();
  arena_.node(id).parent = parent;
  arena_.node(parent).children.push_back(id);
  made_.push_back({id, nullptr, nullptr, &record});
  if (record.op.op == nullptr) return id;
  Node& node = arena_.node(id);
  node.name = record.name;
  node.class_name = record.class_name.empty() ? usual_class(record.op.op) : record.class_name;
  if (!node.name.empty() && !arena_.node(parent).child_names.emplace(node.name, id).second) {
    refuse(fmt::format("two submodels of {} are named '{}'", describe(parent), node.name));
  }
  made_.back().op = &record.op;
  make_op(id, record.op);
  std::vector<Name> keys;
  for (const auto& [key, wire] : record.wires) keys.push_back(key);
  add_keys(id, record.op, keys, &record);
  return id;
}

void ModelBuilder::make_op(NodeId id, const OpRecord& record) {
  Node& node = arena_.node(id);
  const ir::OpDef& op = *record.op;
  node.op = &op;
  node.frozen = true;
  node.variadic = record.items;
  for (const ir::AttrDef& attr : op.attrs) {
    const HostValue* given = record.attrs.find(attr.name);
    if (given == nullptr && !attr.default_value) {
      refuse(fmt::format("{} needs the argument '{}'", op.name, attr.name));
    }
    node.attrs.set(attr.name, given != nullptr ? *given : *attr.default_value);
  }
  for (const auto& [name, value] : record.attrs) {
    if (node.attrs.find(name) == nullptr) {
      refuse(fmt::format("{} has no argument '{}'", op.name, name));
    }
  }
  if (record.items >= 0 && (op.inputs.empty() || !op.inputs.back().variadic)) {
    refuse(fmt::format("{} does not take items", op.name));
  }
}

EdgeId ModelBuilder::edge_of(NodeId id, Name key, const PartRecord* part, ConnId& outer) {
  if (part == nullptr) return arena_.new_edge();
  const auto found = std::find_if(part->wires.begin(), part->wires.end(),
                                  [&](const auto& pair) { return pair.first == key; });
  if (found == part->wires.end() || !found->second) return arena_.new_edge();
  outer = wire(arena_.node(id).parent, *found->second);
  return arena_.conn(outer).edge;
}

// The n of "$n"; 0 when it is none.
uint32_t number_of(Name key) {
  uint32_t out = 0;
  if (key.size() < 2 || key[0] != '$' || key[1] == '0') return 0;
  const auto [end, error] = std::from_chars(key.data() + 1, key.data() + key.size(), out);
  return error == std::errc() && end == key.data() + key.size() ? out : 0;
}

void ModelBuilder::add_wires(NodeId id, const ModelRecord& record, const PartRecord* part) {
  std::vector<Name> sorted(record.wires);
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    refuse(fmt::format("two wires of {} are called '{}'", describe(id), *twice));
  }
  std::unordered_map<Name, Name> given;
  if (part != nullptr) {
    for (const auto& [key, outer] : part->wires) {
      if (outer && !given.emplace(key, *outer).second) refuse("a key is connected twice");
    }
  }
  uint32_t last = 0;
  for (const Name name : record.wires) last = std::max(last, number_of(name));
  const auto numbered = static_cast<uint64_t>(record.numbered.value_or(last));
  if (numbered < last || numbered > 64 * (record.wires.size() + 1024)) {
    refuse(fmt::format("{} cannot have {} numbered wires", describe(id), numbered));
  }
  arena_.node(id).numbered.assign(numbered, kNone);
  for (const Name name : record.wires) {
    const auto outer = given.find(name);
    ConnId to = kNone;
    if (outer != given.end()) to = wire(arena_.node(id).parent, outer->second);
    const EdgeId edge = to == kNone ? arena_.new_edge() : arena_.conn(to).edge;
    const auto conn = static_cast<ConnId>(arena_.conns.size());
    Conn& c = arena_.conns.emplace_back();
    c.node = id;
    c.edge = edge;
    c.outer = to;
    arena_.node(id).conns.push_back(conn);
    c.number = number_of(name);
    if (c.number != 0) {
      arena_.node(id).numbered[c.number - 1] = conn;
      continue;
    }
    check_name(std::string(name), where_);
    c.name = name;
    arena_.node(id).names.emplace(c.name, conn);
  }
}

void ModelBuilder::add_keys(NodeId id, const OpRecord& record, const std::vector<Name>& keys,
                            const PartRecord* part) {
  const ir::OpDef& op = *record.op;
  std::unordered_set<Name> seen;
  int32_t items = 0;
  for (const Name key : keys) {
    if (!seen.insert(key).second) refuse(fmt::format("{}: '{}' stands twice", op.name, key));
    const int input = op.input_index(key), output = op.output_index(key);
    const bool is_item =
        record.items >= 0 && key == item_key(op.inputs.back(), static_cast<size_t>(items + 1));
    const bool is_input = input >= 0 && !is_random_key(op.inputs[static_cast<size_t>(input)]) &&
                          !(record.items >= 0 && op.inputs[static_cast<size_t>(input)].variadic);
    if (!is_input && !is_item && (output < 0 || is_next_state(op, key))) {
      refuse(fmt::format("{} has no key '{}'", op.name, key), ErrorKind::kKey, Code::kKeyUnknown);
    }
    items += is_item ? 1 : 0;
    ConnId outer = kNone;
    const EdgeId edge = edge_of(id, key, part, outer);
    const auto conn = static_cast<ConnId>(arena_.conns.size());
    Conn& c = arena_.conns.emplace_back();
    c.node = id;
    c.edge = edge;
    c.outer = outer;
    c.name = c.origin = key;
    arena_.node(id).conns.push_back(conn);
    if (input >= 0 && op.inputs[static_cast<size_t>(input)].trainable) {
      arena_.edges[edge].trainable = true;
    }
    if (output < 0) continue;
    c.producer = conn;
    c.exposed = true;
    arena_.node(id).outputs.push_back(conn);
  }
  if (record.items > items) refuse(fmt::format("{} lacks items", op.name));
  check_keys(id);
}

// What an op cannot do without is there, in the order in which it has them.
void ModelBuilder::check_keys(NodeId id) const {
  const Node& node = arena_.node(id);
  for (const ir::InputDef& input : node.op->inputs) {
    if (is_random_key(input) || (input.variadic && node.variadic >= 0)) continue;
    const bool is_there = arena_.find(id, input.name) != kNone;
    const HostValue* when = input.when.empty() ? nullptr : node.attrs.find(input.when);
    const bool may_be =
        input.when.empty() || (when != nullptr && when->is_bool() && when->as_bool());
    if (is_there ? may_be : input.optional) continue;
    refuse(fmt::format("{} {} the key '{}'", node.op->name, is_there ? "cannot have" : "needs",
                       input.name),
           ErrorKind::kKey, Code::kKeyUnknown);
  }
  size_t next = 0;
  for (const ir::OutputDef& output : node.op->outputs) {
    if (is_next_state(*node.op, output.name)) continue;
    const bool is_next =
        next < node.outputs.size() && arena_.conn(node.outputs[next]).name == output.name;
    if (!is_next) {
      refuse(fmt::format("{} needs the key '{}' in its place", node.op->name, output.name),
             ErrorKind::kKey, Code::kKeyUnknown);
    }
    ++next;
  }
}

ConnId ModelBuilder::wire(NodeId id, Name key) const {
  const ConnId found = arena_.find(id, key);
  if (found == kNone) {
    refuse(fmt::format("{} has no wire '{}'", describe(id), key.substr(0, 200)), ErrorKind::kKey,
           Code::kKeyUnknown);
  }
  return found;
}

// --- who writes, who reads ----------------------------------------------------------------------

void ModelBuilder::connect() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    if (arena_.node(made->node).op != nullptr) continue;
    connect_parts(made->node);
    set_origins(*made);
    check_cycles(made->node);
  }
}

void ModelBuilder::connect_parts(NodeId id) {
  for (const NodeId child : arena_.node(id).children) {
    for (const ConnId key : arena_.node(child).conns) {
      const ConnId outer = arena_.conn(key).outer;
      if (outer == kNone) continue;
      Conn& c = arena_.conns[outer];
      if (!arena_.conn(key).produced()) {
        if (c.consumers++ == 0) c.first_consumer = key;
        continue;
      }
      if (c.produced()) {
        refuse(fmt::format("'{}' of {} is written twice", arena_.key(outer), describe(id)),
               ErrorKind::kMultiWrite, Code::kMultiWrite);
      }
      c.producer = key;
    }
  }
}

void ModelBuilder::set_origins(const Made& made) {
  for (const auto& [key, reader] : made.model->readers) {
    const auto& parts = arena_.node(made.node).children;
    if (static_cast<size_t>(reader.first) >= parts.size()) refuse("a reader that is no part");
    const ConnId from = wire(parts[static_cast<size_t>(reader.first)], reader.second);
    const ConnId to = wire(made.node, key);
    if (arena_.conn(from).outer != to) refuse("a reader that does not read");
    arena_.conns[to].first_consumer = from;
  }
  for (const ConnId conn : arena_.node(made.node).conns) {
    Conn& c = arena_.conns[conn];
    c.origin = usual_origin(arena_, c, c.first_consumer);
  }
  for (const auto& [key, origin] : made.model->origins) {
    arena_.conns[wire(made.node, key)].origin = origin;
  }
}

void ModelBuilder::check_cycles(NodeId id) const {
  const std::vector<NodeId>& parts = arena_.node(id).children;
  std::unordered_map<NodeId, size_t> waits;
  std::unordered_map<NodeId, std::vector<NodeId>> readers;
  const auto producer_of = [&](ConnId key) {
    const ConnId outer = arena_.conn(key).produced() ? kNone : arena_.conn(key).outer;
    const bool is_made = outer != kNone && arena_.conn(outer).produced();
    return is_made ? arena_.conn(arena_.conn(outer).producer).node : kNone;
  };
  std::vector<NodeId> ready;
  for (const NodeId part : parts) {
    for (const ConnId key : arena_.node(part).conns) {
      const NodeId producer = producer_of(key);
      if (producer == kNone) continue;
      ++waits[part];
      readers[producer].push_back(part);
    }
    if (waits.count(part) == 0) ready.push_back(part);
  }
  size_t done = 0;
  while (!ready.empty()) {
    const NodeId part = ready.back();
    ready.pop_back();
    ++done;
    for (const NodeId reader : readers[part]) {
      if (--waits[reader] == 0) ready.push_back(reader);
    }
  }
  if (done == parts.size()) return;
  refuse(fmt::format("the wiring of {} has a cycle", describe(id)), ErrorKind::kCycle,
         Code::kCycle);
}

// --- kinds of keys ------------------------------------------------------------------------------

void ModelBuilder::finish_models() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    set_kinds_of_keys(*made);
    if (made->model != nullptr) {
      set_edges(*made);
      bind_states(*made);
    }
  }
  for (const Made& made : made_) {
    if (made.part != nullptr) check_connected(made.node);
    for (const ConnId conn : arena_.node(made.node).conns) {
      const Conn& c = arena_.conn(conn);
      Edge& edge = arena_.edges[c.edge];
      if (c.outer == kNone && edge.label.empty()) edge.label = usual_label(c);
    }
  }
}

void ModelBuilder::set_kinds_of_keys(const Made& made) {
  const auto expose = [&](Name key) {
    const ConnId conn = wire(made.node, key);
    if (!arena_.conn(conn).produced()) {
      refuse(fmt::format("'{}' of {} is no output: nothing writes it", key, describe(made.node)));
    }
    arena_.expose(conn);
  };
  if (made.model == nullptr) {
    set_canonical(made.node, made.part->cins ? &*made.part->cins : nullptr, true);
    set_canonical(made.node, made.part->couts ? &*made.part->couts : nullptr, false);
    return;
  }
  for (const Name key : made.model->outputs) expose(key);
  for (const Name key : made.model->latent) {
    const ConnId conn = wire(made.node, key);
    if (arena_.conn(conn).produced()) refuse(fmt::format("'{}' is no input", key));
    arena_.conns[conn].latent = true;
  }
  set_canonical(made.node, &made.model->cins, true);
  set_canonical(made.node, &made.model->couts, false);
}

// Null: the usual ones of an op, whose values are not known yet, so that they come later.
void ModelBuilder::set_canonical(NodeId id, const std::vector<Name>* names, bool inputs) {
  if (names == nullptr) return;
  for (const Name name : *names) {
    const ConnId conn = wire(id, name);
    if (arena_.conn(conn).produced() == inputs) {
      refuse(fmt::format("'{}' cannot be a canonical {}", name, inputs ? "input" : "output"));
    }
    inputs ? arena_.add_cin(conn) : arena_.add_cout(conn);
  }
}

void ModelBuilder::set_edges(const Made& made) {
  const auto edge = [&](Name key) -> Edge& {
    const ConnId conn = wire(made.node, key);
    if (arena_.conn(conn).outer != kNone) {
      refuse(fmt::format("what is known of '{}' stands with an outer model", key));
    }
    return arena_.edges[arena_.conn(conn).edge];
  };
  const auto state = [&](Name key, std::optional<bool> differentiable, const HostValue* initial) {
    const uint32_t fact = arena_.new_fact(where_, "load");
    arena_.statements.push_back({wire(made.node, key), fact, differentiable,
                                 initial ? std::make_shared<const HostValue>(*initial) : nullptr});
    return fact;
  };
  for (const auto& [key, is_differentiable] : made.model->differentiable) {
    edge(key).differentiable = is_differentiable;
    edge(key).differentiable_fact = state(key, is_differentiable, nullptr);
  }
  for (const auto& [key, value] : made.model->initial) {
    edge(key).value = value;
    edge(key).initial = true;
    edge(key).value_fact = state(key, {}, &value);
  }
  for (const auto& [key, label] : made.model->labels) edge(key).label = label;
}

void ModelBuilder::bind_states(const Made& made) {
  for (const StateRecord& record : made.model->states) {
    const ConnId input = wire(made.node, record.input), output = wire(made.node, record.output);
    if (arena_.conn(input).produced() || !arena_.conn(output).produced()) {
      refuse(fmt::format("state goes from a computed wire to an input, not from '{}' to '{}'",
                         record.output, record.input));
    }
    for (const State& state : arena_.node(made.node).states) {
      if (state.input == input || state.output == output) refuse("state is bound twice");
    }
    arena_.node(made.node).states.push_back({input, output, record.initial});
  }
}

void ModelBuilder::check_connected(NodeId id) const {
  for (const ConnId c : arena_.externals(id)) {
    if (arena_.conn(c).outer != kNone) continue;
    refuse(fmt::format("'{}' of {} is not connected", arena_.key(c), describe(id)));
  }
}

// --- facts --------------------------------------------------------------------------------------

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

void ModelBuilder::state_facts() {
  std::vector<const Made*> ops;
  for (const Made& made : made_) {
    if (made.op != nullptr) ops.push_back(&made);
  }
  const std::vector<Run> usual{{true, 0, ops.size()}, {false, 0, file_.facts.size()}};
  const std::vector<Run>& order = file_.history ? file_.history->order : usual;
  check_order(order, ops.size());
  Stops stops(file_.history ? &file_.history->stops : nullptr);
  for (const Run& run : order) {
    for (size_t i = run.first; i < run.first + run.count; ++i) {
      run.ops ? state_op(*ops[i], i) : state_statement(file_.facts[i], i);
      if (stops.is_next()) check(arena_.infer(), where_, arena_.node(0).name);
    }
  }
  for (size_t i = 0; i < made_.size(); ++i) {
    arena_.node(made_[i].node).where = place(&HistoryRecord::models, i);
  }
  for (const Made* made : ops) {
    if (made->part == nullptr) continue;
    if (!made->part->cins) {
      for (const ConnId c : usual_cins(arena_, made->node)) arena_.add_cin(c);
    }
    if (!made->part->couts) {
      for (const ConnId c : usual_couts(arena_, made->node)) arena_.add_cout(c);
    }
  }
  check_values();
}

void ModelBuilder::check_values() const {
  for (const Conn& c : arena_.conns) {
    const Edge& edge = arena_.edges[c.edge];
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
  Location out;
  if (!file_.history) return out;
  const std::vector<int64_t>& places = (*file_.history).*list;
  if (2 * index + 1 >= places.size()) refuse("a history that lacks places");
  const auto file = static_cast<size_t>(places[2 * index]);
  if (file >= file_.history->files.size()) refuse("a history that lacks files");
  out.file = file_.history->files[file];
  out.line = static_cast<int>(places[2 * index + 1]);
  return out;
}

void ModelBuilder::state_op(const Made& made, size_t index) {
  const uint32_t fact =
      arena_.new_fact(place(&HistoryRecord::ops, index), title(arena_.node(made.node)));
  for (const Said& said : made.op->facts) {
    uint32_t scope = kNone;
    state(said, made.node, fact, scope);
  }
  for (const auto& [key, value] : made.op->values) {
    state_value(wire(made.node, key), value, fact);
  }
  arena_.state_rule(made.node, fact);
}

void ModelBuilder::state_statement(const StatementRecord& record, size_t index) {
  const uint32_t fact =
      arena_.new_fact(place(&HistoryRecord::facts, index), std::string(record.by));
  uint32_t scope = kNone;
  for (const Said& said : record.says) state(said, model_named(said.model), fact, scope);
}

NodeId ModelBuilder::model_named(Name id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) refuse(fmt::format("there is no submodel '{}'", id.substr(0, 200)));
  return found->second;
}

// `scope`: of the names of sizes in this statement, made when it is needed.
void ModelBuilder::state(const Said& said, NodeId model, uint32_t fact, uint32_t& scope) {
  const ConnId conn = wire(model, said.wire);
  switch (said.type) {
    case Said::Type::kNothing: refuse("a fact that says nothing");
    case Said::Type::kKinds: return arena_.state_type(conn, said.kinds, fact);
    case Said::Type::kShape: {
      uint32_t at = kNone;
      if (said.scope) {
        const auto [found, is_new] = scopes_.emplace(*said.scope, kNone);
        if (is_new) found->second = arena_.new_scope();
        at = found->second;
      } else {
        if (scope == kNone) scope = arena_.new_scope();
        at = scope;
      }
      return arena_.state_shape(conn, said.shape, at, fact);
    }
    case Said::Type::kValue: return state_value(conn, said.value, fact);
    case Said::Type::kNext:
      return arena_.state_next(conn, wire(model_named(said.next_model), said.next), fact);
  }
}

void ModelBuilder::state_value(ConnId conn, const HostValue& value, uint32_t fact) {
  const Edge& edge = arena_.edges[arena_.conn(conn).edge];
  if (edge.value && !(*edge.value == value && !edge.initial)) {
    refuse(fmt::format("'{}' would have two values", arena_.key(conn)), ErrorKind::kValue,
           Code::kValueConflict);
  }
  arena_.state_value(conn, value, false, fact);
}

}  // namespace

Loaded from_json(std::string_view text, Location where) {
  std::vector<std::string> notes;
  core::JsonReader reader(text, std::string(kWhat));
  const FileRecord file = read_file(reader, notes);
  check(reader.status(), where, "");
  auto home = std::make_shared<Home>();
  home->arena = std::make_unique<Arena>();
  ModelBuilder(file, *home->arena, std::move(where)).build();
  return {Access::model(std::move(home), 0), std::move(notes), std::string(file.training)};
}

}  // namespace mithril::model

// Nodes and wires of a model file's records, and reading as a whole.
#include "model/files/build.h"

#include <algorithm>
#include <unordered_set>

#include "model/files/usual.h"
#include "model/tree/initializers.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

void ModelBuilder::refuse(std::string problem, ErrorKind kind, Code code) const {
  raise(core::fail(kind, code, "{}: {}", kWhat, problem), where_);
}

void ModelBuilder::build() {
  make_nodes();
  connect();
  finish_models();
  divide_wires();
  state_facts();
  check(tree_.infer(), where_, tree_.node(0).name);
}

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
  const NodeId top = tree_.new_node();
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
  Node& node = tree_.node(id);
  node.name = record.name;
  node.class_name = record.class_name.empty() ? usual_class(record.op.op) : record.class_name;
  node.frozen = part != nullptr || record.frozen;
  add_initializers(id, record.op);
  if (node.parent != kNone && !node.name.empty()) {
    if (!tree_.node(node.parent).child_names.emplace(node.name, id).second) {
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
  const NodeId id = tree_.new_node();
  tree_.node(id).parent = parent;
  tree_.node(parent).children.push_back(id);
  made_.push_back({id, nullptr, nullptr, &record});
  if (record.op.op == nullptr) return id;
  Node& node = tree_.node(id);
  node.name = record.name;
  node.class_name = record.class_name.empty() ? usual_class(record.op.op) : record.class_name;
  if (!node.name.empty() && !tree_.node(parent).child_names.emplace(node.name, id).second) {
    refuse(fmt::format("two submodels of {} are named '{}'", describe(parent), node.name));
  }
  add_initializers(id, record.op);
  made_.back().op = &record.op;
  make_op(id, record.op);
  std::vector<Name> keys;
  for (const auto& [key, wire] : record.wires) keys.push_back(key);
  add_keys(id, record.op, keys, &record);
  for (const Name key : record.op.former) lead_out(tree_.find(id, key));
  return id;
}

// Wires without names for a valued key, through all models around its op.
void ModelBuilder::lead_out(ConnId key) {
  for (NodeId at = tree_.node(tree_.conn(key).node).parent; at != kNone;
       at = tree_.node(at).parent) {
    const ConnId wire = tree_.new_conn(at, tree_.conn(key).edge, "", tree_.conn(key).origin);
    tree_.conns[wire].latent = true;
    tree_.conns[key].outer = wire;
    key = wire;
  }
}

void ModelBuilder::make_op(NodeId id, const OpRecord& record) {
  Node& node = tree_.node(id);
  const ir::OpDef& op = *record.op;
  node.op = &op;
  node.frozen = true;
  node.variadic = record.items;
  for (const ir::AttrDef& attr : op.attrs) {
    const HostValue* given = record.attrs.find(attr.name);
    if (given == nullptr && !attr.default_value) {
      refuse(fmt::format("{} needs the argument '{}'", op.name, attr.name));
    }
    if (given != nullptr) {
      const core::Status status = attr.check(op.name, *given);
      if (!status.ok()) refuse(status.error().message);
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

void ModelBuilder::add_initializers(NodeId id, const OpRecord& record) {
  for (const auto& [pattern, value] : record.initializers) {
    check_initializer(value, where_);
    tree_.node(id).initializers.push_back({std::string(pattern), value});
  }
}

EdgeId ModelBuilder::edge_of(NodeId id, Name key, const PartRecord* part, ConnId& outer) {
  if (part == nullptr) return tree_.new_edge();
  const auto found = std::find_if(part->wires.begin(), part->wires.end(),
                                  [&](const auto& pair) { return pair.first == key; });
  if (found == part->wires.end() || !found->second) return tree_.new_edge();
  outer = wire(tree_.node(id).parent, *found->second);
  return tree_.conn(outer).edge;
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
  tree_.node(id).numbered.assign(numbered, kNone);
  for (const Name name : record.wires) {
    const auto outer = given.find(name);
    ConnId to = kNone;
    if (outer != given.end()) to = wire(tree_.node(id).parent, outer->second);
    const EdgeId edge = to == kNone ? tree_.new_edge() : tree_.conn(to).edge;
    const auto conn = static_cast<ConnId>(tree_.conns.size());
    Conn& c = tree_.conns.emplace_back();
    c.node = id;
    c.edge = edge;
    c.outer = to;
    tree_.node(id).conns.push_back(conn);
    c.number = number_of(name);
    if (c.number != 0) {
      tree_.node(id).numbered[c.number - 1] = conn;
      continue;
    }
    check_name(std::string(name), where_);
    c.name = name;
    tree_.node(id).names.emplace(c.name, conn);
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
    const auto conn = static_cast<ConnId>(tree_.conns.size());
    Conn& c = tree_.conns.emplace_back();
    c.node = id;
    c.edge = edge;
    c.outer = outer;
    c.name = c.origin = key;
    tree_.node(id).conns.push_back(conn);
    if (input >= 0 && op.inputs[static_cast<size_t>(input)].trainable) {
      tree_.edges[edge].trainable = true;
    }
    if (output < 0) continue;
    c.producer = conn;
    c.exposed = true;
    tree_.node(id).outputs.push_back(conn);
  }
  if (record.items > items) refuse(fmt::format("{} lacks items", op.name));
  check_keys(id);
}

// What an op cannot do without is there, in the order in which it has them.
void ModelBuilder::check_keys(NodeId id) const {
  const Node& node = tree_.node(id);
  for (const ir::InputDef& input : node.op->inputs) {
    if (is_random_key(input) || (input.variadic && node.variadic >= 0)) continue;
    const bool is_there = tree_.find(id, input.name) != kNone;
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
        next < node.outputs.size() && tree_.conn(node.outputs[next]).name == output.name;
    if (!is_next) {
      refuse(fmt::format("{} needs the key '{}' in its place", node.op->name, output.name),
             ErrorKind::kKey, Code::kKeyUnknown);
    }
    ++next;
  }
}

ConnId ModelBuilder::wire(NodeId id, Name key) const {
  const ConnId found = tree_.find(id, key);
  if (found == kNone) {
    refuse(fmt::format("{} has no wire '{}'", describe(id), key.substr(0, 200)), ErrorKind::kKey,
           Code::kKeyUnknown);
  }
  return found;
}

Loaded from_json(std::string_view text, Location where, const FindRelation& find) {
  std::vector<std::string> notes;
  core::JsonReader reader(text, std::string(kWhat));
  const FileRecord file = read_file(reader, notes);
  check(reader.status(), where, "");
  auto home = std::make_shared<Home>();
  home->tree = std::make_unique<ModelTree>();
  ModelBuilder(file, *home->tree, std::move(where), find).build();
  return {Access::model(std::move(home), 0), std::move(notes), std::string(file.training)};
}

}  // namespace mithril::model

// A model that is one op: its keys, their order and first facts.
#include <algorithm>

#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

bool is_random_key(const ir::InputDef& input) {
  return !input.next.empty() && input.first.is_string();
}

bool is_next_state(const ir::OpDef& op, std::string_view output) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [&](const ir::InputDef& input) { return input.next == output; });
}

namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class T>
const T* find_in(const std::vector<std::pair<std::string, T>>& items, std::string_view name) {
  for (const auto& [key, value] : items) {
    if (key == name) return &value;
  }
  return nullptr;
}

ir::Attrs attributes(const ir::OpDef& op, const LeafSpec& spec, const Location& where) {
  std::vector<std::string> known;
  for (const ir::AttrDef& attr : op.attrs) known.push_back(attr.name);
  for (const auto& [name, value] : spec.attrs) {
    if (contains(known, name)) continue;
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{} has no argument '{}'{}", op.name,
                     name, core::suggestion_or_keys(name, known)),
          where);
  }
  ir::Attrs out;
  for (const ir::AttrDef& attr : op.attrs) {
    const HostValue* given = find_in(spec.attrs, attr.name);
    if (given == nullptr && !attr.default_value) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{} needs the argument '{}'",
                       op.name, attr.name),
            where);
    }
    if (given != nullptr) check(attr.check(op.name, *given), where, {});
    out.set(attr.name, given != nullptr ? *given : *attr.default_value);
  }
  return out;
}

struct LeafKey {
  std::string name;
  const ir::InputDef* input;
  const KeySpec* spec;  // null: nothing is said
  std::optional<HostValue> value;
};

std::vector<LeafKey> leaf_keys(const ir::OpDef& op, const LeafSpec& spec, const ir::Attrs& attrs,
                               const Location& where) {
  std::vector<std::string> order = op.key_order;
  for (const ir::InputDef& input : op.inputs) {
    if (!contains(order, input.name)) order.push_back(input.name);
  }
  std::vector<LeafKey> out;
  for (const std::string& name : order) {
    const ir::InputDef* input = op.find_input(name);
    if (input == nullptr || is_random_key(*input)) continue;
    if (input->optional && !input->when.empty()) {
      const HostValue* when = attrs.find(input->when);
      if (when == nullptr || !when->is_bool() || !when->as_bool()) continue;
    }
    if (contains(spec.absent, name)) {
      if (input->optional) continue;
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{} cannot do without '{}'",
                       op.name, name),
            where);
    }
    if (input->variadic && spec.count) {
      for (size_t i = 1; i <= *spec.count; ++i) {
        const std::string item = item_key(*input, i);
        const KeySpec* given = find_in(spec.keys, item);
        out.push_back({item, input, given, given ? given->value : std::nullopt});
      }
      continue;
    }
    LeafKey key{name, input, find_in(spec.keys, name), {}};
    if (key.spec != nullptr) {
      key.value = key.spec->value;
    } else if (!contains(spec.open, name)) {
      key.value = input->default_value;
    }
    if (key.value) check(ir::check_range(op.name, name, input->range, *key.value), where, {});
    out.push_back(std::move(key));
  }
  if (op.key_order.empty() && !spec.count) {  // items of a list keep their order
    std::stable_partition(out.begin(), out.end(), [](const LeafKey& k) { return !k.value; });
  }
  return out;
}

void check_key_names(const ir::OpDef& op, const LeafSpec& spec, const std::vector<LeafKey>& keys,
                     const Location& where) {
  std::vector<std::string> known;
  for (const LeafKey& key : keys) known.push_back(key.name);
  for (const ir::OutputDef& output : op.outputs) {
    if (!is_next_state(op, output.name)) known.push_back(output.name);
  }
  const auto check_one = [&](const std::string& name) {
    if (contains(known, name)) return;
    raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{} has no key '{}'{}", op.name, name,
                     core::suggestion(name, known)),
          where);
  };
  for (const auto& [name, key] : spec.keys) check_one(name);
  for (const std::string& name : spec.open) check_one(name);
}

}  // namespace

Model Model::leaf(const ir::OpDef& op, LeafSpec spec, Location where) {
  ir::Attrs attrs = attributes(op, spec, where);
  const std::vector<LeafKey> keys = leaf_keys(op, spec, attrs, where);
  check_key_names(op, spec, keys, where);
  const std::string& own_class = op.python_name.empty() ? op.name : op.python_name;
  Model model(std::move(spec.name), spec.class_name.empty() ? own_class : spec.class_name);
  ModelTree& tree = *model.home_->tree;
  tree.node(0).op = &op;
  tree.node(0).attrs = std::move(attrs);
  if (spec.count) tree.node(0).variadic = static_cast<int32_t>(*spec.count);
  tree.node(0).frozen = true;
  tree.node(0).where = where;
  const uint32_t fact = tree.new_fact(where, title(tree.node(0)));
  bool says = false;
  for (const LeafKey& key : keys) {
    const EdgeId edge = tree.new_edge();
    const ConnId conn = tree.new_conn(0, edge, key.name, key.name);
    tree.edges[edge].trainable = key.input->trainable;
    if (key.spec != nullptr) {
      check_spec(*key.spec, where);
      state_spec(tree, conn, *key.spec, fact);
      says = true;
    } else if (key.value) {
      tree.state_value(conn, *key.value, false, fact);
    }
  }
  for (const std::string& name : op.canonical_inputs) {
    const ConnId conn = tree.find(0, name);
    if (conn != kNone && !tree.is_valued(conn)) tree.add_cin(conn);
  }
  for (const ir::OutputDef& output : op.outputs) {
    if (is_next_state(op, output.name)) continue;
    const ConnId conn = tree.new_conn(0, tree.new_edge(), output.name, output.name);
    tree.edit(conn).producer = conn;
    tree.expose(conn);
    tree.add_cout(conn);
    const KeySpec* given = find_in(spec.keys, output.name);
    if (given == nullptr) continue;
    if (given->value) {
      raise(core::fail(ErrorKind::kKey, Code::kValueArgument,
                       "{}: output '{}' cannot be given a value", op.name, output.name),
            where);
    }
    state_spec(tree, conn, *given, fact);
    says = true;
  }
  tree.state_rule(0, fact);
  if (says) model.solve();  // facts that clash are met at once; plain ops wait for their model
  return model;
}

}  // namespace mithril::model

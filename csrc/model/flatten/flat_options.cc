// Options of a compile: which wires they name, and what they say of these.
#include "infer/rule.h"
#include "model/explain/explain.h"
#include "model/flatten/flat_model.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

FlatModel::FlatModel(Access::At at, const FlattenOptions& flatten_options, FlatGraph& result)
    : options(flatten_options), out(result), paths(at.tree()), at_(std::move(at)) {
  solver_ =
      std::make_unique<infer::Solver>(tree().solver ? tree().solver->clone() : infer::Solver());
}

ConnId FlatModel::option_key(const KeyRef& key, std::string_view what, bool must_exist) {
  if (key.wire) return resolve(at_, key, options.where);
  if (key.name.starts_with('$')) {
    raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown,
                     "{}: '{}' is a generated name: give the connection, or name the key", what,
                     key.name),
          options.where);
  }
  ConnId conn = tree().find(node(), key.name);
  if (conn == kNone) {
    if (generated_.empty()) {
      for (auto& [c, name] : generated_names(tree(), node(), false, false)) generated_[name] = c;
      for (auto& [c, name] : names_by_origin(tree(), node())) generated_[name] = c;
      for (auto& [c, name] : names_by_place()) generated_[name] = c;
    }
    const auto found = generated_.find(key.name);
    if (found != generated_.end()) conn = found->second;
  }
  if (conn == kNone && must_exist) {
    raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{}: the model has no key '{}'{}", what,
                     key.name, core::suggestion(key.name, tree().key_names(node()))),
          options.where);
  }
  return conn;
}

std::unordered_set<EdgeId> FlatModel::option_edges(const std::vector<KeyRef>& keys,
                                                   std::string_view what) {
  std::unordered_set<EdgeId> edges;
  for (const KeyRef& key : keys) {
    const ConnId conn = option_key(key, what, true);
    if (tree().conn(conn).produced()) {
      raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{}: '{}' is not an input of the model",
                       what, tree().key(conn)),
            options.where);
    }
    edges.insert(edge(conn));
  }
  return edges;
}

void FlatModel::refuse_overlap() {
  const auto clash = [&](EdgeId e, std::string_view a, std::string_view b) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "'{}' is in {} and in {}",
                     tree().edges[e].label, a, b),
          options.where);
  };
  for (const EdgeId e : trainable_) {
    if (data_.count(e) != 0) clash(e, "trainable_keys", "data_keys");
    if (constants_.count(e) != 0) clash(e, "trainable_keys", "constant_keys");
    const Edge& at = tree().edges[e];
    if (at.value && !at.initial) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                       "trainable_keys: '{}' has a fixed value", at.label),
            options.where);
    }
  }
  for (const auto& [e, value] : constants_) {
    if (data_.count(e) != 0) clash(e, "constant_keys", "data_keys");
  }
}

void FlatModel::read_options() {
  for (const KeyRef& key : options.data_keys) {
    const ConnId conn = option_key(key, "data_keys", options.strict);
    if (conn == kNone) {
      const std::string hint = core::suggestion(key.name, tree().key_names(node()));
      out.warnings.push_back(
          {"UnusedKeyWarning",
           fmt::format("data_keys: the model has no key '{}'{}", key.name, hint)});
      out.ignored_keys.push_back(key.name);
      continue;
    }
    data_.merge(option_edges({key}, "data_keys"));
  }
  trainable_ = option_edges(options.trainable_keys, "trainable_keys");
  for (const auto& [key, value] : options.constants) {
    const EdgeId e = *option_edges({key}, "constant_keys").begin();
    if (tree().edges[e].value && !tree().edges[e].initial) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                       "constant_keys: '{}' has a value already", tree().edges[e].label),
            options.where);
    }
    constants_[e] = value;
  }
  for (const KeyRef& key : options.discard_keys) {
    const ConnId conn = option_key(key, "discard_keys", true);
    const KeyKind kind = tree().kind(conn);
    const bool is_cout = tree().conn(conn).cout != kNone;
    if (kind != KeyKind::kInput && kind != KeyKind::kOutput && !is_cout) {
      raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown,
                       "discard_keys: '{}' is neither an input nor an output", tree().key(conn)),
            options.where);
    }
    discard_.insert(edge(conn));
  }
  refuse_overlap();
  for (const auto& [key, value] : options.values) {
    constants_[edge(option_key(key, "values", true))] = value;
  }
}

namespace {
// A loss compares like with like: nothing is broadcast silently.
const infer::Rule kSafeShapes = [](infer::RuleBuilder& rule) {
  rule.shape(rule.in("input"), "n ...");
  rule.same_shape(rule.in("input"), rule.in("target"));
};

// A number is like everything.
bool is_number(const HostValue* value) {
  return value != nullptr && (value->is_bool() || value->is_int() || value->is_double());
}

bool wants_safe_shapes(const Node& leaf) {
  const HostValue* safe = leaf.attrs.find("safe_shapes");
  return safe != nullptr && safe->is_bool() && safe->as_bool() && leaf.op->is_elementwise();
}
}  // namespace

core::Status FlatModel::explained(core::Status status) const {
  if (!status.ok()) explain(status.error(), tree(), *solver_, {node(), kNone, options.where});
  return status;
}

core::Status FlatModel::assert_facts() {
  const infer::FactId fact = solver_->new_fact(options.where, "compile");
  const infer::ScopeId scope = solver_->new_scope();
  for (const auto& [key, shape] : options.shapes) {
    const ConnId conn = option_key(key, "shapes", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_shape(cell(edge(conn)), shape, scope, fact));
  }
  for (const auto& [key, item, shape] : options.item_shapes) {
    const std::vector<infer::CellId> items = tensors_of(edge(option_key(key, "shapes", true)));
    if (item >= items.size()) continue;
    MITHRIL_RETURN_IF_ERROR(solver_->assert_shape(items[item], shape, scope, fact));
  }
  for (const auto& [key, type] : options.types) {
    const ConnId conn = option_key(key, "types", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_type(cell(edge(conn)), type, fact));
  }
  for (const auto& [key, dtype] : options.dtypes) {
    const ConnId conn = option_key(key, "types", true);
    if (tree().kind(conn) != KeyKind::kInput) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                       "types: '{}' is no input, its width follows from those of the inputs",
                       tree().key(conn)),
            options.where);
    }
    dtypes[edge(conn)] = dtype;
    const infer::KindSet kind = infer::tensor_of(core::kind(dtype));
    MITHRIL_RETURN_IF_ERROR(solver_->assert_kind(cell(edge(conn)), kind, fact));
  }
  for (const auto& [key, value] : options.constants) {
    const ConnId conn = option_key(key, "constant_keys", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_value(cell(edge(conn)), value, fact));
  }
  for (const auto& [key, value] : options.values) {
    const ConnId conn = option_key(key, "values", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_value(cell(edge(conn)), value, fact));
  }
  for (const FlatLeaf& leaf : leaves) {
    const Node& n = tree().node(leaf.node);
    if (!options.safe_shapes || !wants_safe_shapes(n)) continue;
    const EdgeId input = edge(tree().find(leaf.node, "input"));
    const EdgeId target = edge(tree().find(leaf.node, "target"));
    if (is_number(constant(input)) || is_number(constant(target))) continue;
    const infer::Binding names[] = {{"input", cell(input), nullptr},
                                    {"target", cell(target), nullptr}};
    MITHRIL_RETURN_IF_ERROR(solver_->add_rule(n.op->name, kSafeShapes, names, fact));
  }
  return solver_->propagate();
}

}  // namespace mithril::model

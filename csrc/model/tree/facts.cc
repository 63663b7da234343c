// Facts of wires: stated, checked against each other, logged, and played into the solver.
#include <algorithm>

#include "core/env.h"
#include "infer/rule.h"
#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {
Entry entry_of(const ModelTree& tree, Entry::Type type, ConnId conn, uint32_t fact) {
  Entry entry;
  entry.type = type;
  entry.conn = conn;
  entry.id = tree.root(tree.conn(conn).edge);
  entry.fact = fact;
  return entry;
}

// Literals are known by their shape.
std::string short_value(const HostValue& value) {
  const std::string text = to_string(value);
  constexpr size_t kLongest = 60;
  return text.size() <= kLongest ? text : text.substr(0, text.find('(')) + "(...)";
}

void add_fact(const ModelTree& tree, core::Error& error, std::string text, uint32_t fact) {
  const Fact* said = fact == kNone ? nullptr : &tree.facts[fact];
  error.facts.push_back(
      {std::move(text), said ? said->where : Location(), said ? said->text : "", 0});
}

// What a value says of a wire whose value is not fixed: its kind, and the shape of a literal.
KindSet kinds_of_initial(const HostValue& value) { return infer::kind_of(value); }

// What comes out is what goes in next time, except for its value.
const infer::Rule kStateRule = [](infer::RuleBuilder& rule) {
  rule.same(rule.in("input"), rule.out("output"));
};
}  // namespace

void raise_two_values(const ModelTree& tree, std::string_view name, const Edge& a, const Edge& b) {
  core::Error error = core::fail(ErrorKind::kValue, Code::kValueConflict,
                                 "'{}' has the value {} already and cannot be set to {}", name,
                                 short_value(*a.value), short_value(*b.value));
  for (const Edge* edge : {&a, &b}) {
    add_fact(tree, error, fmt::format("{} = {}", name, short_value(*edge->value)),
             edge->value_fact);
  }
  error.hint =
      fmt::format("a value is given once: leave one of them out, or give '{}' as data", name);
  raise(std::move(error));
}

void raise_two_differentiabilities(const ModelTree& tree, std::string_view name, const Edge& a,
                                   const Edge& b) {
  core::Error error =
      core::fail(ErrorKind::kValue, Code::kDifferentiability,
                 "'{}' is stated {}differentiable already", name, *a.differentiable ? "" : "not ");
  for (const Edge* edge : {&a, &b}) {
    add_fact(tree, error,
             fmt::format("{} : {}differentiable", name, *edge->differentiable ? "" : "not "),
             edge->differentiable_fact);
  }
  error.hint = "state it once: a parameter is differentiable, data are not";
  raise(std::move(error));
}

void ModelTree::state_type(ConnId conn, const infer::Type& type, uint32_t fact, bool implied) {
  Entry entry = entry_of(*this, Entry::Type::kKinds, conn, fact);
  entry.implied = implied;
  entry.kinds = type.kinds;
  if (!type.is_plain()) entry.content = std::make_shared<const infer::Type>(type);
  log.push_back(std::move(entry));
}

void ModelTree::state_interval(ConnId conn, const infer::Interval& interval, uint32_t fact) {
  Entry entry = entry_of(*this, Entry::Type::kInterval, conn, fact);
  entry.interval = std::make_shared<const infer::Interval>(interval);
  log.push_back(std::move(entry));
}

void check_template(const ShapeTemplate& shape, std::string_view key, const Location& where) {
  const auto variadic = [](const infer::TemplateItem& item) {
    return item.type == infer::TemplateItem::Type::kVariadic;
  };
  if (std::count_if(shape.begin(), shape.end(), variadic) > 1) {
    raise(core::fail(ErrorKind::kShape, Code::kShapeTemplate,
                     "shape of '{}': at most one variadic is allowed in a template", key),
          where);
  }
  for (const infer::TemplateItem& item : shape) {
    if (item.type != infer::TemplateItem::Type::kSize || item.size >= 0) continue;
    raise(core::fail(ErrorKind::kShape, Code::kShapeTemplate,
                     "shape of '{}': sizes must not be negative, got {}", key, item.size),
          where);
  }
}

void ModelTree::state_shape(ConnId conn, const ShapeTemplate& shape, uint32_t scope, uint32_t fact,
                            bool implied) {
  check_template(shape, key(conn), {});
  Entry entry = entry_of(*this, Entry::Type::kShape, conn, fact);
  entry.implied = implied;
  entry.other = scope;
  entry.shape = std::make_shared<const ShapeTemplate>(shape);
  log.push_back(std::move(entry));
}

void ModelTree::state_value(ConnId conn, const HostValue& value, bool initial, uint32_t fact) {
  const EdgeId at = root(conns[conn].edge);
  if (edges[at].value) {
    if (*edges[at].value == value && edges[at].initial == initial) {
      log_value(conn, value, initial, fact);  // stands when the first one is taken back
      return;
    }
    Edge other;
    other.value = value;
    other.value_fact = fact;
    raise_two_values(*this, key(conn), edges[at], other);
  }
  Edge& edge = edit_edge(at);
  edge.value = value;
  edge.initial = initial;
  edge.value_fact = fact;
  log_value(conn, value, initial, fact);
}

void ModelTree::log_value(ConnId conn, const HostValue& value, bool initial, uint32_t fact) {
  auto shared = std::make_shared<const HostValue>(value);
  if (!initial) {
    Entry entry = entry_of(*this, Entry::Type::kValue, conn, fact);
    entry.value = std::move(shared);
    log.push_back(std::move(entry));
    return;
  }
  statements.push_back({conn, fact, std::nullopt, std::move(shared)});
  state_type(conn, kinds_of_initial(value), fact, true);
  if (!value.is_tensor()) return;
  ShapeTemplate shape;
  for (const int64_t size : value.as_tensor()->shape) {
    shape.push_back(infer::TemplateItem::of(size));
  }
  state_shape(conn, shape, new_scope(), fact, true);
}

void ModelTree::state_differentiable(ConnId conn, bool differentiable, uint32_t fact,
                                     bool is_list) {
  const EdgeId at = root(conns[conn].edge);
  const Edge& edge = edges[at];
  if (edge.differentiable && *edge.differentiable != differentiable) {
    Edge other;
    other.differentiable = differentiable;
    other.differentiable_fact = fact;
    raise_two_differentiabilities(*this, key(conn), edge, other);
  }
  if (differentiable && edge.value && !edge.initial) {
    core::Error error =
        core::fail(ErrorKind::kValue, Code::kDifferentiability,
                   "'{}' has a fixed value and cannot be differentiable", key(conn));
    add_fact(*this, error, key(conn) + " : " + short_value(*edge.value), edge.value_fact);
    add_fact(*this, error, key(conn) + " : differentiable", fact);
    error.hint = "set_values(..., initial=True) gives a value where training starts";
    raise(std::move(error));
  }
  edit_edge(at).differentiable = differentiable;
  edit_edge(at).differentiable_fact = fact;
  statements.push_back({conn, fact, differentiable, nullptr});
  if (differentiable && !is_list) state_type(conn, infer::kFloating, fact, true);
}

void ModelTree::state_rule(NodeId leaf, uint32_t fact) {
  Entry entry;
  entry.type = Entry::Type::kRule;
  entry.id = leaf;
  entry.fact = fact;
  log.push_back(std::move(entry));
}

void ModelTree::state_next(ConnId input, ConnId output, uint32_t fact) {
  Entry entry = entry_of(*this, Entry::Type::kSame, input, fact);
  entry.other = root(conns[output].edge);
  log.push_back(std::move(entry));
}

infer::CellId ModelTree::cell(EdgeId edge) {
  const EdgeId at = root(edge);
  if (!edges[at].cell.valid()) {
    const infer::CellId made = solver->new_cell(infer::kAny, edges[at].label);
    edit_edge(at).cell = made;
  }
  return edges[at].cell;
}

infer::FactId ModelTree::fact_id(uint32_t fact) {
  Fact& f = facts[fact];
  if (!f.id.valid()) f.id = solver->new_fact(f.where, f.text);
  return f.id;
}

std::string item_key(const ir::InputDef& input, size_t number) {
  return fmt::format("{}{}", input.name, number);
}

// The solver keeps names by reference: these live as long as the tree.
std::string_view ModelTree::item_name(const ir::InputDef& input, size_t number) {
  auto found = std::find_if(item_names_.begin(), item_names_.end(),
                            [&](const auto& names) { return names.first == &input; });
  if (found == item_names_.end()) {
    item_names_.emplace_back();
    found = item_names_.end() - 1;
    found->first = &input;
  }
  while (found->second.size() < number) {
    found->second.push_back(
        std::make_shared<const std::string>(item_key(input, found->second.size() + 1)));
  }
  return *found->second[number - 1];
}

core::Status ModelTree::play_rule(const Entry& entry) {
  const Node& leaf = nodes[entry.id];
  std::vector<infer::Binding> bindings;
  size_t items = 0;
  for (const ConnId c : leaf.conns) {
    const std::string& name = conns[c].name;
    const infer::CellId at = cell(conns[c].edge);
    const int input = leaf.op->input_index(name);
    const int output = leaf.op->output_index(name);
    if (input >= 0) {
      bindings.push_back({leaf.op->inputs[static_cast<size_t>(input)].name, at, nullptr});
    } else if (output >= 0) {
      bindings.push_back({leaf.op->outputs[static_cast<size_t>(output)].name, at, nullptr});
    } else {
      bindings.push_back({item_name(leaf.op->inputs.back(), ++items), at, nullptr});
    }
  }
  for (const ir::AttrDef& attr : leaf.op->attrs) {
    const HostValue* value = leaf.attrs.find(attr.name);
    if (value != nullptr) bindings.push_back({attr.name, {}, value});
  }
  return solver->add_rule(leaf.op->name, leaf.op->full_rule, bindings, fact_id(entry.fact));
}

core::Status ModelTree::play(const Entry& entry) {
  switch (entry.type) {
    case Entry::Type::kRule: return play_rule(entry);
    case Entry::Type::kKinds:
      return solver->assert_type(cell(entry.id),
                                 entry.content ? *entry.content : infer::Type(entry.kinds),
                                 fact_id(entry.fact));
    case Entry::Type::kInterval:
      return solver->assert_interval(cell(entry.id), *entry.interval, fact_id(entry.fact));
    case Entry::Type::kShape: {
      infer::ScopeId& scope = scopes[entry.other];
      if (!scope.valid()) scope = solver->new_scope();
      return solver->assert_shape(cell(entry.id), *entry.shape, scope, fact_id(entry.fact));
    }
    case Entry::Type::kValue:
      return solver->assert_value(cell(entry.id), *entry.value, fact_id(entry.fact));
    case Entry::Type::kUnify: {
      // Only where both wires had cells when they were merged; a rebuilt solver has one.
      const infer::CellId a = edges[entry.id].cell, b = edges[entry.other].cell;
      if (!a.valid() || !b.valid()) return {};
      return solver->unify(a, b, fact_id(entry.fact));
    }
    case Entry::Type::kConstraint: return play_constraint(entry);
    case Entry::Type::kSame: {
      const infer::Binding bindings[] = {{"input", cell(entry.id), nullptr},
                                         {"output", cell(entry.other), nullptr}};
      return solver->add_rule("state", kStateRule, bindings, fact_id(entry.fact));
    }
  }
  return {};
}

core::Status ModelTree::infer() {
  core::Status status = infer_all();
  if (!status.ok()) rethrow_thrown();
  return status;
}

core::Status ModelTree::infer_all() {
  if (!solver) {
    solver = std::make_unique<infer::Solver>();
    stops.clear();
  } else if (recording_ && had_solver_ && !mark_) {
    mark_ = solver->mark();
  }
  for (const EdgeId edge : relabelled_) {
    const EdgeId at = root(edge);
    if (edges[at].cell.valid()) solver->set_name(edges[at].cell, edges[at].label);
  }
  relabelled_.clear();
  for (; played < log.size(); ++played) {
    MITHRIL_RETURN_IF_ERROR(play(log[played]));
  }
  MITHRIL_RETURN_IF_ERROR(solver->propagate());
  if (stops.empty() || stops.back() != log.size()) stops.push_back(log.size());
  // Every relation once more: on large models the check would take the square of their size.
  constexpr size_t kMostChecked = 2000;
  const bool check = core::env().verify && solver->cell_count() <= kMostChecked;
  return check ? solver->check_fixed_point() : core::Status();
}

// --- specs --------------------------------------------------------------------------------------

namespace {
bool is_sequence(const KeySpec& spec) {
  return spec.type && spec.type->kinds.subset_of(infer::kSequence);
}
}  // namespace

void check_spec(const KeySpec& spec, const Location& where) {
  if (spec.shape) check_template(*spec.shape, spec.name, where);
  const bool scalar_value = spec.value && !spec.value->is_tensor();
  if (scalar_value && spec.shape) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "key '{}': the value {} is no tensor and has no shape", spec.name,
                     to_string(*spec.value)),
          where);
  }
  if (scalar_value && spec.differentiable.value_or(false)) {
    raise(core::fail(ErrorKind::kValue, Code::kDifferentiability,
                     "key '{}': the value {} is no tensor and cannot be differentiable", spec.name,
                     to_string(*spec.value)),
          where);
  }
  if (spec.type && spec.shape && !spec.type->kinds.may_be_tensor()) {
    raise(core::fail(ErrorKind::kDType, Code::kDTypeConflict,
                     "key '{}': a shape makes it a tensor, and its type is {}", spec.name,
                     infer::to_string(*spec.type)),
          where);
  }
  if (spec.type && spec.differentiable.value_or(false) && !is_sequence(spec) &&
      !spec.type->kinds.has(infer::ValueKind::kTensorFloat)) {
    raise(core::fail(ErrorKind::kDType, Code::kDTypeConflict,
                     "key '{}': only float tensors are differentiable, and its type is {}",
                     spec.name, infer::to_string(*spec.type)),
          where);
  }
  if (spec.type && spec.value && !spec.type->kinds.meets(infer::kind_of(*spec.value))) {
    raise(core::fail(ErrorKind::kDType, Code::kDTypeConflict,
                     "key '{}': the value {} is not of type {}", spec.name, to_string(*spec.value),
                     infer::to_string(*spec.type)),
          where);
  }
  if (spec.interval && scalar_value && !infer::contains(*spec.interval, *spec.value)) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "key '{}': the value {} is not a number in {}", spec.name,
                     to_string(*spec.value), infer::to_string(*spec.interval)),
          where);
  }
}

void state_spec(ModelTree& tree, ConnId conn, const KeySpec& spec, uint32_t fact) {
  if (spec.type) tree.state_type(conn, *spec.type, fact);
  if (spec.interval) tree.state_interval(conn, *spec.interval, fact);
  if (spec.shape) tree.state_shape(conn, *spec.shape, tree.new_scope(), fact);
  if (spec.value) tree.state_value(conn, *spec.value, spec.initial, fact);
  if (spec.differentiable) {
    tree.state_differentiable(conn, *spec.differentiable, fact, is_sequence(spec));
  }
}

}  // namespace mithril::model

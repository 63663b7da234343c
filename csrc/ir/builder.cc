#include "ir/builder.h"

#include <algorithm>
#include <limits>

#include "ir/halves.h"
#include "ir/infer_types.h"

namespace mithril::ir {

using core::Code;
using core::ErrorKind;

const Type& Value::type() const {
  static const Type kNone = Type::host_value({});
  return id == kNoValue ? kNone : builder->graph().type(id);
}

void Builder::fail(core::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Value Builder::input(std::string name, Type type, Role role) {
  return {this, graph_->add_input(std::move(name), std::move(type), role)};
}

void Builder::output(std::string name, Value value) {
  graph_->outputs.push_back({std::move(name), value.id});
}

Value Builder::call(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs) {
  return call(op, std::vector<Operand>(operands), std::move(attrs));
}

Value Builder::call(std::string_view op, std::vector<Operand> operands, Attrs attrs) {
  auto found = Registry::global().lookup(op);
  if (!found.ok()) {
    fail(std::move(found).status());
    return {};
  }
  const auto results = call_all(**found, std::move(operands), std::move(attrs));
  return results.empty() ? Value{} : results.front();
}

std::vector<Value> Builder::call_all(const OpDef& op, std::vector<Operand> operands, Attrs attrs) {
  if (!status_.ok()) return std::vector<Value>(op.outputs.size());
  auto results = try_call(op, operands, attrs);
  if (results.ok()) return std::move(*results);
  core::Status status = std::move(results).status();
  if (!status.error().location.known()) {
    status.error().location = graph_->locations[static_cast<size_t>(location_)];
  }
  fail(std::move(status));
  return std::vector<Value>(op.outputs.size());
}

namespace {

// Items of a container that are known: an attribute with none where an operand stands.
void fold_items(const InputDef& input, size_t first, std::vector<Operand>& operands, Attrs& attrs) {
  HostValue::Tuple items;
  bool any = false;
  for (size_t i = first; i < operands.size(); ++i) {
    any = any || operands[i].host;
    items.push_back(operands[i].host.value_or(HostValue()));
    operands[i].host.reset();
  }
  if (any) attrs.set(input.name, HostValue::tuple(std::move(items)));
}

// Known host operands become attributes: `reshape(x, shape(y))` needs no wire. A variadic input
// keeps its operands, but for a single known value, which stands for all of them.
void fold_host_operands(const OpDef& op, const Graph& graph, std::vector<Operand>& operands,
                        Attrs& attrs) {
  for (size_t i = 0; i < op.inputs.size() && i < operands.size(); ++i) {
    if (op.inputs[i].variadic) {
      const bool one = operands.size() == i + 1 && operands[i].host && !operands[i].value;
      if (op.body == BodyKind::kHost) fold_items(op.inputs[i], i, operands, attrs);
      if (!one || op.body == BodyKind::kHost) break;
      attrs.set(op.inputs[i].name, *operands[i].host);
      operands.pop_back();
      break;
    }
    Operand& operand = operands[i];
    if (operand.value) {
      const ValueInfo& info = graph.value(operand.value.id);
      if (info.type.is_tensor || !info.host) continue;
      operand.host = info.host;
      operand.value = {};
    }
    if (!operand.host) continue;
    attrs.set(op.inputs[i].name, *operand.host);
    operand.host.reset();
  }
}

core::Status fill_defaults(const OpDef& op, const std::vector<Operand>& operands, Attrs& attrs) {
  const auto given = [&](size_t i) { return i < operands.size() && operands[i].value; };
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const InputDef& input = op.inputs[i];
    if (given(i) || attrs.find(input.name) != nullptr || input.optional || input.variadic) {
      continue;
    }
    if (!input.default_value) {
      return core::fail(ErrorKind::kKey, Code::kKeyMissing, "{}: operand '{}' is missing", op.name,
                        input.name);
    }
    attrs.set(input.name, *input.default_value);
  }
  for (const AttrDef& attr : op.attrs) {
    if (attrs.find(attr.name) != nullptr) continue;
    if (!attr.default_value) {
      return core::fail(ErrorKind::kKey, Code::kKeyMissing, "{}: attribute '{}' is missing",
                        op.name, attr.name);
    }
    attrs.set(attr.name, *attr.default_value);
  }
  return {};
}

core::Status check_attr_names(const OpDef& op, const Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    const bool input = op.input_index(name) >= 0;
    if (input || op.has_attr(name)) continue;
    std::vector<std::string> known;
    for (const AttrDef& attr : op.attrs) known.push_back(attr.name);
    for (const InputDef& def : op.inputs) known.push_back(def.name);
    return core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{}: no attribute named '{}'{}", op.name,
                      name, core::suggestion(name, known));
  }
  return {};
}

bool is_number(const HostValue& value) {
  return value.is_bool() || value.is_int() || value.is_double() || value.is_symbolic();
}

// Whether a known value is a finite number beyond the range of a float type.
bool is_beyond(const HostValue* value, DType dtype) {
  const bool known = value != nullptr && (value->is_int() || value->is_double());
  return known && core::overflows(value->as_number(), dtype);
}

// Whether a known value is an integer that the type lacks, or the target: without 64 bits its
// default is int32.
bool is_too_wide(const Graph& graph, const HostValue* value, const Type& type) {
  if (value == nullptr || !value->is_int() || !type.is_tensor) return false;
  const bool is_narrow = type.dtype == DType::kInt32 ||
                         (type.dtype == DType::kInt64 && graph.default_int == DType::kInt32);
  const int64_t number = value->as_int();
  return is_narrow && (number > std::numeric_limits<int32_t>::max() ||
                       number < std::numeric_limits<int32_t>::min());
}

core::Status does_not_fit(const OpDef& op, std::string_view name, const HostValue& number,
                          DType dtype) {
  core::Error error = core::fail(
      ErrorKind::kOverflow, Code::kOverflow, "{}: '{}' must be in the range of {}, got {}", op.name,
      name, core::name(dtype == DType::kInt64 ? DType::kInt32 : dtype), core::to_string(number));
  if (!core::is_float(dtype)) return error;
  const bool is_negative = number.as_number() < 0.0;
  error.hint =
      fmt::format("give {}inf, a number nearer to 0, or a wider type", is_negative ? "-" : "");
  return error;
}

// Attributes in declared order, so that equal nodes have equal attributes.
Attrs in_declared_order(const OpDef& op, const Attrs& attrs) {
  Attrs out;
  for (const InputDef& input : op.inputs) {
    if (const HostValue* value = attrs.find(input.name)) out.set(input.name, *value);
  }
  for (const AttrDef& attr : op.attrs) {
    if (const HostValue* value = attrs.find(attr.name)) out.set(attr.name, *value);
  }
  return out;
}

bool is_variadic(const OpDef& op) { return !op.inputs.empty() && op.inputs.back().variadic; }

const InputDef& input_of(const OpDef& op, size_t operand) {
  return op.inputs[std::min(operand, op.inputs.size() - 1)];
}

// The number of Python that stands in the place of a wire; null: there is a wire.
const HostValue* known(const OpDef& op, std::span<const ValueId> ids, const Attrs& attrs,
                       size_t operand) {
  return ids[operand] == kNoValue ? attrs.find(input_of(op, operand).name) : nullptr;
}

bool takes_tensor(const OpDef& op, const Graph& graph, std::span<const ValueId> ids,
                  const Attrs& attrs) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const HostValue* weak = known(op, ids, attrs, i);
    const bool is_tensor = ids[i] != kNoValue
                               ? graph.type(ids[i]).is_tensor
                               : weak != nullptr && stands_for_tensor(input_of(op, i), *weak);
    if (is_tensor) return true;
  }
  return false;
}

bool any_beyond(const OpDef& op, std::span<const ValueId> ids, const Attrs& attrs, DType compute) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (is_promoted(op, input_of(op, i)) && is_beyond(known(op, ids, attrs, i), compute)) {
      return true;
    }
  }
  return false;
}

// Numbers that stay attributes, beside the type of the result.
core::Status check_numbers(const OpDef& op, const Graph& graph, const Attrs& attrs,
                           const Type& type) {
  if (!graph.is_concrete()) return {};
  for (const auto& [name, value] : attrs) {
    const InputDef* input = op.find_input(name);
    const bool fills = op.moves && name == "value";
    if (!fills && (input == nullptr || input->is_key)) continue;
    if ((fills && is_beyond(&value, type.dtype)) || is_too_wide(graph, &value, type)) {
      return does_not_fit(op, name, value, type.dtype);
    }
  }
  return {};
}

}  // namespace

core::Result<std::vector<Value>> Builder::try_call(const OpDef& op, std::vector<Operand>& operands,
                                                   Attrs& attrs) {
  if (operands.size() > op.inputs.size() && !is_variadic(op)) {
    return core::fail(ErrorKind::kValue, Code::kValueArgument, "{} takes {} operands, got {}",
                      op.name, op.inputs.size(), operands.size());
  }
  fold_host_operands(op, *graph_, operands, attrs);
  MITHRIL_RETURN_IF_ERROR(fill_defaults(op, operands, attrs));
  MITHRIL_RETURN_IF_ERROR(check_attr_names(op, attrs));
  attrs = in_declared_order(op, attrs);
  MITHRIL_ASSIGN(std::vector<ValueId> ids, ids_of(op, operands));

  if (graph_->is_concrete()) {
    const DType compute = compute_type(op, *graph_, ids, attrs);
    const bool any_tensor = takes_tensor(op, *graph_, ids, attrs);
    if (any_tensor && !op.moves && in_float32(compute) != compute &&
        any_beyond(op, ids, attrs, compute)) {
      return call_in_float32(op, ids, attrs, compute);
    }
    MITHRIL_RETURN_IF_ERROR(promote(op, ids, attrs, compute, any_tensor));
  }

  MITHRIL_ASSIGN(Inferred inferred, infer_types(op, *graph_, ids, attrs));
  MITHRIL_RETURN_IF_ERROR(check_numbers(op, *graph_, attrs, inferred.types[0]));
  const NodeId node = graph_->add_node(op.id, std::move(ids), std::move(attrs),
                                       std::move(inferred.types), location_);
  std::vector<Value> out;
  for (size_t i = 0; i < graph_->node(node).results.size(); ++i) {
    const ValueId id = graph_->node(node).results[i];
    graph_->value(id).host = std::move(inferred.hosts[i]);
    out.push_back({this, id});
  }
  return out;
}

core::Result<std::vector<ValueId>> Builder::ids_of(const OpDef& op,
                                                   std::vector<Operand>& operands) {
  std::vector<ValueId> ids;
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool item = is_variadic(op) && i + 1 >= op.inputs.size() && op.body != BodyKind::kHost;
    // An index may be slices beside tensors: what is known rides on a host value.
    const bool may_be_host = item && op.inputs.back().kinds.meets(infer::kHost);
    if (may_be_host && !operands[i].value && operands[i].host) {
      operands[i].value = call("buffer", std::vector<Operand>{Operand(*operands[i].host)});
    }
    if (item && !operands[i].value) {
      return core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                        "{}: '{}' mixes wires and known values", op.name, op.inputs.back().name);
    }
    ids.push_back(operands[i].value.id);
  }
  if (!is_variadic(op)) ids.resize(op.inputs.size(), kNoValue);
  return ids;
}

// Here and only here weak scalars become constants, and promoted operands get the compute type:
// bodies and gradient rules never think about it.
core::Status Builder::promote(const OpDef& op, std::vector<ValueId>& ids, Attrs& attrs,
                              DType compute, bool any_tensor) {
  const int32_t here = location_;
  for (size_t i = 0; i < ids.size(); ++i) {
    const InputDef& input = input_of(op, i);
    const HostValue* weak = known(op, ids, attrs, i);
    const bool stands = weak != nullptr && stands_for_tensor(input, *weak);
    const bool promoted = is_promoted(op, input);
    if (!stands && !(promoted && any_tensor)) continue;
    if (weak != nullptr && is_number(*weak)) {
      const DType dtype = promoted ? compute : type_of_number(op, *graph_, ids, input, *weak);
      const bool is_lost = op.moves && is_beyond(weak, dtype);
      if (is_lost || is_too_wide(*graph_, weak, Type::tensor(dtype, {}))) {
        return does_not_fit(op, input.name, *weak, dtype);
      }
      ids[i] =
          call("constant", std::vector<Operand>{}, {{"value", *weak}, {"dtype", HostValue(dtype)}})
              .id;
      attrs.erase(input.name);
    } else if (ids[i] != kNoValue && graph_->type(ids[i]).is_tensor &&
               graph_->type(ids[i]).dtype != compute) {
      ids[i] = cast({this, ids[i]}, compute).id;
    }
  }
  location_ = here;
  return status_.ok() ? core::Status() : core::Status(status_.error());
}

// With a number that no half holds: as all of an op's inside, it is float32.
core::Result<std::vector<Value>> Builder::call_in_float32(const OpDef& op,
                                                          std::span<const ValueId> ids,
                                                          const Attrs& attrs, DType half) {
  const InFloat32 scope(*graph_);
  std::vector<Operand> operands;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Value operand{this, ids[i]};
    const bool promoted = is_promoted(op, input_of(op, i));
    operands.emplace_back(promoted ? in_float32(operand) : operand);
  }
  Attrs numbers = attrs;
  MITHRIL_ASSIGN(std::vector<Value> results, try_call(op, operands, numbers));
  for (Value& result : results) {
    if (result.type().is_tensor && result.dtype() == DType::kFloat32) result = cast(result, half);
  }
  return results;
}

std::vector<Value> Builder::call_regions(const OpDef& op, std::span<const Value> operands,
                                         Attrs attrs,
                                         std::vector<std::shared_ptr<const Graph>> regions,
                                         std::vector<Type> types) {
  if (status_.ok()) fail(fill_defaults(op, {}, attrs));
  if (status_.ok()) fail(check_attr_names(op, attrs));
  if (!status_.ok()) return std::vector<Value>(types.size());
  std::vector<ValueId> ids;
  for (const Value& operand : operands) ids.push_back(operand.id);
  const NodeId at = graph_->add_node(op.id, std::move(ids), in_declared_order(op, attrs),
                                     std::move(types), location_);
  graph_->nodes[static_cast<size_t>(at)].regions = std::move(regions);
  std::vector<Value> out;
  for (const ValueId id : graph_->node(at).results) out.push_back({this, id});
  return out;
}

Value Builder::scalar(double value, DType dtype) {
  const bool integral = !core::is_float(dtype);
  const HostValue literal = dtype == DType::kBool ? HostValue(value != 0.0)
                            : integral            ? HostValue(static_cast<int64_t>(value))
                                                  : HostValue(value);
  return call("constant", {}, {{"value", literal}, {"dtype", HostValue(dtype)}});
}

Value Builder::integer(int64_t value, DType dtype) {
  return call("constant", {}, {{"value", HostValue(value)}, {"dtype", HostValue(dtype)}});
}

Value Builder::constant(std::shared_ptr<const core::TensorData> data) {
  return call("constant", {}, {{"value", HostValue(std::move(data))}});
}

void Builder::enter(const OpDef& op, const Node& node) {
  op_ = &op;
  node_ = &node;
}

Value Builder::in(std::string_view name) const {
  const int index = op_->input_index(name);
  MITHRIL_CHECK(index >= 0, "op {} has no input '{}'", op_->name, name);
  const auto at = static_cast<size_t>(index);
  if (at >= node_->operands.size()) return {};
  return {const_cast<Builder*>(this), node_->operands[at]};
}

const HostValue& Builder::attr(std::string_view name) const {
  static const HostValue kNone;
  const HostValue* value = node_->attrs.find(name);
  return value == nullptr ? kNone : *value;
}

GradBuilder::GradBuilder(Builder& builder, const OpDef& op, const Node& node,
                         std::vector<Value> result_cotangents)
    : builder_(&builder),
      op_(&op),
      node_(&node),
      result_cotangents_(std::move(result_cotangents)),
      operand_cotangents_(node.operands.size()) {
  builder_->enter(op, node);
}

void GradBuilder::compute_in_float32() {
  widened_ = in_float32(*builder_, *node_);
  node_ = &widened_;
  builder_->enter(*op_, widened_);
  for (Value& cotangent : result_cotangents_) cotangent = in_float32(cotangent);
}

Value GradBuilder::out(std::string_view name) const {
  const int index = op_->output_index(name);
  MITHRIL_CHECK(index >= 0, "op {} has no output '{}'", op_->name, name);
  const auto at = static_cast<size_t>(index);
  const Value result{builder_, node_->results[at]};
  if (node_ != &widened_ || !is_half(result.type())) return result;
  if (op_->random || op_->moves) return in_float32(result);
  if (results_.empty()) {
    std::vector<Operand> operands;
    for (const ValueId id : widened_.operands) operands.emplace_back(Value{builder_, id});
    results_ = builder_->call_all(*op_, std::move(operands), widened_.attrs);
  }
  return results_[at];
}

bool GradBuilder::has_dout(std::string_view name) const {
  return static_cast<bool>(result_cotangents_[static_cast<size_t>(op_->output_index(name))]);
}

Value GradBuilder::dout(std::string_view name) {
  Value& cotangent = result_cotangents_[static_cast<size_t>(op_->output_index(name))];
  if (!cotangent) cotangent = zeros_like(out(name));
  return cotangent;
}

bool GradBuilder::wants(std::string_view input) const {
  const auto at = static_cast<size_t>(op_->input_index(input));
  if (at >= node_->operands.size() || node_->operands[at] == kNoValue) return false;
  return wanted_.empty() || wanted_[at];
}

Value& GradBuilder::d(std::string_view input) {
  return operand_cotangents_[static_cast<size_t>(op_->input_index(input))];
}

size_t GradBuilder::count(std::string_view input) const {
  const auto first = static_cast<size_t>(op_->input_index(input));
  return node_->operands.size() > first ? node_->operands.size() - first : 0;
}

Value GradBuilder::in(std::string_view name, size_t item) const {
  return {builder_, node_->operands[static_cast<size_t>(op_->input_index(name)) + item]};
}

Value& GradBuilder::d(std::string_view input, size_t item) {
  return operand_cotangents_[static_cast<size_t>(op_->input_index(input)) + item];
}

Value apply(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs) {
  std::vector<Operand> list(operands);
  Value first;
  for (const Operand& operand : list) {
    if (operand.value && (!first || first.dtype() == DType::kBool)) first = operand.value;
  }
  if (!first) return {};  // a failed operand: the builder has the error
  for (Operand& operand : list) {
    if (!operand.host || !is_number(*operand.host)) continue;
    const bool is_exact = operand.host->is_int() && first.dtype() == DType::kInt64;
    operand.value = is_exact ? first.builder->integer(operand.host->as_int(), first.dtype())
                             : first.builder->scalar(operand.host->as_number(), first.dtype());
    operand.host.reset();
  }
  return first.builder->call(op, std::move(list), std::move(attrs));
}

Value operator-(Value a) { return apply("negate", {a}); }

Value where(Value condition, Operand a, Operand b) { return apply("where", {condition, a, b}); }

Value cast(Value x, DType dtype) {
  if (!x || x.dtype() == dtype) return x;
  return x.builder->call("cast", {x}, {{"dtype", HostValue(dtype)}});
}

namespace {
Value reduce(std::string_view op, Value x, HostValue axis, bool keepdim) {
  if (!x) return {};
  return x.builder->call(op, {x}, {{"axis", std::move(axis)}, {"keepdim", HostValue(keepdim)}});
}
}  // namespace

Value sum(Value x, HostValue axis, bool keepdim) { return reduce("sum", x, axis, keepdim); }
Value mean(Value x, HostValue axis, bool keepdim) { return reduce("mean", x, axis, keepdim); }
Value max(Value x, HostValue axis, bool keepdim) { return reduce("max", x, axis, keepdim); }

Value sum_to(Value g, Value like) {
  if (!g || g.shape() == like.shape()) return g;
  return apply("sum_to", {g, like});
}

Value transpose(Value x, HostValue axes) {
  if (!x) return {};
  return x.builder->call("transpose", {x}, {{"axes", std::move(axes)}});
}

Value reshape(Value x, HostValue shape) {
  if (!x) return {};
  return x.builder->call("reshape", {x}, {{"shape", std::move(shape)}});
}

HostValue size_value(Dim dim) {
  return dim.known() ? HostValue(dim.value()) : HostValue(core::SymbolicInt{dim.id()});
}

HostValue shape_value(const Shape& shape) {
  HostValue::Tuple dims;
  for (const Dim dim : shape) dims.push_back(size_value(dim));
  return HostValue::tuple(std::move(dims));
}

std::vector<int64_t> axes_of(const HostValue& axis, size_t rank) {
  const auto from_start = [&](int64_t a) { return a < 0 ? a + static_cast<int64_t>(rank) : a; };
  std::vector<int64_t> out;
  if (axis.is_int()) {
    out.push_back(from_start(axis.as_int()));
  } else if (axis.is_sequence()) {
    for (const HostValue& item : axis.items()) out.push_back(from_start(item.as_int()));
  } else {
    for (size_t i = 0; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

Value reshape_like(Value x, Value like) {
  if (!x || x.shape() == like.shape()) return x;
  return reshape(x, shape_value(like.shape()));
}

Value zeros_like(Value x) { return apply("zeros_like", {x}); }
Value ones_like(Value x) { return apply("ones_like", {x}); }

}  // namespace mithril::ir

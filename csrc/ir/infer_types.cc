#include "ir/infer_types.h"

#include <algorithm>

namespace mithril::ir {

using core::Code;
using core::ErrorKind;
using core::Kind;

bool stands_for_tensor(const InputDef& input, const HostValue& value) {
  const bool number = value.is_bool() || value.is_int() || value.is_double() || value.is_symbolic();
  return number && !input.is_key && input.kinds.is_tensor();
}

bool is_promoted(const OpDef& op, const InputDef& input) {
  if (op.compute == DTypeRule::Compute::kKeep || input.is_key) return false;
  if (op.promoted.empty()) return input.kinds.may_be_tensor();
  return std::find(op.promoted.begin(), op.promoted.end(), input.name) != op.promoted.end();
}

namespace {

const InputDef& input_at(const OpDef& op, size_t operand) {
  return op.inputs[std::min(operand, op.inputs.size() - 1)];
}

// A weak scalar widens the kind only: 2.0 turns integers into floats, never f16 into f32.
std::optional<Kind> weak_kind(const HostValue& value) {
  if (value.is_bool()) return Kind::kBool;
  if (value.is_int() || value.is_symbolic()) return Kind::kInt;
  if (value.is_double()) return Kind::kFloat;
  return std::nullopt;
}

DType default_of(const Graph& graph, Kind kind) {
  if (kind == Kind::kBool) return DType::kBool;
  return kind == Kind::kInt ? graph.default_int : graph.default_float;
}

}  // namespace

DType compute_type(const OpDef& op, const Graph& graph, std::span<const ValueId> operands,
                   const Attrs& attrs) {
  std::optional<DType> joined;
  Kind weak = Kind::kBool;
  bool any_weak = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const InputDef& input = input_at(op, i);
    if (!is_promoted(op, input)) continue;
    if (operands[i] != kNoValue) {
      const Type& type = graph.type(operands[i]);
      if (type.is_tensor) joined = joined ? core::promote(*joined, type.dtype) : type.dtype;
      continue;
    }
    const HostValue* host = attrs.find(input.name);
    const auto kind = host == nullptr ? std::nullopt : weak_kind(*host);
    if (!kind) continue;
    weak = std::max(weak, *kind);
    any_weak = true;
  }
  if (!joined) joined = any_weak ? default_of(graph, weak) : DType::kBool;
  if (any_weak && weak > core::kind(*joined)) joined = default_of(graph, weak);
  const bool is_float = core::is_float(*joined);
  if (op.compute == DTypeRule::Compute::kPromoteFloat && !is_float) return graph.default_float;
  if (op.compute == DTypeRule::Compute::kPromoteInt && !is_float) return graph.default_int;
  const bool as_number = op.compute == DTypeRule::Compute::kPromoteNumber;
  if (as_number && *joined == DType::kBool) return graph.default_int;
  return *joined;
}

DType type_of_number(const OpDef& op, const Graph& graph, std::span<const ValueId> operands,
                     const InputDef& input, const HostValue& number) {
  std::optional<DType> joined;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == kNoValue || !graph.type(operands[i]).is_tensor) continue;
    const DType dtype = graph.type(operands[i]).dtype;
    if (input_at(op, i).kinds == input.kinds)
      joined = joined ? core::promote(*joined, dtype) : dtype;
  }
  Kind kind = weak_kind(number).value_or(Kind::kFloat);
  while (kind < Kind::kFloat && !input.kinds.meets(infer::tensor_of(kind))) {
    kind = static_cast<Kind>(static_cast<int>(kind) + 1);
  }
  return joined && core::kind(*joined) >= kind ? *joined : default_of(graph, kind);
}

namespace {

// The abstract types of a host value in the types of the graph.
DType concrete(const Graph& graph, DType dtype) {
  if (dtype == DType::kAnyFloat) return graph.default_float;
  if (dtype == DType::kAnyInt) return graph.default_int;
  return dtype;
}

// Numbers nested in lists: the largest kind among them. Depth is at most HostValue::kMaxDepth.
Kind kind_in(const HostValue& value) {
  if (!value.is_sequence()) return weak_kind(value).value_or(Kind::kFloat);
  Kind kind = value.items().empty() ? Kind::kFloat : Kind::kBool;
  for (const HostValue& item : value.items()) kind = std::max(kind, kind_in(item));
  return kind;
}

DType type_of_literal(const Graph& graph, const Attrs& attrs) {
  const HostValue* value = attrs.find("value");
  if (value == nullptr) value = attrs.find("input");
  if (value == nullptr) return graph.default_float;
  if (value->is_tensor()) return concrete(graph, value->as_tensor()->dtype);
  return default_of(graph, kind_in(*value));
}

DType result_type(const OpDef& op, const DTypeRule& rule, const Graph& graph,
                  std::span<const ValueId> operands, const Attrs& attrs, DType compute) {
  switch (rule.result) {
    case DTypeRule::Result::kCompute: return compute;
    case DTypeRule::Result::kWidened: return core::widened(compute);
    case DTypeRule::Result::kBool: return DType::kBool;
    case DTypeRule::Result::kDefaultInt: return graph.default_int;
    case DTypeRule::Result::kDefaultFloat: return graph.default_float;
    case DTypeRule::Result::kHost: return DType::kBool;
    case DTypeRule::Result::kOfValue: return type_of_literal(graph, attrs);
    case DTypeRule::Result::kSameAs: {
      const int index = op.input_index(rule.name);
      MITHRIL_CHECK(index >= 0, "{}: result of the type of unknown operand '{}'", op.name,
                    rule.name);
      const auto at = static_cast<size_t>(index);
      const bool given = at < operands.size() && operands[at] != kNoValue;
      if (given) return graph.type(operands[at]).dtype;
      const HostValue* host = attrs.find(rule.name);
      const auto kind = host == nullptr ? std::nullopt : weak_kind(*host);
      return kind ? default_of(graph, *kind) : graph.default_float;
    }
    case DTypeRule::Result::kWideAs: {
      DTypeRule of_operand = rule;
      of_operand.result = DTypeRule::Result::kSameAs;
      const DType same = result_type(op, of_operand, graph, operands, attrs, compute);
      return core::is_float(same) ? core::widened(same) : same;
    }
    case DTypeRule::Result::kAttr: {
      const HostValue* dtype = attrs.find(rule.name);
      if (dtype != nullptr && dtype->is_dtype()) return concrete(graph, dtype->as_dtype());
      DTypeRule fallback = rule;
      fallback.result = rule.fallback;
      return result_type(op, fallback, graph, operands, attrs, compute);
    }
  }
  return compute;
}

std::string operand_list(const Graph& graph, std::span<const ValueId> operands) {
  std::string out;
  for (const ValueId id : operands) {
    if (id == kNoValue) continue;
    if (!out.empty()) out += " and ";
    out += to_string(graph.type(id), graph.dims);
  }
  return out;
}

// Elementwise ops need no solver: sizes broadcast from the right.
core::Result<Shape> broadcast_shapes(const OpDef& op, Graph& graph,
                                     std::span<const ValueId> operands) {
  Shape out;
  for (const ValueId id : operands) {
    if (id == kNoValue || !graph.type(id).is_tensor) continue;
    const Shape& shape = graph.type(id).shape;
    if (shape.size() > out.size()) out.insert(out.begin(), shape.size() - out.size(), Dim(1));
    const size_t offset = out.size() - shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      Dim& dim = out[offset + i];
      if (dim == shape[i]) continue;
      dim = graph.dims.broadcast(dim, shape[i]);
      if (dim == graph.dims.overflow()) {
        return core::fail(ErrorKind::kShape, Code::kShapeBroadcast,
                          "{}: operands must broadcast together, got {}", op.name,
                          operand_list(graph, operands));
      }
    }
  }
  return out;
}

// Host results: the op's own function over host operands (and shapes of tensor operands).
core::Result<std::optional<HostValue>> host_result_value(const OpDef& op, Graph& graph,
                                                         std::span<const ValueId> operands,
                                                         const Attrs& attrs) {
  if (!op.host) return std::optional<HostValue>();
  std::vector<HostValue> values;
  std::vector<Type> types;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] != kNoValue) {
      const ValueInfo& info = graph.value(operands[i]);
      if (!info.type.is_tensor && !info.host) return std::optional<HostValue>();  // not known yet
      values.push_back(info.host.value_or(HostValue()));
      types.push_back(info.type);
      continue;
    }
    const InputDef& input = input_at(op, i);
    const HostValue* host = attrs.find(input.name);
    if (host != nullptr && input.variadic && op.body == BodyKind::kHost) {
      host = &host->items()[i + 1 - op.inputs.size()];  // the attribute has all items
    }
    values.push_back(host == nullptr ? HostValue() : *host);
    types.push_back(Type::host_value(type_of(values.back())));
  }
  const bool has_dtypes = graph.default_float != DType::kAnyFloat;
  const HostCall call{values, attrs, graph.dims, types, has_dtypes};
  auto value = op.host(call);
  if (value.ok()) return std::optional<HostValue>(std::move(*value));
  // A number that depends on a size in a way that no expression states, known when sizes are; or a
  // dtype before it is chosen.
  if (value.error().code == Code::kShapeUnknown) return std::optional<HostValue>();
  return std::move(value).status();
}

bool has_tensor_operand(const Graph& graph, std::span<const ValueId> operands) {
  return std::any_of(operands.begin(), operands.end(),
                     [&](ValueId id) { return id != kNoValue && graph.type(id).is_tensor; });
}

// What the rule is told of each operand, key and attribute.
struct Ports {
  std::vector<infer::Port> ports;
  std::vector<infer::Port> items;  // of the variadic input

  Ports(const OpDef& op, const Graph& graph, std::span<const ValueId> operands,
        const Attrs& attrs) {
    const bool variadic = !op.inputs.empty() && op.inputs.back().variadic;
    const size_t fixed = op.inputs.size() - (variadic ? 1 : 0);
    for (size_t i = 0; i < std::min(fixed, operands.size()); ++i) {
      if (operands[i] != kNoValue) ports.push_back(port(graph, operands[i], op.inputs[i].name));
    }
    for (size_t i = fixed; variadic && i < operands.size(); ++i) {
      const InputDef& input = op.inputs.back();
      const HostValue* all = attrs.find(input.name);
      items.push_back(operands[i] != kNoValue ? port(graph, operands[i], input.name)
                      : all == nullptr        ? infer::Port{}
                                              : known(all->items()[i - fixed], &input, input.name));
    }
    if (variadic && attrs.find(op.inputs.back().name) == nullptr) {
      infer::Port list;
      list.name = op.inputs.back().name;
      list.items = items;
      list.is_list = true;
      ports.push_back(list);
    }
    for (const auto& [name, value] : attrs) {
      const InputDef* input = op.find_input(name);
      const bool may_be_none = input == nullptr || input->kinds.meets(infer::kNoneKind);
      if (value.is_none() && !may_be_none && !input->is_key) continue;
      ports.push_back(known(value, input, name));
    }
  }

  // A known value; a number where the op takes tensors only is one of rank 0.
  static infer::Port known(const HostValue& value, const InputDef* input, std::string_view name) {
    infer::Port out;
    out.name = name;
    out.kinds = infer::kind_of(value);
    if (input != nullptr && stands_for_tensor(*input, value)) {
      out.kinds = input->kinds;
      out.is_tensor = true;
    } else if (!value.is_opaque()) {  // which rules learn nothing from, and scratch would keep
      out.value = &value;
    }
    return out;
  }

  static infer::Port port(const Graph& graph, ValueId id, std::string_view name) {
    const ValueInfo& info = graph.value(id);
    infer::Port out;
    out.name = name;
    out.is_tensor = info.type.is_tensor;
    if (out.is_tensor) {
      out.kinds = infer::tensor_of(core::kind(info.type.dtype));
      out.shape = info.type.shape;
    } else if (info.host) {
      out.kinds = infer::kind_of(*info.host);
      out.value = &*info.host;
    } else {
      out.kinds = kinds_of(info.type.host.tag);
    }
    return out;
  }

  static infer::KindSet kinds_of(HostType::Tag tag) {
    switch (tag) {
      case HostType::Tag::kBool: return infer::kScalarBool;
      case HostType::Tag::kInt: return infer::kScalarInt;
      case HostType::Tag::kFloat: return infer::kScalarFloat;
      default: return infer::kHost;
    }
  }
};

core::Result<std::vector<infer::Inferred>> run_rule(const OpDef& op, Graph& graph,
                                                    std::span<const ValueId> operands,
                                                    const Attrs& attrs) {
  const Ports ports(op, graph, operands, attrs);
  std::vector<std::string_view> outputs;
  for (const OutputDef& output : op.outputs) outputs.emplace_back(output.name);
  std::vector<infer::Inferred> results;
  MITHRIL_RETURN_IF_ERROR(
      infer::infer_forward(op.name, op.shape_rule, ports.ports, outputs, graph.dims, results));
  return results;
}

HostType host_type_of(const infer::Inferred& inferred) {
  if (inferred.value) return type_of(*inferred.value);
  using Tag = HostType::Tag;
  HostType out;
  if (inferred.kinds.single()) {
    switch (inferred.kinds.only()) {
      case infer::ValueKind::kBool: out.tag = Tag::kBool; break;
      case infer::ValueKind::kInt: out.tag = Tag::kInt; break;
      case infer::ValueKind::kFloat: out.tag = Tag::kFloat; break;
      case infer::ValueKind::kStr: out.tag = Tag::kStr; break;
      case infer::ValueKind::kDType: out.tag = Tag::kDType; break;
      case infer::ValueKind::kSlice: out.tag = Tag::kSlice; break;
      case infer::ValueKind::kTuple:
      case infer::ValueKind::kList: out.tag = Tag::kTuple; break;
      default: out.tag = Tag::kOpaque; break;
    }
  } else {
    out.tag = Tag::kOpaque;
  }
  for (const infer::Inferred& item : inferred.items) out.items.push_back(host_type_of(item));
  return out;
}

}  // namespace

core::Result<Inferred> infer_types(const OpDef& op, Graph& graph, std::span<const ValueId> operands,
                                   const Attrs& attrs) {
  Inferred out;
  const bool tensors = has_tensor_operand(graph, operands);
  const bool host_only =
      (!tensors && op.host) ||
      (!op.outputs.empty() && op.outputs.front().dtype.result == DTypeRule::Result::kHost);
  if (host_only) {
    MITHRIL_ASSIGN(auto value, host_result_value(op, graph, operands, attrs));
    if (value) {
      out.types.push_back(Type::host_value(type_of(*value)));
      out.hosts.push_back(std::move(value));
      return out;
    }
  }
  const DType compute = compute_type(op, graph, operands, attrs);
  // Without tensors the rule says what the result is: a number, or a shape that a key gives. Random
  // numbers have tensors as keys only, and nodes that expand may be more than their loop.
  const bool is_loop = tensors && !op.random && !op.expands;
  if (op.body == BodyKind::kPointwise && (is_loop || !op.shape_rule)) {
    MITHRIL_ASSIGN(Shape shape, broadcast_shapes(op, graph, operands));
    for (const OutputDef& output : op.outputs) {
      const DType dtype = result_type(op, output.dtype, graph, operands, attrs, compute);
      out.types.push_back(Type::tensor(dtype, shape));
      out.hosts.emplace_back();
    }
    return out;
  }
  MITHRIL_CHECK(op.shape_rule, "op {} has no rule", op.name);
  MITHRIL_ASSIGN(auto results, run_rule(op, graph, operands, attrs));
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    infer::Inferred& result = results[i];
    if (result.is_tensor) {
      const DType dtype = result_type(op, op.outputs[i].dtype, graph, operands, attrs, compute);
      out.types.push_back(Type::tensor(dtype, std::move(result.shape)));
      out.hosts.emplace_back();
    } else {
      out.types.push_back(Type::host_value(host_type_of(result)));
      out.hosts.push_back(std::move(result.value));
    }
  }
  return out;
}

}  // namespace mithril::ir

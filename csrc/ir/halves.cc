#include "ir/halves.h"

#include <algorithm>
#include <cmath>

#include "core/tensor_data.h"
#include "tile/convert.h"

namespace mithril::ir {

namespace {

bool is_half(DType dtype) { return tile::is_half(dtype); }

}  // namespace

bool is_half(const Type& type) { return type.is_tensor && is_half(type.dtype); }

bool has_halves(const Graph& graph, const Node& node) {
  const auto half = [&](ValueId id) { return id != kNoValue && is_half(graph.type(id)); };
  return std::any_of(node.operands.begin(), node.operands.end(), half) ||
         std::any_of(node.results.begin(), node.results.end(), half);
}

InFloat32::InFloat32(Graph& graph) : graph_(graph), before_(graph.default_float) {
  if (is_half(before_)) graph_.default_float = DType::kFloat32;
}

InFloat32::~InFloat32() { graph_.default_float = before_; }

DType in_float32(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

Value in_float32(Value value) {
  return value && is_half(value.type()) ? cast(value, DType::kFloat32) : value;
}

Node in_float32(Builder& builder, const Node& node) {
  Node out = node;
  for (ValueId& id : out.operands) {
    if (id != kNoValue) id = in_float32(builder.value(id)).id;
  }
  return out;
}

// ------------------------------------------------------------------------ roundings of tile bodies

namespace {

bool is_exact(tile::Opcode opcode) {
  switch (opcode) {
    case tile::Opcode::kNeg:
    case tile::Opcode::kAbs:
    case tile::Opcode::kSign:
    case tile::Opcode::kMin:
    case tile::Opcode::kMax:
    case tile::Opcode::kAtLeast:
    case tile::Opcode::kAtMost:
    case tile::Opcode::kSelect:
    case tile::Opcode::kBitcast:
    case tile::Opcode::kReduceMax:
    case tile::Opcode::kReduceMin: return true;
    default: return false;
  }
}

// Whether the constant may be another number than the one that was written.
bool is_rounded_constant(const tile::Instruction& i) {
  if (i.opcode != tile::Opcode::kConstant) return false;
  const auto bits = static_cast<uint16_t>(i.bits);
  const float number =
      i.dtype == DType::kFloat16 ? tile::half_to_float(bits) : tile::bfloat_to_float(bits);
  return !(std::fabs(number) <= 64.0F && std::nearbyint(number) == number);
}

/// Counts what of a tile program is of halves, and rounds or is compared.
struct Inside {
  int roundings = 0;
  int constants = 0;  // that may have been rounded
  bool compares = false;
};

Inside inside_of(const tile::Program& program) {
  Inside out;
  for (const tile::Instruction& i : program.code) {
    const tile::OpcodeInfo& info = tile::info(i.opcode);
    if (info.family == tile::Family::kStore) continue;
    if (info.rule == tile::Rule::kCompare) {
      out.compares |= is_half(program.code[i.operands[0]].dtype);
    } else if (is_half(i.dtype)) {
      const bool computes = info.family != tile::Family::kLeaf && !is_exact(i.opcode);
      out.roundings += computes ? 1 : 0;
      out.constants += is_rounded_constant(i) ? 1 : 0;
    }
  }
  return out;
}

bool rounds_inside(const Inside& inside) {
  const bool counts = inside.roundings > 0 || inside.compares;
  return inside.roundings + (counts ? inside.constants : 0) > (inside.roundings > 0 ? 1 : 0);
}

bool has_halves(const PointwiseCall& call) {
  const auto half = [](const tile::Reg& reg) { return reg.valid() && is_half(reg.dtype()); };
  return is_half(call.result) || std::any_of(call.in.begin(), call.in.end(), half);
}

// The body alone, of operands of these types.
tile::Program body_alone(const OpDef& op, const PointwiseCall& call) {
  tile::Builder alone;
  std::vector<tile::Reg> operands;
  for (const tile::Reg& reg : call.in) {
    operands.push_back(reg.valid() ? alone.load(reg.dtype()) : tile::Reg());
  }
  alone.store(op.pointwise(alone, {operands, call.attrs, call.result, call.order}),
              tile::Level::kLane);
  return alone.finish();
}

}  // namespace

tile::Reg pointwise(tile::Builder& t, const OpDef& op, const PointwiseCall& call) {
  if (!has_halves(call) || !rounds_inside(inside_of(body_alone(op, call)))) {
    return op.pointwise(t, call);
  }
  std::vector<tile::Reg> wide(call.in.begin(), call.in.end());
  for (tile::Reg& reg : wide) {
    if (reg.valid() && is_half(reg.dtype())) reg = t.cast(reg, DType::kFloat32);
  }
  const tile::Reg result = op.pointwise(t, {wide, call.attrs, call.result, call.order});
  return core::is_float(result.dtype()) ? t.cast(result, call.result) : result;
}

// --------------------------------------------------------------------------- roundings of graphs

namespace {

/// Counts the roundings to a half that follow each other on the longest way to a value. It tells
/// no more than whether there are more than one.
class Roundings {
 public:
  explicit Roundings(const Graph& graph) : graph_(graph), depth_(graph.values.size(), 0) {
    for (const Node& node : graph.nodes) count(node);
  }
  Roundings(const Graph& graph, std::span<const ValueId> rounded)
      : graph_(graph), depth_(graph.values.size(), 0) {
    for (const ValueId id : rounded) depth_[static_cast<size_t>(id)] = 1;
    for (const Node& node : graph.nodes) count(node);
  }

  int of(ValueId id) const { return id == kNoValue ? 0 : depth_[static_cast<size_t>(id)]; }
  /// Counts the nodes that round, one after the other or side by side.
  int count() const { return count_; }

 private:
  void count(const Node& node) {
    int most = 0;
    for (const ValueId id : node.operands) most = std::max(most, of(id));
    const int own = roundings_of(graph_, node);
    most += own;
    count_ += own > 0 ? 1 : 0;
    for (const ValueId id : node.results) depth_[static_cast<size_t>(id)] = most;
  }

  static int roundings_of(const Graph& graph, const Node& node);

  const Graph& graph_;
  std::vector<int> depth_;
  int count_ = 0;
};

// Sizes and the like of the graph around nothing: a place to try something out.
Graph place_beside(const Graph& graph) {
  Graph out;
  out.dims = graph.dims;
  out.default_float = graph.default_float;
  out.default_int = graph.default_int;
  return out;
}

Node with_inputs_for_operands(Graph& place, const Graph& graph, const Node& node) {
  Node out = node;
  out.location = 0;
  for (ValueId& id : out.operands) {
    if (id == kNoValue) continue;
    const ValueId made = place.add_input("", graph.type(id), Role::kData);
    place.value(made).host = graph.value(id).host;
    id = made;
  }
  return out;
}

constexpr int kMany = 2;

int roundings_of_body(const Graph& graph, const OpDef& op, const Node& node) {
  Graph place = place_beside(graph);
  const Node alone = with_inputs_for_operands(place, graph, node);
  Builder builder(place);
  builder.enter(op, alone);
  const std::vector<Value> results = op.compose(builder);
  if (!builder.status().ok()) return kMany;
  const Roundings roundings(place);
  int most = 0;
  for (const Value& result : results) most = std::max(most, roundings.of(result.id));
  // Where the body is differentiated, what its values give each other's gradients is added up.
  const bool adds_up = op.differentiable && !op.gradient && roundings.count() > 1;
  return adds_up ? kMany : most;
}

bool is_rounded_constant(const Graph& graph, const Node& node) {
  const HostValue* value = node.attrs.find("value");
  if (value == nullptr || value->is_tensor()) return false;
  if (value->is_symbolic()) return true;
  if (!value->is_bool() && !value->is_int() && !value->is_double()) return true;
  const double number = value->as_number();
  const DType dtype = graph.type(node.results[0]).dtype;
  const auto bits = static_cast<uint16_t>(tile::bits_of_double(dtype, number));
  const float stored =
      dtype == DType::kFloat16 ? tile::half_to_float(bits) : tile::bfloat_to_float(bits);
  return !std::isnan(number) && static_cast<double>(stored) != number;
}

int roundings_of_tile(const Graph& graph, const OpDef& op, const Node& node) {
  tile::Builder t;
  std::vector<tile::Reg> operands;
  for (const ValueId id : node.operands) {
    if (id != kNoValue && graph.type(id).is_tensor)
      operands.push_back(t.load(graph.type(id).dtype));
  }
  const PointwiseCall call{operands, node.attrs, graph.type(node.results[0]).dtype};
  const Inside inside = inside_of(body_alone(op, call));
  return inside.roundings > 0 ? 1 : 0;
}

int Roundings::roundings_of(const Graph& graph, const Node& node) {
  const bool rounds = std::any_of(node.results.begin(), node.results.end(),
                                  [&](ValueId id) { return is_half(graph.type(id)); });
  const OpDef& op = Registry::global().get(node.op);
  if (!rounds || op.moves) return 0;
  if (op.has(Trait::kLiteral)) return is_rounded_constant(graph, node) ? 1 : 0;
  if (op.name == "cast") return graph.type(node.operands[0]).dtype == DType::kBool ? 0 : 1;
  if (op.body == BodyKind::kCompose) return roundings_of_body(graph, op, node);
  const bool has_tile = op.body == BodyKind::kPointwise || op.body == BodyKind::kRow;
  return has_tile ? roundings_of_tile(graph, op, node) : 1;
}

Value rounded(Value value, const Type& type) {
  return value && type.is_tensor && value.type().is_tensor ? cast(value, type.dtype) : value;
}

}  // namespace

std::vector<Value> compose(Builder& builder, const OpDef& op, const Node& node,
                           std::span<const Type> results) {
  const auto half = [&](ValueId id) { return id != kNoValue && is_half(builder.graph().type(id)); };
  const bool any =
      std::any_of(node.operands.begin(), node.operands.end(), half) ||
      std::any_of(results.begin(), results.end(), [](const Type& type) { return is_half(type); });
  if (!any || roundings_of_body(builder.graph(), op, node) < kMany) {
    builder.enter(op, node);
    return op.compose(builder);
  }
  const InFloat32 scope(builder.graph());
  const Node inside = in_float32(builder, node);
  builder.enter(op, inside);
  std::vector<Value> out = op.compose(builder);
  for (size_t i = 0; i < out.size() && i < results.size(); ++i) {
    out[i] = rounded(out[i], results[i]);
  }
  return out;
}

bool gradient_rounds_inside(const Graph& graph, const OpDef& op, const Node& node,
                            const std::vector<bool>& flows, const std::vector<bool>& wanted) {
  Graph place = place_beside(graph);
  Node alone = with_inputs_for_operands(place, graph, node);
  Builder builder(place);
  std::vector<Value> cotangents;
  std::vector<ValueId> rounded;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Type& type = graph.type(node.results[i]);
    alone.results[i] = builder.input("", type).id;
    if (is_half(type) && !op.moves) rounded.push_back(alone.results[i]);
    cotangents.push_back(flows[i] ? builder.input("", type) : Value());
  }
  GradBuilder rule(builder, op, alone, std::move(cotangents));
  rule.set_wanted(wanted);
  op.gradient(rule);
  std::vector<Value> gradients = rule.cotangents();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (wanted[i]) gradients[i] = sum_to(gradients[i], builder.value(alone.operands[i]));
  }
  if (!builder.status().ok()) return true;
  const Roundings roundings(place, rounded);
  return std::any_of(gradients.begin(), gradients.end(),
                     [&](const Value& g) { return roundings.of(g.id) > 1; });
}

}  // namespace mithril::ir

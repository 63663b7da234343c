// Building graphs: values with operators, ops by name, and what bodies and gradient rules see.
#pragma once
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/op_def.h"
#include "ir/registry.h"

namespace mithril::ir {

class Builder;

/// A value under construction: an id with the builder that owns it. Copied freely. A default
/// constructed Value means "none" (an absent operand, no gradient).
struct Value {
  Builder* builder = nullptr;
  ValueId id = kNoValue;
  explicit operator bool() const { return id != kNoValue; }
  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  size_t rank() const { return type().rank(); }
};

/// An operand of a call: a value, a host value (stored as an attribute), or none.
struct Operand {
  Operand() = default;
  Operand(Value v) : value(v) {}                // NOLINT
  Operand(HostValue h) : host(std::move(h)) {}  // NOLINT
  Operand(double h) : host(HostValue(h)) {}     // NOLINT
  Value value;
  std::optional<HostValue> host;
};

/// Appends typed nodes to a graph. Failures (unknown op, types that do not fit) are kept: the
/// first one sticks, later calls return none values, and `status()` reports it, so that bodies
/// read as formulas.
class Builder {
 public:
  explicit Builder(Graph& graph, int32_t location = 0) : graph_(&graph), location_(location) {}

  Graph& graph() { return *graph_; }
  const core::Status& status() const { return status_; }
  core::Status take_status() { return std::move(status_); }
  void fail(core::Status status);
  void set_location(int32_t location) { location_ = location; }
  int32_t location() const { return location_; }

  Value value(ValueId id) { return {this, id}; }
  Value input(std::string name, Type type, Role role = Role::kData);
  void output(std::string name, Value value);

  /// One result, or the first. Operands in declared order; missing tail operands are none.
  Value call(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});
  Value call(std::string_view op, std::vector<Operand> operands, Attrs attrs = {});
  /// All results.
  std::vector<Value> call_all(const OpDef& op, std::vector<Operand> operands, Attrs attrs);
  /// A node that owns graphs. Its results have the given types, for the regions say what they are.
  std::vector<Value> call_regions(const OpDef& op, std::span<const Value> operands, Attrs attrs,
                                  std::vector<std::shared_ptr<const Graph>> regions,
                                  std::vector<Type> types);

  /// A tensor literal of rank 0: `value` in type `dtype`.
  Value scalar(double value, DType dtype);
  Value integer(int64_t value, DType dtype);
  Value constant(std::shared_ptr<const core::TensorData> data);

  // What the body of a composite op sees: the node that is being replaced.
  Value in(std::string_view name) const;  // none where absent
  bool has(std::string_view name) const { return static_cast<bool>(in(name)); }
  /// The attribute (or known key) as host value.
  const HostValue& attr(std::string_view name) const;
  double number(std::string_view name) const { return attr(name).as_number(); }
  int64_t integer_attr(std::string_view name) const { return attr(name).as_int(); }
  const Node& node() const { return *node_; }
  const OpDef& op() const { return *op_; }
  /// Enters the body of `node` (operand ids are given in this builder's graph).
  void enter(const OpDef& op, const Node& node);

 private:
  core::Result<std::vector<Value>> call_in_float32(const OpDef& op, std::span<const ValueId> ids,
                                                   const Attrs& attrs, DType half);
  core::Result<std::vector<Value>> try_call(const OpDef& op, std::vector<Operand>& operands,
                                            Attrs& attrs);
  core::Result<std::vector<ValueId>> ids_of(const OpDef& op, std::vector<Operand>& operands);
  core::Status promote(const OpDef& op, std::vector<ValueId>& ids, Attrs& attrs, DType compute,
                       bool any_tensor);
  Graph* graph_;
  int32_t location_;
  core::Status status_;
  const Node* node_ = nullptr;
  const OpDef* op_ = nullptr;
};

/// Shows a gradient rule its node. `g.d("input") = expression` states the cotangent of an input; a
/// broadcast operand's cotangent is summed to its shape by the driver, never by the rule.
class GradBuilder {
 public:
  GradBuilder(Builder& builder, const OpDef& op, const Node& node,
              std::vector<Value> result_cotangents);

  Builder& builder() { return *builder_; }
  Value in(std::string_view name) const { return builder_->in(name); }
  bool has(std::string_view name) const { return builder_->has(name); }
  Value out(std::string_view name = "output") const;
  /// Cotangent of a result; zeros of its shape when nothing flows there.
  Value dout(std::string_view name = "output");
  bool has_dout(std::string_view name) const;  // whether anything flows there
  /// Gives the cotangent of the result at a place; none when nothing flows there.
  Value cotangent(size_t result) const { return result_cotangents_[result]; }
  const HostValue& attr(std::string_view name) const { return builder_->attr(name); }
  /// Attributes of the node, to hand on to another op.
  const Attrs& attrs() const { return node_->attrs; }
  const Node& node() const { return *node_; }
  /// Tells whether somebody asks for the cotangent of this input: skip work that nobody reads.
  bool wants(std::string_view input) const;
  /// The same of an operand of the node, by its place.
  bool wants_operand(size_t at) const { return wanted_.empty() || wanted_[at]; }
  /// The cotangent of an operand, by its place.
  Value& d_operand(size_t at) { return operand_cotangents_[at]; }
  /// The cotangent of an input; unassigned = no gradient (zero).
  Value& d(std::string_view input);
  /// Items of a variadic input and their cotangents.
  size_t count(std::string_view input) const;
  Value in(std::string_view name, size_t item) const;
  Value& d(std::string_view input, size_t item);

  const std::vector<Value>& cotangents() const { return operand_cotangents_; }
  /// From here on the rule sees operands and cotangents in float32, and results as they were before
  /// they were rounded to a half.
  void compute_in_float32();
  void set_wanted(std::vector<bool> wanted) { wanted_ = std::move(wanted); }

 private:
  Builder* builder_;
  const OpDef* op_;
  const Node* node_;
  Node widened_;                        // stands in for the node
  mutable std::vector<Value> results_;  // of the widened node
  std::vector<Value> result_cotangents_;
  std::vector<Value> operand_cotangents_;  // one per entry of node.operands
  std::vector<bool> wanted_;               // empty = all
};

/// The op by name on values; the builder comes from the first operand that is a value.
Value apply(std::string_view op, std::initializer_list<Operand> operands, Attrs attrs = {});

// Arithmetic reads as written. A double operand takes the type of the other one.
Value operator-(Value a);
#define MITHRIL_BINARY_OPERATOR(symbol, op)                                     \
  inline Value operator symbol(Value a, Value b) { return apply(op, {a, b}); }  \
  inline Value operator symbol(Value a, double b) { return apply(op, {a, b}); } \
  inline Value operator symbol(double a, Value b) { return apply(op, {a, b}); }
MITHRIL_BINARY_OPERATOR(+, "add")
MITHRIL_BINARY_OPERATOR(-, "subtract")
MITHRIL_BINARY_OPERATOR(*, "multiply")
MITHRIL_BINARY_OPERATOR(/, "divide")
#undef MITHRIL_BINARY_OPERATOR

// Lists of calls without separators:
// clang-format off
#define MITHRIL_UNARY(name) \
  inline Value name(Value x) { return apply(#name, {x}); }
MITHRIL_UNARY(exp) MITHRIL_UNARY(log) MITHRIL_UNARY(log1p) MITHRIL_UNARY(expm1)
MITHRIL_UNARY(sqrt) MITHRIL_UNARY(square) MITHRIL_UNARY(sin) MITHRIL_UNARY(cos)
MITHRIL_UNARY(tanh) MITHRIL_UNARY(sigmoid) MITHRIL_UNARY(erf) MITHRIL_UNARY(abs)
MITHRIL_UNARY(sign) MITHRIL_UNARY(logical_not)
#undef MITHRIL_UNARY

#define MITHRIL_BINARY(name)                                            \
  inline Value name(Value a, Value b) { return apply(#name, {a, b}); }  \
  inline Value name(Value a, double b) { return apply(#name, {a, b}); } \
  inline Value name(double a, Value b) { return apply(#name, {a, b}); }
MITHRIL_BINARY(maximum) MITHRIL_BINARY(minimum) MITHRIL_BINARY(power)
MITHRIL_BINARY(equal) MITHRIL_BINARY(not_equal) MITHRIL_BINARY(less)
MITHRIL_BINARY(less_equal) MITHRIL_BINARY(greater) MITHRIL_BINARY(greater_equal)
MITHRIL_BINARY(matmul) MITHRIL_BINARY(logical_and) MITHRIL_BINARY(logical_or)
#undef MITHRIL_BINARY

Value where(Value condition, Operand a, Operand b);
// clang-format on
Value cast(Value x, DType dtype);
/// A size or a shape as a host value.
HostValue size_value(Dim dim);
HostValue shape_value(const Shape& shape);
/// Ints as written by a user: an int is one axis, none is all; negative ones count from the end.
std::vector<int64_t> axes_of(const HostValue& axis, size_t rank);
/// Reductions over `axis` (int, tuple or none = all).
Value sum(Value x, HostValue axis, bool keepdim = false);
Value mean(Value x, HostValue axis, bool keepdim = false);
Value max(Value x, HostValue axis, bool keepdim = false);
/// Undoes broadcasting: sums `g` to the shape of `like`.
Value sum_to(Value g, Value like);
Value transpose(Value x, HostValue axes = HostValue());
Value reshape(Value x, HostValue shape);
Value reshape_like(Value x, Value like);
Value zeros_like(Value x);
Value ones_like(Value x);

}  // namespace mithril::ir

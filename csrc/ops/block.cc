#include "ops/block.h"

namespace mithril::ops {

OpDefBuilder& unary_cases(OpDefBuilder& block, const Attrs& attrs) {
  return block.with(at({{"input", {2, 3}}}, attrs))
      .with(at({{"input", {}}}, attrs))
      .with(at({{"input", {3, 0}}}, attrs))
      .with(at({{"input", {2, 1, 17}}}, attrs));
}

OpDefBuilder& floating(OpDefBuilder& block) {
  return unary_cases(block.input("input", kTensor).output("output", computed()).promote_float());
}

OpDefBuilder& activation(OpDefBuilder& block) {
  return unary_cases(block.input("input", kNumeric).output("output", computed()).promote_float());
}

OpDefBuilder& binary_cases(OpDefBuilder& block, const std::string& left, const std::string& right) {
  return block.with(at({{left, {2, 3}}, {right, {2, 3}}}))
      .with(at({{left, {2, 3}}, {right, {3}}}))
      .with(at({{left, {4, 1}}, {right, {2, 1, 3}}}))
      .with(at({{left, {}}, {right, {5}}}))
      .with(at({{left, {0, 3}}, {right, {1, 3}}}))
      .rejects(at({{left, {2, 3}}, {right, {4}}}), "must broadcast");
}

tile::Reg odd(tile::Reg x, tile::Reg y) {
  return select(tile::equal(x, 0.0), x, select(x < 0.0, -y, y));
}

tile::Reg literal(tile::Builder& t, DType dtype, const HostValue& number) {
  if (number.is_int() && dtype == DType::kInt64) return t.constant_int(dtype, number.as_int());
  return t.constant(dtype, number.as_number());
}

DType computed_type(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

bool flag(const Builder& b, std::string_view name) {
  const HostValue& value = b.attr(name);
  return value.is_bool() && value.as_bool();
}

infer::Dim element_count(Value x) {
  const Shape& shape = x.shape();
  return x.builder->graph().dims.product(std::span(shape.data(), shape.size()));
}

bool needs_known_axis(Builder& b) {
  if (!b.has("axis")) return false;
  unsupported(b, b.op().name + ": the axis must be known when the model is compiled");
  return true;
}

void along_axis(RuleBuilder& r) {
  r.same_shape(r.out(), r.in("input"));
  r.when_known(r.in("axis"), [](RuleBuilder& b, const HostValue& axis) {
    if (!axis.is_int()) return bad_argument(b, "axis must be an int", axis);
    // A reduction over it must exist.
    b.reduce(b.fresh(infer::kTensor), b.in("input"), b.in("axis"), b.constant(false));
  });
}

void state_float(RuleBuilder& r) {
  r.when_known(r.in("dtype"), [](RuleBuilder& b, const HostValue& dtype) {
    if (!dtype.is_dtype() || core::is_float(dtype.as_dtype())) return;
    b.fail(core::fail(core::ErrorKind::kDType, core::Code::kDTypeOperand,
                      "dtype requires a float type, got {}", core::name(dtype.as_dtype())));
  });
}

Operand given(const Builder& b, std::string_view name) {
  if (b.has(name)) return b.in(name);
  return b.attr(name);
}

Value reduce(std::string_view op, Value x, Operand axis, Operand keepdim) {
  if (!x) return {};
  return x.builder->call(op, {x, std::move(axis), std::move(keepdim)});
}

Value broadcast_like(Value x, Value like) {
  if (!x || x.shape() == like.shape()) return x;
  return ir::apply("broadcast_like", {x, like});
}

Value swap_axes(Value x, int64_t axis1, int64_t axis2) {
  return ir::apply("swapaxes", {x}, {{"axis1", HostValue(axis1)}, {"axis2", HostValue(axis2)}});
}

Value transposed(Value x) { return swap_axes(x, -1, -2); }

Value eye_like(Builder& b, Value x) {
  return b.call("eye", {}, {{"N", size_value(x.shape().back())}, {"dtype", HostValue(x.dtype())}});
}

std::pair<Value, Value> rows_and_columns(Value x) {
  Builder& b = *x.builder;
  const Shape shape = x.shape();
  return {expand_dims(range(b, shape[shape.size() - 2]), HostValue(1)),
          expand_dims(range(b, shape.back()), HostValue(0))};
}

Value expand_dims(Value x, HostValue axis) {
  return ir::apply("expand_dims", {x}, {{"axis", std::move(axis)}});
}

namespace {

// By reading places start, start + 1 …: the size of the result is stop - start even where that is
// an expression, which a slice (it may be cut short) does not promise.
Value gathered_part(Value x, int64_t axis, infer::Dim start, infer::Dim stop) {
  Builder& b = *x.builder;
  const infer::Dim count = b.graph().dims.sub(stop, start);
  const Value steps = b.call("arange", {}, {{"stop", size_value(count)}});
  if (!steps) return {};
  const Value first = size_constant(b, start, steps.dtype());
  const Value front = axis == 0 ? x : swap_axes(x, 0, axis);
  const Value rows = ir::apply("gather", {front, steps + first});
  return axis == 0 ? rows : swap_axes(rows, 0, axis);
}

}  // namespace

Value part(Value x, int64_t axis, infer::Dim start, infer::Dim stop) {
  if (!x) return {};
  const bool known = start.known() && stop.known() && x.shape()[static_cast<size_t>(axis)].known();
  if (!known) return gathered_part(x, axis, start, stop);
  HostValue::Tuple index(x.rank(), HostValue(core::Slice{}));
  index[static_cast<size_t>(axis)] =
      HostValue(core::Slice{size_value(start), size_value(stop), HostValue()});
  return ir::apply("index", {x}, {{"index", HostValue::tuple(std::move(index))}});
}

Value reversed(Value x, int64_t axis) {
  if (!x) return {};
  HostValue::Tuple index(x.rank(), HostValue(core::Slice{}));
  index[static_cast<size_t>(axes_of(HostValue(axis), x.rank())[0])] =
      HostValue(core::Slice{HostValue(), HostValue(), HostValue(-1)});
  return ir::apply("index", {x}, {{"index", HostValue::tuple(std::move(index))}});
}

Value range(Builder& b, infer::Dim size, DType dtype) {
  return b.call("arange", {}, {{"stop", size_value(size)}, {"dtype", HostValue(dtype)}});
}

Value size_constant(Builder& b, infer::Dim size, DType dtype) {
  return b.call("constant", {}, {{"value", size_value(size)}, {"dtype", HostValue(dtype)}});
}

int64_t axis_attr(const Builder& b, std::string_view name, size_t rank) {
  return axes_of(b.attr(name), rank)[0];
}

Value count(Value x, const HostValue& axis) {
  if (!x) return {};
  infer::DimTable& dims = x.builder->graph().dims;
  infer::Dim product = 1;
  for (const int64_t a : axes_of(axis, x.rank())) {
    product = dims.mul(product, x.shape()[static_cast<size_t>(a)]);
  }
  return x.builder->call("constant", {},
                         {{"value", size_value(product)}, {"dtype", HostValue(x.dtype())}});
}

Value full(Builder& b, HostValue shape, double value, DType dtype) {
  return b.call(
      "full", {},
      {{"shape", std::move(shape)},
       {"value", core::is_float(dtype) ? HostValue(value) : HostValue(static_cast<int64_t>(value))},
       {"dtype", HostValue(dtype)}});
}

Value with_reduced_axes(GradBuilder& g, Value reduced) {
  const Value x = g.in("input");
  if (!reduced || reduced.rank() == x.rank()) return reduced;
  if (needs_known_axis(g.builder())) return {};
  Shape shape = x.shape();
  for (const int64_t axis : axes_of(g.attr("axis"), x.rank())) {
    shape[static_cast<size_t>(axis)] = infer::Dim(1);
  }
  return reshape(reduced, shape_value(shape));
}

void bad_argument(RuleBuilder& r, const std::string& message, const HostValue& got) {
  r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "{}, got {}", message,
                    core::to_string(got)));
}

void unsupported(Builder& b, const std::string& message) {
  b.fail(core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported, "{}", message));
}

}  // namespace mithril::ops

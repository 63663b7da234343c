// Recurrences along one axis that no sum is.
#include "ops/block.h"

namespace mithril::ops {
namespace {

using infer::Dim;

// Where the place along the axis is the first one.
Value is_first(Value x, int64_t axis) {
  const Value places = range(*x.builder, x.shape()[static_cast<size_t>(axis)]);
  HostValue::Tuple shape(x.rank(), HostValue(1));
  shape[static_cast<size_t>(axis)] = size_value(x.shape()[static_cast<size_t>(axis)]);
  return reshape(equal(places, 0.0), HostValue::tuple(std::move(shape)));
}

// x moved by one place along the axis, to the back or to the front, with a zero in the gap.
Value moved(Value x, int64_t axis, bool back) {
  if (!x) return {};
  HostValue::Tuple widths(x.rank(), HostValue::ints({0, 0}));
  widths[static_cast<size_t>(axis)] = back ? HostValue::ints({1, 0}) : HostValue::ints({0, 1});
  const Dim size = x.shape()[static_cast<size_t>(axis)];
  const Value longer = ir::apply("pad", {x}, {{"pad_width", HostValue::tuple(std::move(widths))}});
  infer::DimTable& dims = x.builder->graph().dims;
  return back ? part(longer, axis, Dim(0), size) : part(longer, axis, Dim(1), dims.add(size, 1));
}

Value linear_scan(Value factor, Value input, int64_t axis, bool reverse) {
  return ir::apply("linear_scan", {factor, input},
                   {{"axis", HostValue(axis)}, {"reverse", HostValue(reverse)}});
}

void define_recurrence(OpFamily& ops) {
  ops.def("linear_scan")
      .doc(
          "The linear recurrence y_i = factor_i y_{i-1} + input_i along the axis, from y_0 = "
          "input_0 on; reverse: from the last place to the first one.")
      .formula("y_i = a_i y_{i-1} + x_i")
      .input("factor", kNumeric)
      .input("input", kNumeric)
      .attr("axis", -1)
      .attr("reverse", false)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        r.same_shape(r.in("factor"), r.in("input"));
        r.same_shape(r.out(), r.in("input"));
        r.reduce(r.fresh(kTensor), r.in("input"), r.attr("axis"), r.constant(false));
      })
      .expand_when([](const ir::Graph& graph, const ir::Node& node) {
        const DType dtype = graph.type(node.operands[0]).dtype;
        return computed_type(dtype) != dtype;
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const DType wide = computed_type(x.dtype());
        const Value y = linear_scan(cast(b.in("factor"), wide), cast(x, wide),
                                    b.integer_attr("axis"), b.attr("reverse").as_bool());
        return cast(y, x.dtype());
      })
      .kernel("linear_scan")
      .gradient([](GradBuilder& g) {
        // With t the whole cotangent of each y: t_i = dy_i + factor_{i+1} t_{i+1}.
        const Value factor = g.in("factor");
        const int64_t axis = axes_of(g.attr("axis"), factor.rank())[0];
        const bool reverse = g.attr("reverse").as_bool();
        const Value total = linear_scan(moved(factor, axis, reverse), g.dout(), axis, !reverse);
        g.d("input") = total;
        if (g.wants("factor")) g.d("factor") = total * moved(g.out(), axis, !reverse);
      })
      .with(at({{"factor", {2, 5}}, {"input", {2, 5}}}))
      .with(at({{"factor", {3, 4, 2}}, {"input", {3, 4, 2}}}, {{"axis", 1}, {"reverse", true}}))
      .with(at({{"factor", {6}}, {"input", {6}}}, {{"axis", 0}}))
      .with(at({{"factor", {0, 4}}, {"input", {0, 4}}}))
      .with(at({{"factor", {4, 0}}, {"input", {4, 0}}}))
      .rejects(at({{"factor", {2, 3}}, {"input", {2, 4}}}), "linear_scan");
}

}  // namespace

void define_scan(OpFamily& ops) {
  define_recurrence(ops);
  ops.def("cumprod")
      .python("CumProd")
      .doc("Running products along the axis. The gradient divides by nothing: zeros do no harm.")
      .formula("y_i = \\prod_{j \\le i} x_j")
      .input("input", kTensor)
      .key("axis", -1)
      .output("output", computed())
      .promote_int()
      .rule(along_axis)
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x || needs_known_axis(b)) return Value();
        const int64_t axis = axis_attr(b, "axis", x.rank());
        return linear_scan(x, where(is_first(x, axis), x, 0.0), axis, false);
      })
      .gradient([](GradBuilder& g) {
        // The product of those before, times what the cotangents behind make of those behind.
        if (needs_known_axis(g.builder())) return;
        const Value x = g.in("input");
        const int64_t axis = axes_of(g.attr("axis"), x.rank())[0];
        const Value before = where(is_first(x, axis), 1.0, moved(g.out(), axis, true));
        g.d("input") = before * linear_scan(moved(x, axis, false), g.dout(), axis, true);
      })
      .points({0.0})
      .with(at({{"input", {2, 5}}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", 1}}))
      .with(at({{"input", {0, 4}}}))
      .with(at({{"input", {4, 0}}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis");
}

}  // namespace mithril::ops

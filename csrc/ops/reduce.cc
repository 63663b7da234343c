// Reductions over axes, and scans along one.
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Opcode;
using tile::Reg;

void reduce_rule(RuleBuilder& r) {
  r.reduce(r.out(), r.in("input"), r.in("axis"), r.in("keepdim"));
}

OpDefBuilder& over_axes(OpDefBuilder& block) {
  return block.input("input", kTensor)
      .key("axis", HostValue())
      .key("keepdim", false)
      .rule(reduce_rule)
      .with(at({{"input", {2, 5}}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", 1}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", HostValue::ints({0, -1})}, {"keepdim", true}}))
      .with(at({{"input", {5, 70}}}, {{"axis", 0}}))
      .with(at({{"input", {2, 5000}}}, {{"axis", -1}}))
      .with(at({{"input", {}}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis");
}

OpDefBuilder& reduction(OpDefBuilder& block) { return over_axes(block).trait(Trait::kReduction); }

// Terms: input, axis. Of nothing there is no largest element, so no place of it.
core::Status refuse_nothing(infer::Relation& relation) {
  const auto rank = relation.rank(0);
  const auto axis = relation.value(1);
  if (!rank || !axis) return {};
  for (const int64_t at : ir::axes_of(*axis, static_cast<size_t>(*rank))) {
    if (at < 0 || at >= *rank || relation.size(0, static_cast<int>(at)) != 0) continue;
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                      "requires an element along the axes, got size 0 in axis {}", at);
  }
  return {};
}

// Floats have infinities for the largest element of nothing, integers have no such number.
core::Status refuse_no_integers(infer::Relation& relation) {
  return relation.kinds(0) == infer::kTensorInt ? refuse_nothing(relation) : core::Status();
}

OpDefBuilder& of_something(OpDefBuilder& block, infer::RelationFn refuse,
                           std::vector<std::string> integers = {}) {
  return block
      .rule([refuse](RuleBuilder& r) {
        reduce_rule(r);
        r.custom({r.in("input"), r.in("axis")}, refuse);
      })
      .with(at({{"input", {0, 3}}}, {{"axis", 1}}))
      .rejects(at({{"input", {3, 0}}}, {{"axis", 1}}, integers), "requires an element");
}

// Sums and the like have a value for no elements, the largest element has not.
OpDefBuilder& with_identity(OpDefBuilder& block) {
  return block.with(at({{"input", {0, 3}}}, {{"axis", 0}}))
      .with(at({{"input", {0, 3}}}, {{"axis", 1}}));
}

ir::PointwiseFn row(Opcode opcode) {
  return [opcode](tile::Builder& t, const PointwiseCall& c) {
    return t.reduce(opcode, c.in[0], c.order);
  };
}

// Tells whether of `size` numbers, -1 where that is open, more than `correction` are left.
bool exceeds(int64_t size, const HostValue& correction) {
  if (!correction.is_double() && !correction.is_int()) return false;
  const double number = correction.as_number();
  return number <= 0.0 || static_cast<double>(size) >= number;
}

// n - correction, at least 0.
Value degrees_of_freedom(Builder& b, Value x) {
  const HostValue& axis = b.attr("axis");
  const Value freedom = ir::apply("subtract", {count(x, axis), given(b, "correction")});
  int64_t size = 1;
  for (const int64_t a : axes_of(axis, x.rank())) {
    const infer::Dim dim = x.shape()[static_cast<size_t>(a)];
    size = dim.known() && size >= 0 ? size * dim.value() : -1;
  }
  const bool is_wired = b.has("correction");
  return !is_wired && exceeds(size, b.attr("correction")) ? freedom : maximum(freedom, 0.0);
}

void define_sums(OpFamily& ops) {
  with_identity(reduction(ops.def("sum")
                              .python("Sum")
                              .alias({"reduce_sum"})
                              .doc("Sum over the axes (none: all); no elements give 0.")
                              .formula("\\sum_i x_i"))
                    .output("output", computed())
                    .promote_int()
                    .row(row(Opcode::kReduceSum))
                    .gradient([](GradBuilder& g) {
                      g.d("input") = broadcast_like(with_reduced_axes(g, g.dout()), g.in("input"));
                    }));

  reduction(ops.def("mean")
                .python("Mean")
                .alias({"reduce_mean"})
                .doc("Arithmetic mean over the axes (none: all); no elements give NaN.")
                .formula("\\frac{1}{n} \\sum_i x_i"))
      .output("output", computed())
      .promote_float()
      .compose([](Builder& b) {
        if (needs_known_axis(b)) return Value();
        const Value x = b.in("input");
        const Value total = reduce("sum", x, given(b, "axis"), given(b, "keepdim"));
        return total / count(x, b.attr("axis"));
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value number = count(x, g.attr("axis"));
        const Value share = with_reduced_axes(g, g.dout()) / number;
        g.d("input") = broadcast_like(share, x);
      });

  with_identity(reduction(ops.def("prod")
                              .python("Prod")
                              .alias({"reduce_prod"})
                              .doc("Product over the axes (none: all); no elements give 1.")
                              .formula("\\prod_i x_i"))
                    .output("output", computed())
                    .promote_int()
                    .row(row(Opcode::kReduceProd))
                    .gradient([](GradBuilder& g) {
                      // The product of the others, without dividing by zeros. With one zero it is
                      // the product of the rest there, and elsewhere that zero times a slope:
                      // written as `zeros` (which is 0) so that the second derivative is right as
                      // well.
                      const Value x = g.in("input");
                      const HostValue& axis = g.attr("axis");
                      const Value zero = equal(x, 0.0);
                      const Value safe = where(zero, 1.0, x);
                      const Value rest = reduce("prod", safe, axis, HostValue(true)) / safe;
                      const Value zeros = sum(where(zero, x, 0.0), axis, true);
                      const Value number = sum(cast(zero, x.dtype()), axis, true);
                      const Value at_zero =
                          where(equal(number, 1.0), 1.0, where(equal(number, 2.0), zeros - x, 0.0));
                      const Value elsewhere =
                          where(equal(number, 0.0), 1.0, where(equal(number, 1.0), zeros, 0.0));
                      const Value others = where(zero, at_zero, elsewhere);
                      g.d("input") = with_reduced_axes(g, g.dout()) * rest * others;
                    })
                    .points({0.0}));

  reduction(ops.def("variance")
                .python("Variance")
                .alias({"var"})
                .doc("Mean squared distance from the mean over the axes (none: all), divided by "
                     "n - correction; by 0 where that is negative.")
                .formula("\\frac{1}{n - correction} \\sum_i (x_i - \\bar x)^2"))
      .key("correction", 0.0)
      .output("output", computed())
      .promote_float()
      .compose([](Builder& b) {
        if (needs_known_axis(b)) return Value();
        const Value x = b.in("input");
        if (!x) return Value();
        const Value centred = x - reduce("mean", x, given(b, "axis"), HostValue(true));
        const Value total = reduce("sum", square(centred), given(b, "axis"), given(b, "keepdim"));
        return total / degrees_of_freedom(b, x);
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const HostValue& axis = g.attr("axis");
        const Value freedom = degrees_of_freedom(g.builder(), x);
        const Value centred = x - mean(x, axis, true);
        g.d("input") = with_reduced_axes(g, g.dout()) * centred * 2.0 / freedom;
      })
      .with(at({{"input", {4, 3}}}, {{"axis", 0}, {"correction", 1.0}}));
}

// Equal extreme elements share the gradient.
void shared_by_ties(GradBuilder& g) {
  const Value x = g.in("input");
  const Value wins = equal(x, with_reduced_axes(g, g.out()));
  const Value ties = sum(cast(wins, x.dtype()), g.attr("axis"), true);
  g.d("input") = where(wins, with_reduced_axes(g, g.dout()) / ties, 0.0);
}

void define_extreme_reductions(OpFamily& ops) {
  of_something(reduction(ops.def("max")
                             .python("Max")
                             .alias({"reduce_max"})
                             .doc("Largest element over the axes (none: all); NaN wins, ties share "
                                  "the gradient. Of no floats it is -inf, of no integers an error.")
                             .formula("\\max_i x_i")),
               refuse_no_integers, {"input"})
      .output("output", same_as("input"))
      .row([](tile::Builder& t, const PointwiseCall& c) {
        const bool logical = c.in[0].dtype() == DType::kBool;
        return t.reduce(logical ? Opcode::kReduceAny : Opcode::kReduceMax, c.in[0]);
      })
      .gradient(shared_by_ties)
      .kinks();

  of_something(
      reduction(ops.def("min")
                    .python("Min")
                    .alias({"reduce_min"})
                    .doc("Smallest element over the axes (none: all); NaN wins, ties share "
                         "the gradient. Of no floats it is inf, of no integers an error.")
                    .formula("\\min_i x_i")),
      refuse_no_integers, {"input"})
      .output("output", same_as("input"))
      .row([](tile::Builder& t, const PointwiseCall& c) {
        const bool logical = c.in[0].dtype() == DType::kBool;
        return t.reduce(logical ? Opcode::kReduceAll : Opcode::kReduceMin, c.in[0]);
      })
      .gradient(shared_by_ties)
      .kinks();

  const auto position = [](Opcode opcode) {
    return [opcode](tile::Builder& t, const PointwiseCall& c) {
      const bool logical = c.in[0].dtype() == DType::kBool;
      const Reg x = logical ? t.cast(c.in[0], DType::kInt8) : c.in[0];
      return t.cast(t.reduce(opcode, x), c.result);
    };
  };
  of_something(
      over_axes(ops.def("argmax")
                    .python("ArgMax")
                    .alias({"reduce_argmax"})
                    .doc("Position of the first largest element along the axis (none: of all "
                         "elements in row-major order); the first NaN wins, of nothing it is an "
                         "error.")),
      refuse_nothing)
      .output("output", default_int())
      .row(position(Opcode::kReduceArgMax))
      .not_differentiable();

  of_something(
      over_axes(ops.def("argmin")
                    .python("ArgMin")
                    .alias({"reduce_argmin"})
                    .doc("Position of the first smallest element along the axis (none: of all "
                         "elements in row-major order); the first NaN wins, of nothing it is an "
                         "error.")),
      refuse_nothing)
      .output("output", default_int())
      .row(position(Opcode::kReduceArgMin))
      .not_differentiable();
}

void define_logical(OpFamily& ops) {
  const auto truth = [](Opcode opcode) {
    return [opcode](tile::Builder& t, const PointwiseCall& c) {
      return t.reduce(opcode, t.cast(c.in[0], DType::kBool));
    };
  };
  with_identity(reduction(ops.def("any")
                              .python("Any")
                              .alias({"reduce_any"})
                              .doc("Whether any element over the axes is not zero."))
                    .output("output", boolean())
                    .row(truth(Opcode::kReduceAny))
                    .not_differentiable());
  with_identity(reduction(ops.def("all")
                              .python("All")
                              .alias({"reduce_all"})
                              .doc("Whether every element over the axes is not zero."))
                    .output("output", boolean())
                    .row(truth(Opcode::kReduceAll))
                    .not_differentiable());
}

void define_scans(OpFamily& ops) {
  ops.def("cumsum")
      .python("CumSum")
      .doc("Running sums along the axis.")
      .formula("y_i = \\sum_{j \\le i} x_j")
      .input("input", kTensor)
      .key("axis", -1)
      .output("output", computed())
      .promote_int()
      .rule(along_axis)
      .row([](tile::Builder& t, const PointwiseCall& c) { return t.cumsum(c.in[0]); })
      .gradient([](GradBuilder& g) {
        if (needs_known_axis(g.builder())) return;
        const int64_t axis = g.attr("axis").as_int();
        const Value back = reversed(g.dout(), axis);
        g.d("input") = reversed(ir::apply("cumsum", {back}, {{"axis", HostValue(axis)}}), axis);
      })
      .with(at({{"input", {2, 5}}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", 1}}))
      .with(at({{"input", {0, 4}}}));
}

}  // namespace

void define_reduce(OpFamily& ops) {
  define_sums(ops);
  define_extreme_reductions(ops);
  define_logical(ops);
  define_scans(ops);
}

}  // namespace mithril::ops

// Activations beside those of activation.cc: exponential units, hard and soft ones, gates, and the
// logarithm of a sum of exponentials.
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

Value negative_part(Value x) { return minimum(x, 0.0); }

// --- exponential units -----------------------------------------------------------------------

void define_exponential_units(OpFamily& ops) {
  activation(ops.def("elu")
                 .python("ELU", {"Elu"})
                 .doc("x where positive, else alpha (exp(x) - 1), which the gradient at 0 is of "
                      "(Clevert et al., arXiv:1511.07289).")
                 .formula("x, \\quad x \\le 0: \\alpha (e^x - 1)"))
      .attr("alpha", 1.0)
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Reg x = c.in[0];
        return select(x > 0.0, x, t.expm1(t.at_most(x, 0.0)) * c.attrs.find("alpha")->as_number());
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value slope = exp(negative_part(x)) * g.attr("alpha").as_number();
        g.d("input") = g.dout() * where(greater(x, 0.0), 1.0, slope);
      })
      .kink(0.0, 1.0)
      .points({0.0, -0.0})
      .with(at({{"input", {2, 9}}}, {{"alpha", 0.5}}));

  activation(ops.def("celu")
                 .python("CELU", {"Celu"})
                 .doc("x where positive, else alpha (exp(x / alpha) - 1): smooth for every alpha "
                      "(Barron, arXiv:1704.07483).")
                 .formula("\\max(x, 0) + \\min(0, \\alpha (e^{x / \\alpha} - 1))"))
      .attr("alpha", 1.0)
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Reg x = c.in[0];
        const double alpha = c.attrs.find("alpha")->as_number();
        return select(x > 0.0, x, t.expm1(t.at_most(x, 0.0) / alpha) * alpha);
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value slope = exp(negative_part(x) / g.attr("alpha").as_number());
        g.d("input") = g.dout() * where(greater(x, 0.0), 1.0, slope);
      })
      .kink(0.0, 1.0)
      .points({0.0, -0.0})
      .with(at({{"input", {2, 9}}}, {{"alpha", 2.0}}));

  // The numbers that keep mean 0 and variance 1 (equation 14 of the paper).
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  activation(ops.def("selu")
                 .python("SELU", {"Selu"})
                 .doc("Exponential unit scaled so that layers keep mean 0 and variance 1; the "
                      "gradient at 0 is that below (Klambauer et al., arXiv:1706.02515).")
                 .formula("\\lambda x, \\quad x \\le 0: \\lambda \\alpha (e^x - 1)"))
      .pointwise([](tile::Builder& t, Reg x) {
        return select(x > 0.0, x * kScale, t.expm1(t.at_most(x, 0.0)) * (kScale * kAlpha));
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value slope = exp(negative_part(x)) * (kScale * kAlpha);
        g.d("input") = g.dout() * where(greater(x, 0.0), kScale, slope);
      })
      .kink(0.0, kScale * kAlpha)
      .points({0.0, -0.0});

  activation(ops.def("mish")
                 .python("Mish")
                 .doc("x times tanh of its softplus (Misra, arXiv:1908.08681).")
                 .formula("x \\tanh(\\ln(1 + e^x))"))
      .pointwise([](tile::Builder& t, Reg x) { return x * t.tanh(t.softplus(x)); })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value gate = tanh(ir::apply("softplus", {x}));
        g.d("input") = g.dout() * (gate + x * (1.0 - square(gate)) * sigmoid(x));
      })
      .points({0.0, -0.0});
}

// --- hard ones -------------------------------------------------------------------------------

// 0 below -3, 1 above 3, a line between.
Reg hard_gate(tile::Builder& t, Reg x) { return t.at_most(t.at_least(x + 3.0, 0.0), 6.0) / 6.0; }

Value between(Value x, double low, double high) {
  return logical_and(greater_equal(x, low), less_equal(x, high));
}

void define_hard_ones(OpFamily& ops) {
  activation(ops.def("hard_sigmoid")
                 .python("HardSigmoid")
                 .doc("Straight line from 0 at -3 to 1 at 3; the gradient at both is that between.")
                 .formula("\\min(\\max(x + 3, 0), 6) / 6"))
      .pointwise(hard_gate)
      .gradient([](GradBuilder& g) {
        g.d("input") = where(between(g.in("input"), -3.0, 3.0), g.dout() / 6.0, 0.0);
      })
      .kink(-3.0, 1.0 / 6.0)
      .kink(3.0, 1.0 / 6.0)
      .sample("input", -5.0, 5.0)
      .points({-3.0, 3.0});

  activation(ops.def("hard_swish")
                 .python("HardSwish", {"Hardswish"})
                 .doc("x times its hard sigmoid; the gradient at -3 and 3 is that between "
                      "(Howard et al., arXiv:1905.02244).")
                 .formula("x \\min(\\max(x + 3, 0), 6) / 6"))
      .pointwise([](tile::Builder& t, Reg x) { return x * hard_gate(t, x); })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value beyond = where(greater(x, 3.0), g.dout(), 0.0);
        g.d("input") = where(between(x, -3.0, 3.0), g.dout() * (x / 3.0 + 0.5), beyond);
      })
      .kink(-3.0, -0.5)
      .kink(3.0, 1.5)
      .sample("input", -5.0, 5.0)
      .points({-3.0, 3.0});

  unary_cases(
      ops.def("hard_tanh")
          .python("HardTanh", {"Hardtanh"})
          .doc("x limited to the interval from min_val to max_val; the gradient on a limit "
               "is 1.")
          .formula("\\min(\\max(x, min\\_val), max\\_val)")
          .input("input", kNumeric)
          .attr("min_val", -1.0)
          .attr("max_val", 1.0)
          .output("output", same_as("input"))
          .rule([](RuleBuilder& r) { r.same_shape(r.out(), r.in("input")); })
          .compose([](Builder& b) {
            const Attrs limits{{"min_val", b.attr("min_val")}, {"max_val", b.attr("max_val")}};
            return ir::apply("clamp", {b.in("input")}, limits);
          })
          .kink(-1.0, 1.0)
          .kink(1.0, 1.0)
          .points({-1.0, 1.0}))
      .with(at({{"input", {2, 9}}}, {{"min_val", -0.5}, {"max_val", 1.5}}));

  unary_cases(ops.def("relu6")
                  .python("ReLU6", {"Relu6"})
                  .doc("The positive part of x, at most 6; the gradient at 0 and 6 is 0.")
                  .formula("\\min(\\max(x, 0), 6)")
                  .input("input", kNumeric)
                  .output("output", same_as("input"))
                  .pointwise([](tile::Builder&, Reg x) {
                    const Reg capped = select(x >= 6.0, 6.0, x);
                    return select(x <= 0.0, 0.0, capped);
                  })
                  .gradient([](GradBuilder& g) {
                    const Value x = g.in("input");
                    const Value inside = logical_and(greater(x, 0.0), less(x, 6.0));
                    g.d("input") = where(inside, g.dout(), 0.0);
                  })
                  .kink(0.0, 0.0)
                  .kink(6.0, 0.0)
                  .sample("input", -3.0, 9.0)
                  .points({0.0, -0.0, 6.0}));
}

// --- soft ones -------------------------------------------------------------------------------

void define_soft_ones(OpFamily& ops) {
  activation(ops.def("softsign").python("Softsign").doc("x over 1 + |x|.").formula("x / (1 + |x|)"))
      .pointwise([](tile::Builder& t, Reg x) { return x / (t.abs(x) + 1.0); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() / square(abs(g.in("input")) + 1.0); })
      .kinks()
      .points({0.5, -0.5});

  activation(ops.def("log_sigmoid")
                 .python("LogSigmoid")
                 .precision(Precision::kWide)
                 .doc("Logarithm of the logistic function, without underflow.")
                 .formula("-\\ln(1 + e^{-x})"))
      .pointwise([](tile::Builder& t, Reg x) { return -t.softplus(-x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * sigmoid(-g.in("input")); })
      .sample("input", -20.0, 20.0)
      .points({0.0, -0.0});

  activation(ops.def("tanh_shrink")
                 .python("TanhShrink", {"Tanhshrink"})
                 .doc("x less its hyperbolic tangent.")
                 .formula("x - \\tanh x"))
      .pointwise([](tile::Builder& t, Reg x) { return x - t.tanh(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * square(tanh(g.in("input"))); })
      .points({0.0, -0.0});
}

// --- along axes ------------------------------------------------------------------------------

Value halves(Value x, int64_t axis, bool second) {
  const auto at = static_cast<size_t>(axes_of(HostValue(axis), x.rank())[0]);
  const infer::Dim half = x.builder->graph().dims.floor_div(x.shape()[at], infer::Dim(2));
  const HostValue middle = size_value(half);
  HostValue::Tuple index(x.rank(), HostValue(core::Slice{}));
  index[at] = second ? HostValue(core::Slice{middle, HostValue(), HostValue()})
                     : HostValue(core::Slice{HostValue(), middle, HostValue()});
  return ir::apply("index", {x}, {{"index", HostValue::tuple(std::move(index))}});
}

core::Status has_halves(infer::Relation& relation) {
  const auto size = relation.size(0, static_cast<int>(relation.data()));
  if (!size || *size % 2 == 0) return {};
  return core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                    "axis {} must have an even size, got {}", relation.data(), *size);
}

void define_gate(OpFamily& ops, const char* name, const char* python, const char* activation,
                 const char* doc, const char* formula) {
  ops.def(name)
      .python(python)
      .doc(doc)
      .formula(formula)
      .input("input", kNumeric)
      .attr("axis", -1)
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) {
        const auto axis = r.known(r.attr("axis"));
        r.when_rank_known(r.in("input"), [axis](RuleBuilder& rule, int rank) {
          const int64_t at = axis->as_int() < 0 ? axis->as_int() + rank : axis->as_int();
          if (at < 0 || at >= rank) {
            rule.fail(core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                                 "'axis' is {}, but the input has rank {}", axis->as_int(), rank));
            return;
          }
          std::vector<infer::DimTerm> dims;
          for (int i = 0; i < rank; ++i) dims.push_back(rule.dim(rule.in("input"), i));
          auto& halved = dims[static_cast<size_t>(at)];
          rule.custom({rule.in("input")}, has_halves, at);
          const infer::DimTerm half = rule.dim("half");
          rule.equal(half * 2, halved);
          halved = half;
          rule.shape(rule.out(), std::span<const infer::DimTerm>(dims));
        });
      })
      .compose([activation](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const int64_t axis = b.integer_attr("axis");
        return halves(x, axis, false) * ir::apply(activation, {halves(x, axis, true)});
      })
      .with(at({{"input", {3, 4}}}))
      .with(at({{"input", {2, 6, 3}}}, {{"axis", 1}}))
      .with(at({{"input", {0, 2}}}))
      .rejects(at({{"input", {2, 3}}}), "even size")
      .rejects(at({{"input", {2, 4}}}, {{"axis", 2}}), "axis");
}

void define_gates(OpFamily& ops) {
  define_gate(ops, "glu", "GLU", "sigmoid",
              "The first half along the axis, times the sigmoid of the second (Dauphin et al., "
              "arXiv:1612.08083).",
              "a \\, \\sigma(b)");
  define_gate(ops, "swiglu", "SwiGLU", "silu",
              "The first half along the axis, times the SiLU of the second (Shazeer, "
              "arXiv:2002.05202, whose first projection is the second half here, as in glu: where "
              "the half that gates comes first, swap them).",
              "a \\, b \\, \\sigma(b)");
  define_gate(ops, "geglu", "GEGLU", "gelu",
              "The first half along the axis, times the GELU of the second (Shazeer, "
              "arXiv:2002.05202, whose first projection is the second half here, as in glu: where "
              "the half that gates comes first, swap them).",
              "a \\, b \\, \\Phi(b)");
}

// What to take off before the exponentials: no infinite number, inf - inf is none. It has no slope:
// as much is added again.
Value finite_or_zero(Value largest) {
  const Value m = ir::apply("stop_gradient", {largest});
  return where(equal(m - m, 0.0), m, 0.0);
}

void define_sums_of_exponentials(OpFamily& ops) {
  ops.def("softmin")
      .python("Softmin")
      .precision(Precision::kWide)
      .doc("Softmax of the negative: the smallest element counts most.")
      .formula("e^{-x_i} / \\sum_j e^{-x_j}")
      .input("input", kNumeric)
      .key("axis", -1)
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        // Only to check the axis: a reduction over it must exist.
        r.reduce(r.fresh(infer::kTensor), r.in("input"), r.in("axis"), r.constant(false));
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        return x ? b.call("softmax", {-x, given(b, "axis")}) : Value();
      })
      .with(at({{"input", {2, 5}}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", 1}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis");

  ops.def("logsumexp")
      .python("LogSumExp")
      .precision(Precision::kWide)
      .doc(
          "Logarithm of the sum of exponentials over the axes (none: all), without overflow; "
          "of nothing but -inf it is -inf.")
      .formula("\\ln \\sum_i e^{x_i}")
      .input("input", kNumeric)
      .key("axis", HostValue())
      .key("keepdim", false)
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) { r.reduce(r.out(), r.in("input"), r.in("axis"), r.in("keepdim")); })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x || needs_known_axis(b)) return Value();
        const Operand axis = given(b, "axis");
        const Operand keepdim = given(b, "keepdim");
        const Value shift = finite_or_zero(reduce("max", x, axis, HostValue(true)));
        const Value total = reduce("sum", exp(x - shift), axis, keepdim);
        return log(total) + finite_or_zero(reduce("max", x, axis, keepdim));
      })
      .gradient([](GradBuilder& g) {
        // From the sum, not from its logarithm: a large result has few digits behind the point.
        const Value x = g.in("input");
        const Value shift = finite_or_zero(reduce("max", x, g.attr("axis"), HostValue(true)));
        const Value shares = exp(x - shift);
        const Value total =
            with_reduced_axes(g, reduce("sum", shares, g.attr("axis"), g.attr("keepdim")));
        const Value some = where(equal(total, 0.0), 1.0, total);
        g.d("input") = with_reduced_axes(g, g.dout()) * (shares / some);
      })
      .with(at({{"input", {2, 5}}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", 1}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", HostValue::ints({0, -1})}, {"keepdim", true}}))
      .with(at({{"input", {}}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis");
}

}  // namespace

void define_smooth_activation(OpFamily& ops) {
  define_exponential_units(ops);
  define_hard_ones(ops);
  define_soft_ones(ops);
  define_gates(ops);
  define_sums_of_exponentials(ops);
}

}  // namespace mithril::ops

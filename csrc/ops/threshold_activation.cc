// Activations that change where their operand passes a bound, which may be learned.
#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

// --- a learned slope -------------------------------------------------------------------------

void prelu_rule(RuleBuilder& r) {
  r.same_shape(r.out(), r.in("input"));
  const auto count = r.known(r.attr("num_parameters"));
  if (!count || !count->is_int()) return;
  if (count->as_int() < 1) {
    r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "'num_parameters' must be positive, got {}", count->as_int()));
    return;
  }
  r.shape_or_number(r.in("weight"), "p");
  r.equal(r.dim("p"), count->as_int());
  if (count->as_int() == 1) return;
  r.shape(r.in("input"), "n c ...");
  r.equal(r.dim("c"), count->as_int());
}

void define_prelu(OpFamily& ops) {
  ops.def("prelu")
      .python("PReLU", {"PRelu"})
      .arguments({"num_parameters", "input", "weight"})
      .doc(
          "x where positive, else x times a learned slope: one for all (num_parameters 1) or one "
          "for each channel on axis 1 (He et al., arXiv:1502.01852). The gradient at 0 is the "
          "slope.")
      .formula("\\max(x, 0) + w \\min(x, 0)")
      .input("input", kNumeric)
      .input("weight", kFloating)
      .attr("num_parameters", 1)
      .trainable("weight", {.kind = Init::Kind::kZeros})
      .output("output", computed())
      .promote_float()
      .rule(prelu_rule)
      .compose([](Builder& b) {
        const Value x = b.in("input");
        const Value weight = b.in("weight");
        if (!x || !weight) return Value();
        if (weight.rank() == 0) return ir::apply("leaky_relu", {x, weight});
        HostValue::Tuple shape;
        if (b.integer_attr("num_parameters") > 1) {
          shape.assign(x.rank() - 1, HostValue(1));
          shape[0] = size_value(x.shape()[1]);
        }
        return ir::apply("leaky_relu", {x, reshape(weight, HostValue::tuple(std::move(shape)))});
      })
      .kinks()
      .with(at({{"input", {2, 3}}, {"weight", {1}}}))
      .with(at({{"input", {}}, {"weight", {1}}}))
      .with(at({{"input", {2, 3}}, {"weight", {3}}}, {{"num_parameters", 3}}))
      .with(at({{"input", {2, 3, 4, 5}}, {"weight", {3}}}, {{"num_parameters", 3}}))
      .with(at({{"input", {0, 3}}, {"weight", {3}}}, {{"num_parameters", 3}}))
      .rejects(at({{"input", {2, 3}}, {"weight", {4}}}, {{"num_parameters", 4}}), "prelu")
      .rejects(at({{"input", {2, 3}}, {"weight", {1}}}, {{"num_parameters", 0}}),
               "'num_parameters' must be positive");
}

// --- fixed bounds ----------------------------------------------------------------------------

double number(const PointwiseCall& c, const char* name) { return c.attrs.find(name)->as_number(); }

void define_threshold(OpFamily& ops) {
  activation(ops.def("threshold")
                 .python("Threshold")
                 .arguments({"threshold", "value", "input"})
                 .doc("x above the threshold, else the value; the gradient at the threshold is 0.")
                 .formula("x > \\tau: x, \\quad \\text{else } v"))
      .attr("threshold", 0.0)
      .attr("value", 0.0)
      .pointwise([](tile::Builder&, const PointwiseCall& c) {
        const Reg x = c.in[0];
        return select(x <= number(c, "threshold"), number(c, "value"), x);
      })
      .gradient([](GradBuilder& g) {
        const Value low = less_equal(g.in("input"), g.attr("threshold").as_number());
        g.d("input") = where(low, 0.0, g.dout());
      })
      .kink(0.0, 0.0)
      .points({0.0, -0.0})
      .with(at({{"input", {2, 9}}}, {{"threshold", 0.5}, {"value", -1.0}}));
}

// Functions that are 0 from -lambd to lambd.
OpDefBuilder& shrinking(OpDefBuilder& block) {
  activation(block)
      .attr("lambd", 0.5)
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        const auto bound = r.known(r.attr("lambd"));
        if (!bound || bound->as_number() >= 0.0) return;
        r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                          "'lambd' must not be negative, got {}", core::to_string(*bound)));
      })
      .gradient([](GradBuilder& g) {
        const Value inside = less_equal(abs(g.in("input")), g.attr("lambd").as_number());
        g.d("input") = where(inside, 0.0, g.dout());
      });
  return block.kink(0.5, 0.0)
      .kink(-0.5, 0.0)
      .kink(0.0, 0.0)
      .points({0.5, -0.5, 0.0, -0.0})
      .with(at({{"input", {2, 9}}}, {{"lambd", 1.25}}));
}

void define_shrinking(OpFamily& ops) {
  shrinking(ops.def("hard_shrink")
                .python("HardShrink", {"Hardshrink"})
                .arguments({"lambd", "input"})
                .doc("x, but 0 from -lambd to lambd; the gradient at both is 0.")
                .formula("|x| > \\lambda: x, \\quad \\text{else } 0"))
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        return select(t.abs(c.in[0]) <= number(c, "lambd"), 0.0, c.in[0]);
      });

  shrinking(ops.def("soft_shrink")
                .python("SoftShrink", {"Softshrink"})
                .arguments({"lambd", "input"})
                .doc("x moved towards 0 by lambd, and 0 from -lambd to lambd, where the gradient "
                     "is 0.")
                .formula("x - \\min(\\max(x, -\\lambda), \\lambda)"))
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const double bound = number(c, "lambd");
        return c.in[0] - t.at_most(t.at_least(c.in[0], -bound), bound);
      });
}

}  // namespace

void define_threshold_activation(OpFamily& ops) {
  define_prelu(ops);
  define_threshold(ops);
  define_shrinking(ops);
}

}  // namespace mithril::ops

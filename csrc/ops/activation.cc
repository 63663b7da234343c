// Activations: functions between layers, elementwise or along one axis.
#include <numbers>

#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

void define_sigmoids(OpFamily& ops) {
  activation(ops.def("sigmoid")
                 .python("Sigmoid")
                 .doc("Logistic function, without overflow.")
                 .formula("1 / (1 + e^{-x})"))
      .pointwise([](tile::Builder& t, Reg x) { return t.sigmoid(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * g.out() * (1.0 - g.out()); })
      .sample("input", -8.0, 8.0)
      .points({0.0, -0.0});

  activation(ops.def("tanh").python("Tanh").doc("Hyperbolic tangent.").formula("\\tanh x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.tanh(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * (1.0 - square(g.out())); })
      .sample("input", -5.0, 5.0)
      .points({0.0, -0.0});

  activation(
      ops.def("softplus")
          .python("Softplus")
          .precision(Precision::kWide)
          .arguments({"input"})
          .doc("Smooth maximum of x and zero: log(1 + exp(beta x)) / beta, without overflow.")
          .formula("\\ln(1 + e^{\\beta x}) / \\beta"))
      .attr("beta", 1.0)
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const double beta = c.attrs.find("beta")->as_number();
        if (beta == 1.0) return t.softplus(c.in[0]);
        const Reg scaled = c.in[0] * beta;  // infinite where x need not be
        return select(tile::equal(scaled, kInfinity), c.in[0], t.softplus(scaled) / beta);
      })
      .gradient([](GradBuilder& g) {
        g.d("input") = g.dout() * sigmoid(g.in("input") * g.attr("beta").as_number());
      })
      .sample("input", -20.0, 20.0)
      .points({0.0, -0.0})
      .with(at({{"input", {5}}}, {{"beta", 2.5}}));

  activation(ops.def("silu")
                 .python("SiLU", {"Silu"})
                 .alias({"swish"})
                 .doc("x times its sigmoid.")
                 .formula("x / (1 + e^{-x})"))
      .pointwise([](tile::Builder& t, Reg x) { return t.silu(x); })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value s = sigmoid(x);
        g.d("input") = g.dout() * s * (1.0 + x * (1.0 - s));
      })
      .sample("input", -8.0, 8.0)
      .points({0.0, -0.0});
}

Value gelu_slope(Value x) {
  const Value below = (erf(x * std::numbers::sqrt2 / 2.0) + 1.0) * 0.5;
  const double scale = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return below + x * exp(square(x) * -0.5) * scale;
}

Value gelu_tanh_slope(Value operand) {
  // Beyond this the slope is 0 or 1 in every type, and the cube may be infinite.
  constexpr double kFar = 20.0;
  const Value x = ir::apply("clamp", {operand}, {{"min_val", -kFar}, {"max_val", kFar}});
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  constexpr double kCubic = 0.044715;
  const Value t = tanh((x + x * x * x * kCubic) * scale);
  const Value inner = (square(x) * (3.0 * kCubic) + 1.0) * scale;
  return (t + 1.0) * 0.5 + x * (1.0 - square(t)) * inner * 0.5;
}

bool is_approximate(const HostValue* value) {
  return value != nullptr && value->is_bool() && value->as_bool();
}

void define_rectifiers(OpFamily& ops) {
  unary_cases(ops.def("relu")
                  .python("Relu", {"ReLU"})
                  .doc("The positive part of x; the gradient at 0 is 0.")
                  .formula("\\max(x, 0)")
                  .input("input", kNumeric)
                  .output("output", same_as("input"))
                  .pointwise([](tile::Builder& t, Reg x) { return t.max(x, 0.0); })
                  .gradient([](GradBuilder& g) {
                    g.d("input") = where(greater(g.in("input"), 0.0), g.dout(), 0.0);
                  })
                  .kink(0.0, 0.0)
                  .points({0.0, -0.0}));

  activation(ops.def("leaky_relu")
                 .python("LeakyRelu", {"LeakyReLU"})
                 .doc("x where positive, else slope times x; the gradient at 0 is the slope.")
                 .formula("\\max(x, 0) + slope \\cdot \\min(x, 0)"))
      .input("slope", kNum, HostValue(0.01))
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), infer::kFloating);
        r.broadcast(r.out(), {r.in("input"), r.in("slope")});
      })
      .pointwise([](tile::Builder& t, Reg x, Reg slope) { return t.select(x > 0.0, x, x * slope); })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value positive = greater(x, 0.0);
        g.d("input") = where(positive, g.dout(), g.dout() * g.in("slope"));
        if (g.wants("slope")) g.d("slope") = where(positive, 0.0, g.dout() * x);
      })
      .kink(0.0, 0.01)
      .points({0.0, -0.0})
      .with(at({{"input", {2, 3}}}, {{"slope", 0.2}}));

  activation(ops.def("gelu")
                 .python("Gelu", {"GELU"})
                 .doc("x times the normal distribution function of x; approximate: by tanh "
                      "(Hendrycks and Gimpel, arXiv:1606.08415).")
                 .formula("x \\Phi(x)"))
      .key("approximate", false)
      .rule([](RuleBuilder& r) {
        r.kind(r.in("approximate"), infer::kScalarBool);
        r.broadcast(r.out(), {r.in("input")});
      })
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const bool approximate = is_approximate(c.attrs.find("approximate"));
        return approximate ? t.gelu_tanh(c.in[0]) : t.gelu(c.in[0]);
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const bool approximate = is_approximate(&g.attr("approximate"));
        g.d("input") = g.dout() * (approximate ? gelu_tanh_slope(x) : gelu_slope(x));
      })
      .sample("input", -5.0, 5.0)
      .points({0.0, -0.0})
      .with(at({{"input", {2, 3}}}, {{"approximate", true}}));
}

// Both along `axis`; the value of max drops out of the result, so no gradient goes through it.
Value shifted(Builder& b) {
  const Value x = b.in("input");
  return x - ir::apply("stop_gradient", {reduce("max", x, given(b, "axis"), HostValue(true))});
}

OpDefBuilder& normalizing(OpDefBuilder& block) {
  return block.input("input", kNumeric)
      .key("axis", -1)
      .output("output", computed())
      .promote_float()
      .precision(Precision::kWide)
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        // Only to check the axis: a reduction over it must exist.
        r.reduce(r.fresh(infer::kTensor), r.in("input"), r.in("axis"), r.constant(false));
      })
      .with(at({{"input", {2, 5}}}))
      .with(at({{"input", {3, 4, 2}}}, {{"axis", 1}}))
      .with(at({{"input", {2, 3}}}, {{"axis", HostValue()}}))
      .with(at({{"input", {0, 4}}}));
}

void define_softmax(OpFamily& ops) {
  normalizing(ops.def("softmax")
                  .python("Softmax")
                  .arguments({"input", "axis"})
                  .doc("Exponentials that sum to 1 along the axis, without overflow.")
                  .formula("e^{x_i} / \\sum_j e^{x_j}"))
      .compose([](Builder& b) {
        // One division a row, not one an element.
        const Value e = exp(shifted(b));
        return e * (1.0 / reduce("sum", e, given(b, "axis"), HostValue(true)));
      })
      .gradient([](GradBuilder& g) {
        const Value gy = g.dout() * g.out();
        const Operand axis = given(g.builder(), "axis");
        g.d("input") = gy - g.out() * reduce("sum", gy, axis, HostValue(true));
      });

  normalizing(ops.def("log_softmax")
                  .python("LogSoftmax")
                  .arguments({"input", "axis"})
                  .doc("Logarithm of softmax along the axis, without overflow.")
                  .formula("x_i - \\ln \\sum_j e^{x_j}"))
      .compose([](Builder& b) {
        const Value z = shifted(b);
        return z - log(reduce("sum", exp(z), given(b, "axis"), HostValue(true)));
      })
      .gradient([](GradBuilder& g) {
        const Operand axis = given(g.builder(), "axis");
        g.d("input") = g.dout() - exp(g.out()) * reduce("sum", g.dout(), axis, HostValue(true));
      });
}

}  // namespace

void define_activation(OpFamily& ops) {
  define_rectifiers(ops);
  define_sigmoids(ops);
  define_softmax(ops);
}

}  // namespace mithril::ops

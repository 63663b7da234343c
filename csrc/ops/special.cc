// Further functions of single elements: hyperbolic ones, logarithms to other bases, rounding, and
// what is not finite. Bounds of errors are in units in the last place, of the engine's own loops in
// float32 and float64.
#include <limits>
#include <numbers>

#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

// --- logarithms, powers, quotients ---------------------------------------------------------

void define_powers(OpFamily& ops) {
  floating(ops.def("exp2").python("Exp2").doc("2 to the power of x.").formula("2^x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.exp2(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * g.out() * std::numbers::ln2; })
      .points({0.0, -0.0});

  floating(ops.def("log2")
               .python("Log2")
               .doc("Logarithm to base 2; of 0 -inf, of negative numbers NaN.")
               .formula("\\log_2 x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.log2(x); })
      .gradient(
          [](GradBuilder& g) { g.d("input") = g.dout() / (g.in("input") * std::numbers::ln2); })
      .sample("input", 0.1, 10.0);

  floating(ops.def("log10")
               .python("Log10")
               .doc("Logarithm to base 10, within 2 units; of 0 -inf, of negative numbers NaN.")
               .formula("\\log_{10} x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.log(x) * std::numbers::log10e; })
      .gradient(
          [](GradBuilder& g) { g.d("input") = g.dout() / (g.in("input") * std::numbers::ln10); })
      .sample("input", 0.1, 10.0);

  floating(ops.def("reciprocal").python("Reciprocal").doc("One over x.").formula("1 / x"))
      .pointwise([](tile::Builder&, Reg x) { return 1.0 / x; })
      .gradient([](GradBuilder& g) { g.d("input") = -(g.dout() * square(g.out())); })
      .sample("input", 0.2, 3.0);
}

// --- hyperbolic functions ------------------------------------------------------------------

// e^a / 2 where e^a may be too large.
Reg half_exp(Reg a) {
  const Reg root = exp(a * 0.5);
  return root * 0.5 * root;
}

// Beyond this e^-a is less than half a unit of e^a.
constexpr double kFar = 20.0;

Reg sinh(Reg x) {
  const Reg a = abs(x);
  const Reg e = expm1(tile::at_most(a, kFar));
  const Reg near = (e + e / (e + 1.0)) * 0.5;
  return odd(x, select(a > kFar, half_exp(a), near));
}

Reg cosh(Reg x) {
  const Reg a = abs(x);
  const Reg e = exp(tile::at_most(a, kFar));
  return select(a > kFar, half_exp(a), (e + 1.0 / e) * 0.5);
}

// Beyond this 1 + x^2 is x^2.
constexpr double kHuge = 0x1p28;

Reg asinh(Reg x) {
  const Reg a = abs(x);
  const Reg c = tile::at_most(a, kHuge);
  const Reg square = c * c;
  const Reg near = log1p(c + square / (1.0 + sqrt(1.0 + square)));
  const Reg far = log(tile::at_least(a, kHuge)) + std::numbers::ln2;
  return odd(x, select(a > kHuge, far, near));
}

Reg acosh(Reg x) {
  const Reg t = tile::at_most(x, kHuge) - 1.0;
  const Reg near = log1p(t + sqrt(t) * sqrt(t + 2.0));
  return select(x > kHuge, log(x) + std::numbers::ln2, near);
}

Reg atanh(Reg x) {
  const Reg a = abs(x);
  const Reg rest = 1.0 - a;
  const Reg near = log1p(a * 2.0 + a * 2.0 * a / rest);
  return odd(x, select(a < 0.5, near, log1p(a * 2.0 / rest)) * 0.5);
}

void define_hyperbolic(OpFamily& ops) {
  floating(ops.def("tan")
               .python("Tan")
               .doc("Tangent of an angle in radians, within 3 units.")
               .formula("\\tan x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.sin(x) / t.cos(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * (1.0 + square(g.out())); })
      .sample("input", -1.2, 1.2)
      .points({0.0, -0.0});

  floating(ops.def("sinh")
               .python("Sinh")
               .doc("Hyperbolic sine, within 4 units.")
               .formula("(e^x - e^{-x}) / 2"))
      .pointwise([](tile::Builder&, Reg x) { return sinh(x); })
      .gradient(
          [](GradBuilder& g) { g.d("input") = g.dout() * ir::apply("cosh", {g.in("input")}); })
      .points({0.0, -0.0});

  floating(ops.def("cosh")
               .python("Cosh")
               .doc("Hyperbolic cosine, within 4 units.")
               .formula("(e^x + e^{-x}) / 2"))
      .pointwise([](tile::Builder&, Reg x) { return cosh(x); })
      .gradient(
          [](GradBuilder& g) { g.d("input") = g.dout() * ir::apply("sinh", {g.in("input")}); })
      .points({0.0, -0.0});

  floating(ops.def("asinh")
               .python("Asinh")
               .doc("Inverse of the hyperbolic sine, within 4 units.")
               .formula("\\ln(x + \\sqrt{x^2 + 1})"))
      .pointwise([](tile::Builder&, Reg x) { return asinh(x); })
      .gradient([](GradBuilder& g) {
        // Squares are taken of numbers at most 1: x^2 may be too large.
        const Value x = g.in("input");
        const Value unit = ir::apply("stop_gradient", {maximum(abs(x), 1.0)});
        g.d("input") = g.dout() / (unit * sqrt(square(x / unit) + square(1.0 / unit)));
      })
      .points({0.0, -0.0});

  floating(ops.def("acosh")
               .python("Acosh")
               .doc("Inverse of the hyperbolic cosine, within 4 units; NaN below 1.")
               .formula("\\ln(x + \\sqrt{x^2 - 1})"))
      .pointwise([](tile::Builder&, Reg x) { return acosh(x); })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        g.d("input") = g.dout() / (sqrt(x - 1.0) * sqrt(x + 1.0));
      })
      .sample("input", 1.1, 9.0);

  floating(ops.def("atanh")
               .python("Atanh")
               .doc("Inverse of the hyperbolic tangent, within 4 units; of 1 inf, NaN beyond.")
               .formula("\\ln((1 + x) / (1 - x)) / 2"))
      .pointwise([](tile::Builder&, Reg x) { return atanh(x); })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        g.d("input") = g.dout() / ((1.0 - x) * (1.0 + x));
      })
      .sample("input", -0.9, 0.9)
      .points({0.0, -0.0});
}

// --- rounding ------------------------------------------------------------------------------

void define_rounding(OpFamily& ops) {
  using B = tile::Builder;
  using Round = Reg (B::*)(Reg);
  const auto define = [&](const char* name, const char* python, const char* doc, Round round) {
    unary_cases(ops.def(name)
                    .python(python)
                    .doc(doc)
                    .input("input", kTensor)
                    .output("output", default_int())
                    .promote_float()
                    .pointwise([round](B& t, const PointwiseCall& c) {
                      return t.cast((t.*round)(c.in[0]), c.result);
                    })
                    .not_differentiable()
                    .points({0.5, -0.5, 1.5, 2.0, -0.0}));
  };
  define("ceil", "Ceil",
         "The smallest integer at or above each element, in the default integer type.", &B::ceil);
  define("round", "Round", "The nearest integer, of two the even one, in the default integer type.",
         &B::round);
  define("trunc", "Trunc", "Each element without its fraction, in the default integer type.",
         &B::trunc);
}

// --- what is not finite --------------------------------------------------------------------

double largest(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 65504.0;
    case DType::kBFloat16: return 0x1.FEp127;
    case DType::kFloat32: return static_cast<double>(std::numeric_limits<float>::max());
    default: return std::numeric_limits<double>::max();
  }
}

// x with NaN and infinities replaced by the keys; none: by the largest number of the type.
Reg finite(tile::Builder& t, const PointwiseCall& c) {
  const Reg x = c.in[0];
  if (!core::is_float(x.dtype())) return x;
  const auto number = [&](size_t operand, const char* name, double otherwise) {
    if (operand < c.in.size() && c.in[operand].valid()) return c.in[operand];
    const HostValue* value = c.attrs.find(name);
    const bool given = value != nullptr && !value->is_none();
    return t.constant(x.dtype(), given ? value->as_number() : otherwise);
  };
  Reg y = t.select(t.isnan(x), number(1, "nan", 0.0), x);
  y = t.select(t.equal(x, kInfinity), number(2, "posinf", largest(c.result)), y);
  return t.select(t.equal(x, -kInfinity), number(3, "neginf", -largest(c.result)), y);
}

void define_not_finite(OpFamily& ops) {
  unary_cases(
      ops.def("nan_to_num")
          .python("NanToNum")
          .doc("The elements, with NaN replaced by nan, and infinities by posinf and "
               "neginf (none: the largest numbers of the type); those have gradient 0.")
          .input("input", kTensor)
          .key("nan", 0.0)
          .key("posinf", HostValue())
          .key("neginf", HostValue())
          .output("output", same_as("input"))
          .rule([](RuleBuilder& r) { r.same_shape(r.out(), r.in("input")); })
          .pointwise(finite)
          .gradient([](GradBuilder& g) {
            const Value x = g.in("input");
            g.d("input") = where(less(abs(x), kInfinity), g.dout(), 0.0);
          })
          .points({std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity})
          .kinks()
          .with(at({{"input", {2, 3}}}, {{"nan", 1.5}, {"posinf", 7.0}, {"neginf", -7.0}})));

  const auto define = [&](const char* name, const char* python, const char* doc, Reg (*is)(Reg)) {
    unary_cases(ops.def(name)
                    .python(python)
                    .doc(doc)
                    .input("input", kTensor)
                    .output("output", boolean())
                    .promote_float()
                    .pointwise([is](tile::Builder&, Reg x) { return is(x); })
                    .not_differentiable()
                    .points({kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}));
  };
  define("isinf", "IsInf", "Whether an element is inf or -inf.",
         [](Reg x) { return tile::equal(abs(x), kInfinity); });
  define("isfinite", "IsFinite", "Whether an element is neither infinite nor NaN.",
         [](Reg x) { return abs(x) < kInfinity; });
}

}  // namespace

void define_special(OpFamily& ops) {
  define_powers(ops);
  define_hyperbolic(ops);
  define_rounding(ops);
  define_not_finite(ops);
}

}  // namespace mithril::ops

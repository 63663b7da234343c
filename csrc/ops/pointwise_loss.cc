// Losses of single elements beside those of loss.cc: margins, quantiles, divergences, and distances
// that are quadratic near 0 only. `safe_shapes` and `reduction` as there.
#include "ops/reduced_loss.h"
#include "ops/robust.h"

namespace mithril::ops {
namespace {

using tile::Reg;

// Input and target of equal standing.
OpDefBuilder& of_a_target(OpDefBuilder& block, ir::GradientFn gradient) {
  block.arguments({"input", "target"})
      .input("input", kTensor)
      .input("target", kTensor)
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote_float();
  binary_cases(reducible(block, {.gradient = std::move(gradient)}), "input", "target");
  return reduced_cases(block, "input", "target");
}

// --- margins ---------------------------------------------------------------------------------

// By how much input times target falls short of 1.
Reg shortfall(tile::Builder& b, Reg x, Reg t) { return b.max(1.0 - x * t, 0.0); }
Value shortfall(const GradBuilder& g) { return 1.0 - g.in("input") * g.in("target"); }

void margin_gradient(GradBuilder& g, Value slope) {
  const Value d = g.dout() * slope;
  if (g.wants("input")) g.d("input") = -(d * g.in("target"));
  if (g.wants("target")) g.d("target") = -(d * g.in("input"));
}

void define_margins(OpFamily& ops) {
  of_a_target(ops.def("hinge_loss")
                  .python("HingeLoss")
                  .doc("By how much input times target falls short of 1; at equality the gradient "
                       "is half of that inside.")
                  .formula("\\max(0, 1 - t x)"),
              [](GradBuilder& g) {
                const Value m = shortfall(g);
                const Value at_kink = where(equal(m, 0.0), ones_like(m) * 0.5, 0.0);
                margin_gradient(g, where(greater(m, 0.0), 1.0, at_kink));
              })
      .pointwise([](tile::Builder& b, Reg x, Reg t) { return shortfall(b, x, t); })
      .kinks();

  of_a_target(ops.def("quad_hinge_loss")
                  .python("QuadHingeLoss")
                  .doc("Square of what input times target falls short of 1.")
                  .formula("\\max(0, 1 - t x)^2"),
              [](GradBuilder& g) {
                const Value m = shortfall(g);
                margin_gradient(g, where(greater(m, 0.0), m * 2.0, 0.0));
              })
      .pointwise([](tile::Builder& b, Reg x, Reg t) {
        const Reg m = shortfall(b, x, t);
        return m * m;
      })
      .kinks();
}

// --- quantiles -------------------------------------------------------------------------------

void quantile_gradient(GradBuilder& g) {
  const Value e = g.in("target") - g.in("input");
  const Value q = g.in("quantile");
  const Value below = where(less(e, 0.0), q - 1.0, q - 0.5);
  const Value d = g.dout() * where(greater(e, 0.0), q, below);
  if (g.wants("input")) g.d("input") = -d;
  if (g.wants("target")) g.d("target") = d;
  if (g.wants("quantile")) g.d("quantile") = g.dout() * e;
}

void define_quantile(OpFamily& ops) {
  OpDefBuilder block = ops.def("quantile_loss");
  block.python("QuantileLoss")
      .arguments({"quantile", "input", "target"})
      .doc(
          "Distance of input and target, weighted by the quantile where the target is above, "
          "else by what is left to 1 (Koenker and Bassett, 1978); at equality the gradient "
          "is the mean of both sides.")
      .formula("\\max(q (t - x), (q - 1) (t - x))")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .input("quantile", kNum, HostValue(0.5))
      .within("quantile", 0.0, 1.0)
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote_float();
  const auto shapes = [](RuleBuilder& r, Term each) {
    r.broadcast(each, {r.in("input"), r.in("target"), r.in("quantile")});
  };
  reducible(block, {.shapes = shapes, .gradient = quantile_gradient})
      .pointwise([](tile::Builder& b, Reg x, Reg t, Reg q) {
        const Reg e = t - x;
        return b.max(e * q, e * (q - 1.0));
      })
      .kinks();
  reduced_cases(binary_cases(block, "input", "target"), "input", "target")
      .with(at({{"input", {2, 3}}, {"target", {3}}}, {{"quantile", 0.9}}))
      .with(at({{"input", {3, 4}}, {"target", {3, 4}}, {"quantile", {}}}));
}

// --- divergence ------------------------------------------------------------------------------

Value divergence(Builder& b) {
  const Value x = b.in("input");
  const Value t = b.in("target");
  if (!x || !t) return {};
  const Value limit = threshold(b, x);
  return t * (robust_log(t, limit).value - robust_log(x, limit).value);
}

void divergence_gradient(GradBuilder& g) {
  const Value x = g.in("input");
  const Value t = g.in("target");
  const Value limit = threshold(g.builder(), x);
  const Continued of_x = robust_log(x, limit);
  if (g.wants("input")) g.d("input") = -(g.dout() * t * of_x.slope);
  if (!g.wants("target")) return;
  const Continued of_t = robust_log(t, limit);
  g.d("target") = g.dout() * (of_t.value - of_x.value + t * of_t.slope);
}

void define_divergence(OpFamily& ops) {
  OpDefBuilder block = ops.def("kl_divergence");
  block.python("KLDivergence")
      .arguments({"input", "target", "threshold"})
      .doc(
          "What each class adds to the divergence of Kullback and Leibler of the "
          "probabilities target from input; below the threshold logarithms are continued by "
          "their tangents.")
      .formula("t (\\ln t - \\ln x)")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .input("threshold", kThreshold, HostValue("MIN_POSITIVE_NORMAL"))
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote_float({"input", "target"})
      .sample("input", 0.05, 0.95)
      .sample("target", 0.05, 0.95);
  const auto shapes = [](RuleBuilder& r, Term each) {
    r.broadcast(each, {r.in("input"), r.in("target")});
    threshold_rule(r);
  };
  reducible(block, {.shapes = shapes, .body = divergence, .gradient = divergence_gradient});
  reduced_cases(binary_cases(block, "input", "target"), "input", "target")
      .with(at({{"input", {2, 9}}, {"target", {2, 9}}}, {{"threshold", 0.5}}))
      .rejects(at({{"input", {2}}, {"target", {2}}, {"threshold", {2}}}), "rank 0");
}

// --- quadratic near 0 ------------------------------------------------------------------------

// The slope of |d| / width where |d| is above the width, else linear between.
Value bounded(Value d, Value width) { return minimum(maximum(d, -width), width); }

OpDefBuilder& with_width(OpDefBuilder& block, const char* name, ir::GradientFn gradient) {
  block.arguments({"input", "target", name})
      .input("input", kNumeric)
      .input("target", kNumeric)
      .input(name, infer::kScalar - infer::kScalarBool, HostValue(1.0))
      .at_least(name, 0.0)
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote_float({"input", "target", name});
  const auto shapes = [](RuleBuilder& r, Term each) {
    r.broadcast(each, {r.in("input"), r.in("target")});
  };
  reducible(block, {.shapes = shapes, .gradient = std::move(gradient)});
  return reduced_cases(binary_cases(block, "input", "target"), "input", "target")
      .with(at({{"input", {2, 9}}, {"target", {9}}}, {{name, 0.5}}));
}

void define_smooth_distances(OpFamily& ops) {
  with_width(ops.def("huber_loss")
                 .python("HuberLoss")
                 .doc("Half the squared difference of input and target; beyond delta it goes on "
                      "as a line (Huber, 1964).")
                 .formula("d^2 / 2, \\quad |d| > \\delta: \\delta (|d| - \\delta / 2)"),
             "delta",
             [](GradBuilder& g) {
               const Value d = g.dout() * bounded(g.in("input") - g.in("target"), g.in("delta"));
               g.d("input") = d;
               if (g.wants("target")) g.d("target") = -d;
             })
      .above("delta", 0.0)
      .pointwise([](tile::Builder& b, Reg x, Reg t, Reg delta) {
        const Reg size = b.abs(x - t);
        return b.select(size > delta, delta * (size - delta * 0.5), size * size * 0.5);
      })
      .kinks();

  with_width(ops.def("smooth_l1_loss")
                 .python("SmoothL1Loss")
                 .doc("Absolute difference of input and target, less beta / 2; a parabola within "
                      "beta (Girshick, arXiv:1504.08083). Beta 0 is the absolute difference.")
                 .formula("|d| - \\beta / 2, \\quad |d| < \\beta: d^2 / (2 \\beta)"),
             "beta",
             [](GradBuilder& g) {
               const Value e = g.in("input") - g.in("target");
               const Value beta = g.in("beta");
               const Value inside = less(abs(e), beta);
               const Value d = g.dout() * where(inside, e / where(inside, beta, 1.0), sign(e));
               g.d("input") = d;
               if (g.wants("target")) g.d("target") = -d;
             })
      .pointwise([](tile::Builder& b, Reg x, Reg t, Reg beta) {
        const Reg size = b.abs(x - t);
        const Reg inside = size < beta;
        const Reg safe = select(inside, beta, 1.0);  // beta may be 0
        return b.select(inside, size * size * 0.5 / safe, size - beta * 0.5);
      })
      .with(at({{"input", {2, 3}}, {"target", {2, 3}}}, {{"beta", 0.0}}))
      .kinks();
}

}  // namespace

void define_pointwise_loss(OpFamily& ops) {
  define_margins(ops);
  define_quantile(ops);
  define_divergence(ops);
  define_smooth_distances(ops);
}

}  // namespace mithril::ops

// Negative logarithms of what a distribution with the model's parameters gives the target.
#include <cmath>
#include <numbers>

#include "ops/reduced_loss.h"

namespace mithril::ops {
namespace {

void equal_shapes(RuleBuilder& r, Term each) {
  r.shape(r.in("input"), "...");
  r.shape_or_number(r.in("target"), "...");
  r.shape(each, "...");
}

Sample same_shapes(std::vector<int64_t> shape, Attrs attrs = {}) {
  return at({{"input", shape}, {"target", shape}}, std::move(attrs));
}

void refuse(RuleBuilder& r, const char* wanted, const HostValue& got) {
  r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "{}, got {}", wanted,
                    core::to_string(got)));
}

// --- Bernoulli -------------------------------------------------------------------------------

// How far the probability is from the target's side, to a power; of 0 with the slope 0.
Value difficulty(Value x, Value t, double gamma) {
  const Value miss = t * sigmoid(-x) + (1.0 - t) * sigmoid(x);
  const Value none = equal(miss, 0.0);
  return where(none, 0.0, power(where(none, 1.0, miss), gamma));
}

Value focal(Builder& b) {
  const Value x = b.in("input");
  const Value t = b.in("target");
  if (!x || !t) return {};
  Value loss = (1.0 - t) * x + ir::apply("softplus", {-x});
  const double gamma = b.number("gamma");
  if (gamma != 0.0) loss = loss * difficulty(x, t, gamma);
  const HostValue& alpha = b.attr("alpha");
  if (alpha.is_none()) return loss;
  const double positive = alpha.as_number();
  return loss * (t * (2.0 * positive - 1.0) + (1.0 - positive));
}

void focal_rule(RuleBuilder& r, Term each) {
  equal_shapes(r, each);
  const auto alpha = r.known(r.attr("alpha"));
  if (alpha && !alpha->is_none() && !(alpha->as_number() >= 0.0 && alpha->as_number() <= 1.0)) {
    refuse(r, "'alpha' must be from 0 to 1 or none", *alpha);
  }
  const auto gamma = r.known(r.attr("gamma"));
  if (gamma && !(gamma->as_number() >= 0.0)) refuse(r, "'gamma' must not be negative", *gamma);
}

void define_focal(OpFamily& ops) {
  OpDefBuilder block = ops.def("focal_loss");
  block.python("FocalLoss")
      .arguments({"alpha", "gamma", "input", "target", "reduction"})
      .doc(
          "Binary cross entropy of logits in which easy elements count little: times the gamma-th "
          "power of what the probability of the target lacks to 1, and alpha where the target is "
          "1, 1 - alpha where it is 0; alpha none: no such weights (Lin et al., "
          "arXiv:1708.02002).")
      .formula("-\\alpha_t (1 - p_t)^\\gamma \\ln p_t")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .attr("alpha", 0.25, infer::kScalarFloat | infer::kScalarInt | infer::kNoneKind)
      .attr("gamma", 2.0)
      .output("output", computed())
      .promote_float({"input", "target"})
      .kinks()
      .sample("target", 0.0, 1.0);
  reducible(block, {.shapes = focal_rule, .body = focal})
      .with(same_shapes({4}))
      .with(same_shapes({4, 2}, {{"alpha", HostValue()}, {"gamma", 0.5}, {"reduction", "mean"}}))
      .with(same_shapes({4, 2}, {{"alpha", 0.75}, {"gamma", 0.0}, {"reduction", "sum"}}))
      .with(at({{"input", {9}}, {"target", {9}}}, {{"gamma", 1.5}}, {"target"}))
      .with(same_shapes({0}))
      .rejects(same_shapes({2}, {{"alpha", 1.5}}), "'alpha' must be from 0 to 1")
      .rejects(same_shapes({2}, {{"gamma", -1.0}}), "'gamma' must not be negative");
}

// --- Poisson ---------------------------------------------------------------------------------

// Stirling's approximation of ln t!, above 1.
Value stirling(Value t) {
  const Value large = greater(t, 1.0);
  const Value safe = where(large, t, 1.0);
  const Value factorial = safe * log(safe) - safe + log(safe * (2.0 * std::numbers::pi)) * 0.5;
  return where(large, factorial, 0.0);
}

Value poisson(Builder& b) {
  const Value x = b.in("input");
  const Value t = b.in("target");
  if (!x || !t) return {};
  const bool is_log = b.attr("log_input").as_bool();
  const Value loss = is_log ? exp(x) - t * x : x - t * log(x + b.number("eps"));
  return b.attr("full").as_bool() ? loss + stirling(t) : loss;
}

void define_poisson(OpFamily& ops) {
  OpDefBuilder block = ops.def("poisson_nll_loss");
  block.python("PoissonNLLLoss")
      .arguments({"log_input", "full", "eps", "input", "target", "reduction"})
      .doc(
          "Negative log likelihood of counts under Poisson distributions, whose rate is the input, "
          "or with log_input its exponential. full adds Stirling's approximation of the factorial "
          "for targets above 1; eps keeps the logarithm of a rate finite.")
      .formula("e^x - t x, \\quad \\text{rates: } x - t \\ln(x + \\epsilon)")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .attr("log_input", true)
      .attr("full", false)
      .attr("eps", 1e-8)
      .at_least("eps", 0.0)
      .output("output", computed())
      .promote_float({"input", "target"})
      .kinks()
      .sample("input", 0.1, 2.0)
      .sample("target", 0.0, 5.0);
  reducible(block, {.shapes = equal_shapes, .body = poisson})
      .with(same_shapes({4}))
      .with(same_shapes({3, 4}, {{"log_input", false}, {"full", true}}))
      .with(same_shapes({3, 4}, {{"full", true}, {"reduction", "mean"}}))
      .with(same_shapes({3, 4}, {{"log_input", false}, {"eps", 0.5}, {"reduction", "sum"}}))
      .with(same_shapes({0}))
      .rejects(at({{"input", {2}}, {"target", {3}}}), "poisson_nll_loss");
}

// --- normal ----------------------------------------------------------------------------------

// At least eps. The gradient passes a variance below it as if it were eps.
Value variance(Builder& b) {
  const Value var = b.in("var");
  if (!var) return {};
  const double eps = b.number("eps");
  const Value nothing = var - ir::apply("stop_gradient", {var});
  return where(less(var, eps), nothing + eps, var);
}

Value gaussian(Builder& b) {
  const Value var = variance(b);
  const Value loss = (log(var) + square(b.in("input") - b.in("target")) / var) * 0.5;
  if (!b.attr("full").as_bool()) return loss;
  static const double kRoot = 0.5 * std::log(2.0 * std::numbers::pi);
  return loss + kRoot;
}

void gaussian_gradient(GradBuilder& g) {
  const Value var = variance(g.builder());
  const Value scaled = (g.in("input") - g.in("target")) / var;
  if (g.wants("input")) g.d("input") = g.dout() * scaled;
  if (g.wants("target")) g.d("target") = -(g.dout() * scaled);
  if (g.wants("var")) g.d("var") = g.dout() * (1.0 / var - square(scaled)) * 0.5;
}

void define_gaussian(OpFamily& ops) {
  OpDefBuilder block = ops.def("gaussian_nll_loss");
  block.python("GaussianNLLLoss")
      .arguments({"full", "eps", "input", "target", "var", "reduction"})
      .doc(
          "Negative log likelihood of the target under normal distributions of mean input and "
          "variance var, which broadcasts to it (Nix and Weigend, 1994). A variance counts as eps "
          "where it is smaller; the gradient there is that at eps. full adds the constant.")
      .formula("\\frac12 (\\ln v + (x - t)^2 / v)")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .input("var", kNumeric)
      .attr("full", false)
      .attr("eps", 1e-6)
      .at_least("eps", 0.0)
      .output("output", computed())
      .promote_float()
      .sample("var", 0.2, 3.0);
  const auto shapes = [](RuleBuilder& r, Term each) {
    equal_shapes(r, each);
    r.broadcast(each, {r.in("input"), r.in("var")});
  };
  const auto case_of = [](std::vector<int64_t> shape, std::vector<int64_t> var, Attrs attrs = {}) {
    return at({{"input", shape}, {"target", shape}, {"var", std::move(var)}}, std::move(attrs));
  };
  reducible(block, {.shapes = shapes, .body = gaussian, .gradient = gaussian_gradient})
      .with(case_of({4, 3}, {4, 3}))
      .with(case_of({4, 3}, {4, 1}, {{"full", true}, {"reduction", "mean"}}))
      .with(case_of({4, 3}, {}, {{"eps", 0.1}, {"reduction", "sum"}}))
      .with(case_of({0, 3}, {0, 1}))
      .rejects(case_of({4, 3}, {4}), "must broadcast");
}

}  // namespace

void define_likelihood_loss(OpFamily& ops) {
  define_focal(ops);
  define_poisson(ops);
  define_gaussian(ops);
}

}  // namespace mithril::ops

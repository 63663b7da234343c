// Losses that compare what a model makes of several inputs: by angle, by distance, by order.
#include <cmath>
#include <limits>

#include "ops/reduced_loss.h"

namespace mithril::ops {
namespace {

using tile::Reg;

const HostValue kLast(-1);

// Returns what the vectors along an axis are divided by before they are squared, at least `least`:
// squares may be too large, or all 0. The axis stays, of size 1.
Value unit_of(Value x, const HostValue& axis, double least) {
  return ir::apply("stop_gradient", {maximum(ir::max(abs(x), axis, true), least)});
}

// --- angles ----------------------------------------------------------------------------------

void define_cosine_similarity(OpFamily& ops) {
  ops.def("cosine_similarity")
      .python("CosineSimilarity")
      .arguments({"axis", "eps", "input1", "input2"})
      .doc(
          "Cosine of the angle between vectors along the axis. A norm counts as eps where it is "
          "smaller, and has no gradient there.")
      .formula("x_1 \\cdot x_2 / (\\max(|x_1|, \\epsilon) \\max(|x_2|, \\epsilon))")
      .input("input1", kNumeric)
      .input("input2", kNumeric)
      .attr("axis", 1)
      .attr("eps", 1e-8)
      .at_least("eps", 0.0)
      .output("output", computed())
      .promote_float({"input1", "input2"})
      .kinks()
      .rule([](RuleBuilder& r) {
        const Term both = r.fresh(kTensor);
        r.broadcast(both, {r.in("input1"), r.in("input2")});
        r.reduce(r.out(), both, r.attr("axis"), r.constant(false));
      })
      .compose([](Builder& b) {
        const Value product = b.in("input1") * b.in("input2");
        if (!product) return Value();
        const HostValue& axis = b.attr("axis");
        const double eps = b.number("eps");
        const auto direction = [&](const char* name) {
          const Value x = broadcast_like(b.in(name), product);
          const Value unit = unit_of(x, axis, eps);
          const Value part = x / unit;
          return part / sqrt(maximum(sum(square(part), axis, true), square(eps / unit)));
        };
        return sum(direction("input1") * direction("input2"), axis);
      })
      .with(at({{"input1", {4, 3}}, {"input2", {4, 3}}}))
      .with(at({{"input1", {2, 3, 4}}, {"input2", {4}}}, {{"axis", -1}}))
      .with(at({{"input1", {2, 3, 4}}, {"input2", {2, 1, 4}}}, {{"axis", 1}}))
      .with(at({{"input1", {5}}, {"input2", {5}}}, {{"axis", 0}, {"eps", 10.0}}))
      .with(at({{"input1", {0, 3}}, {"input2", {0, 3}}}))
      .rejects(at({{"input1", {3}}, {"input2", {3}}}), "axis")
      .rejects(at({{"input1", {2, 3}}, {"input2", {2, 4}}}), "must broadcast");
}

// The cosine of the angle between the vectors of the last axis, as PyTorch takes it in this loss.
Value cosine(Value x, Value y) {
  constexpr double kEps = 1e-12;
  const auto direction = [](Value v) {
    const Value unit = unit_of(v, kLast, 1.0);
    const Value part = v / unit;
    return part / sqrt(sum(square(part), kLast, true) + kEps / unit / unit);
  };
  return sum(direction(x) * direction(y), kLast);
}

void define_cosine_embedding(OpFamily& ops) {
  OpDefBuilder block = ops.def("cosine_embedding_loss");
  block.python("CosineEmbeddingLoss")
      .arguments({"margin", "input1", "input2", "target", "reduction"})
      .doc(
          "Of vectors along the last axis: 1 less the cosine of their angle where the target is "
          "1, by how much the cosine is above the margin where it is -1, else 0. On the margin "
          "the gradient is half of that above.")
      .formula("t = 1: 1 - \\cos, \\quad t = -1: \\max(0, \\cos - m)")
      .input("input1", kNumeric)
      .input("input2", kNumeric)
      .input("target", kNumeric)
      .attr("margin", 0.0)
      .output("output", computed())
      .promote_float({"input1", "input2"})
      .kinks()
      .sample("target", -1.0, 1.0);
  const auto shapes = [](RuleBuilder& r, Term each) {
    r.shape(r.in("input1"), "... d");
    r.shape(r.in("input2"), "... d");
    r.shape_or_number(r.in("target"), "...");
    r.shape(each, "...");
  };
  const auto body = [](Builder& b) {
    const Value target = b.in("target");
    const Value angle = cosine(b.in("input1"), b.in("input2"));
    if (!target || !angle) return Value();
    const Value above = maximum(angle - b.number("margin"), 0.0);
    return where(equal(target, 1.0), 1.0 - angle, where(equal(target, -1.0), above, 0.0));
  };
  const auto case_of = [](std::vector<int64_t> vectors, std::vector<int64_t> target,
                          Attrs attrs = {}) {
    return at({{"input1", vectors}, {"input2", vectors}, {"target", std::move(target)}},
              std::move(attrs), {"target"});
  };
  reducible(block, {.shapes = shapes, .body = body})
      .with(case_of({9, 3}, {9}))
      .with(case_of({9, 3}, {9}, {{"margin", 0.25}, {"reduction", "mean"}}))
      .with(case_of({4, 2, 3}, {4, 2}, {{"margin", -0.5}, {"reduction", "sum"}}))
      .with(case_of({3}, {}))
      .with(case_of({0, 3}, {0}))
      .rejects(case_of({4, 3}, {3}), "cosine_embedding_loss");
}

// --- distances -------------------------------------------------------------------------------

// x to a power; of 0 it is 0, and so is the slope there.
Value zero_power(Value x, double exponent) {
  const Value none = equal(x, 0.0);
  const Value safe = where(none, 1.0, x);
  return where(none, 0.0, exponent == 0.5 ? sqrt(safe) : power(safe, exponent));
}

// The p-norm of the last axis.
Value norm(Value x, double p) {
  if (std::isinf(p)) return ir::max(abs(x), kLast);
  if (p == 1.0) return sum(abs(x), kLast);
  if (p == 2.0) return zero_power(sum(square(x), kLast), 0.5);
  return zero_power(sum(zero_power(abs(x), p), kLast), 1.0 / p);
}

Value triplet(Builder& b) {
  const double p = b.number("p");
  const double eps = b.number("eps");
  const auto distance = [&](const char* x, const char* y) {
    return norm(b.in(x)-b.in(y) + eps, p);
  };
  Value other = distance("anchor", "negative");
  if (b.attr("swap").as_bool()) other = minimum(other, distance("positive", "negative"));
  return maximum(distance("anchor", "positive") - other + b.number("margin"), 0.0);
}

void triplet_rule(RuleBuilder& r, Term each) {
  const Term all = r.fresh(kTensor);
  r.broadcast(all, {r.in("anchor"), r.in("positive"), r.in("negative")});
  r.shape(all, "... d");
  r.shape(each, "...");
  const auto p = r.known(r.attr("p"));
  if (p && !(p->as_number() > 0.0)) {
    r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "'p' must be positive, got {}", core::to_string(*p)));
  }
}

void define_triplet(OpFamily& ops) {
  OpDefBuilder block = ops.def("triplet_margin_loss");
  block.python("TripletMarginLoss")
      .arguments({"margin", "p", "eps", "swap", "anchor", "positive", "negative", "reduction"})
      .doc(
          "By how much the anchor is nearer to the negative than to the positive, plus the margin "
          "(Balntas et al., 2016); at 0 the gradient is half of that above. Vectors are along the "
          "last axis, distances p-norms of differences plus eps; swap takes the smaller one of "
          "the negative's distances from the anchor and from the positive.")
      .formula("\\max(0, |a - p| - |a - n| + m)")
      .input("anchor", kNumeric)
      .input("positive", kNumeric)
      .input("negative", kNumeric)
      .attr("margin", 1.0)
      .attr("p", 2.0)
      .attr("eps", 1e-6)
      .at_least("eps", 0.0)
      .attr("swap", false)
      .output("output", computed())
      .promote_float()
      .kinks();
  const auto case_of = [](std::vector<int64_t> shape, Attrs attrs = {}) {
    return at({{"anchor", shape}, {"positive", shape}, {"negative", shape}}, std::move(attrs));
  };
  reducible(block, {.shapes = triplet_rule, .body = triplet})
      .with(case_of({5, 3}))
      .with(case_of({5, 3}, {{"swap", true}, {"reduction", "mean"}}))
      .with(case_of({2, 4, 3}, {{"p", 1.0}, {"margin", 0.5}, {"reduction", "sum"}}))
      .with(case_of({5, 3}, {{"p", 3.0}, {"eps", 0.0}}))
      .with(case_of({5, 3}, {{"p", std::numeric_limits<double>::infinity()}}))
      .with(at({{"anchor", {4, 3}}, {"positive", {3}}, {"negative", {4, 3}}}))
      .with(case_of({0, 3}))
      .rejects(case_of({2, 3}, {{"p", 0.0}}), "'p' must be positive");
}

// --- order -----------------------------------------------------------------------------------

void ranking_gradient(GradBuilder& g) {
  const Value t = g.in("target");
  const Value apart = g.in("input1") - g.in("input2");
  const Value m = g.attr("margin").as_number() - t * apart;
  const Value at_kink = where(equal(m, 0.0), g.dout() * 0.5, 0.0);
  const Value d = where(greater(m, 0.0), g.dout(), at_kink);
  if (g.wants("input1")) g.d("input1") = -(d * t);
  if (g.wants("input2")) g.d("input2") = d * t;
  if (g.wants("target")) g.d("target") = -(d * apart);
}

void define_ranking(OpFamily& ops) {
  OpDefBuilder block = ops.def("margin_ranking_loss");
  block.python("MarginRankingLoss")
      .arguments({"margin", "input1", "input2", "target", "reduction"})
      .doc(
          "By how much input1 falls short of being larger (target 1) or smaller (target -1) than "
          "input2 by the margin; at equality the gradient is half of that inside.")
      .formula("\\max(0, -t (x_1 - x_2) + m)")
      .input("input1", kTensor)
      .input("input2", kTensor)
      .input("target", kTensor)
      .attr("margin", 0.0)
      .output("output", computed())
      .promote_float();
  const auto shapes = [](RuleBuilder& r, Term each) {
    r.broadcast(each, {r.in("input1"), r.in("input2"), r.in("target")});
  };
  reducible(block, {.shapes = shapes, .gradient = ranking_gradient})
      .pointwise([](tile::Builder& b, const PointwiseCall& c) {
        const Reg apart = c.in[0] - c.in[1];
        return b.max(c.attrs.find("margin")->as_number() - c.in[2] * apart, 0.0);
      })
      .kinks()
      .with(at({{"input1", {4}}, {"input2", {4}}, {"target", {4}}}))
      .with(at({{"input1", {4, 3}}, {"input2", {3}}, {"target", {4, 1}}},
               {{"margin", 0.5}, {"reduction", "mean"}}))
      .with(at({{"input1", {4}}, {"input2", {4}}, {"target", {}}}, {{"reduction", "sum"}}))
      .with(at({{"input1", {0}}, {"input2", {0}}, {"target", {0}}}))
      .rejects(at({{"input1", {4}}, {"input2", {3}}, {"target", {4}}}), "must broadcast");
}

}  // namespace

void define_similarity_loss(OpFamily& ops) {
  define_cosine_similarity(ops);
  define_cosine_embedding(ops);
  define_triplet(ops);
  define_ranking(ops);
}

}  // namespace mithril::ops

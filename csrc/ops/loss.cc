// Losses: one value for each element or sample; reducing them is the model's business. All of them
// keep a model's declared shapes safe: `safe_shapes` says that input and target must agree.
#include "ops/robust.h"

namespace mithril::ops {
namespace {

using tile::Reg;

void define_distances(OpFamily& ops) {
  binary_cases(ops.def("squared_error")
                   .python("SquaredError")
                   .arguments({"input", "target"})
                   .doc("Squared difference of input and target.")
                   .formula("(x - t)^2")
                   .input("input", kTensor)
                   .input("target", kTensor)
                   .attr("safe_shapes", true)
                   .output("output", computed())
                   .promote()
                   .pointwise([](tile::Builder&, Reg x, Reg t) {
                     if (x.dtype() == DType::kBool) return x ^ t;
                     const Reg d = x - t;
                     return d * d;
                   })
                   .gradient([](GradBuilder& g) {
                     const Value d = g.dout() * (g.in("input") - g.in("target")) * 2.0;
                     g.d("input") = d;
                     if (g.wants("target")) g.d("target") = -d;
                   }),
               "input", "target");

  binary_cases(ops.def("absolute_error")
                   .python("AbsoluteError")
                   .arguments({"input", "target"})
                   .doc("Absolute difference of input and target; the gradient at equality is 0.")
                   .formula("|x - t|")
                   .input("input", kTensor)
                   .input("target", kTensor)
                   .attr("safe_shapes", true)
                   .output("output", computed())
                   .promote()
                   .pointwise([](tile::Builder& b, Reg x, Reg t) {
                     return x.dtype() == DType::kBool ? (x ^ t) : b.abs(x - t);
                   })
                   .gradient([](GradBuilder& g) {
                     const Value d = g.dout() * sign(g.in("input") - g.in("target"));
                     g.d("input") = d;
                     if (g.wants("target")) g.d("target") = -d;
                   })
                   .kinks(),
               "input", "target");
}

bool flag(const Builder& b, std::string_view name) {
  const HostValue& value = b.attr(name);
  return value.is_bool() && value.as_bool();
}

// ln x; robust: continued below the threshold by the tangent there, on |x|.
Continued logarithm(Builder& b, Value x) {
  if (!flag(b, "robust")) return {log(x), 1.0 / x};
  return robust_log(x, threshold(b, x));
}

// --- cross entropy -------------------------------------------------------------------------

std::string input_type(const Builder& b) {
  const HostValue& type = b.attr("input_type");
  return type.is_string() ? type.as_string() : "logits";
}

/// The terms of the loss -sum_c q_c log p_c over the classes (axis 1).
struct CrossEntropy {
  Value weights;   // q without the target: one for each class, or none
  Value chosen;    // categorical: whether this class is the target
  Value quantity;  // q: the target's share of each class, weighted
};

std::vector<int64_t> all_axes_but_classes(size_t rank) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < rank; ++i) {
    if (i != 1) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

// One number for each class, shaped to multiply x: [C, 1, …].
Value class_shape(Value per_class, Value x) {
  HostValue::Tuple shape{size_value(x.shape()[1])};
  for (size_t i = 2; i < x.rank(); ++i) shape.emplace_back(1);
  return reshape(per_class, HostValue::tuple(std::move(shape)));
}

// N / (C n_c): classes that are rarer weigh more; absent ones have no target to weigh.
Value balanced_weights(Value x, Value shares) {
  const HostValue others = HostValue::ints(all_axes_but_classes(x.rank()));
  const Value number = sum(shares, others, true);
  const Value samples = count(x, others);
  const Value classes = count(x, HostValue(1));
  const Value present = where(equal(number, 0.0), 1.0, number);
  const Value balanced = samples / (classes * present);
  return ir::apply("stop_gradient", {balanced});
}

Value class_weights(Builder& b, Value x, Value shares) {
  if (b.has("weights")) return class_shape(cast(b.in("weights"), x.dtype()), x);
  const HostValue& weights = b.attr("weights");
  const bool balanced = (weights.is_bool() && weights.as_bool()) ||
                        (weights.is_string() && weights.as_string() == "auto");
  if (balanced) return balanced_weights(x, shares);
  if (!weights.is_sequence()) return {};
  const Value list = b.call("to_tensor", {weights}, {{"dtype", HostValue(x.dtype())}});
  return class_shape(list, x);
}

CrossEntropy terms(Builder& b) {
  CrossEntropy out;
  const Value x = b.in("input");
  const Value target = b.in("target");
  if (!x || !target) return out;
  if (flag(b, "categorical")) {
    HostValue::Tuple shape{size_value(x.shape()[1])};
    for (size_t i = 2; i < x.rank(); ++i) shape.emplace_back(1);
    const Value classes = cast(b.call("arange", {}, {{"stop", shape[0]}}), target.dtype());
    out.chosen = equal(expand_dims(target, HostValue(1)),
                       reshape(classes, HostValue::tuple(std::move(shape))));
    out.quantity = cast(out.chosen, x.dtype());
  } else {
    out.quantity = target;
  }
  out.weights = class_weights(b, x, out.quantity);
  if (out.weights) out.quantity = out.quantity * out.weights;
  return out;
}

// log p of each class; `slope` is that of ln in the input, where the input are probabilities.
Continued log_probabilities(Builder& b) {
  const Value x = b.in("input");
  const std::string type = input_type(b);
  if (type == "logits") return {ir::apply("log_softmax", {x}, {{"axis", 1}}), {}};
  if (type == "probs") return logarithm(b, x);
  if (type == "log_probs") return {x, {}};
  b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "cross_entropy: input_type must be 'logits', 'probs' or 'log_probs', got '{}'",
                    type));
  return {};
}

Value cross_entropy_body(Builder& b) {
  const CrossEntropy t = terms(b);
  const Continued logp = log_probabilities(b);
  if (!t.quantity || !logp.value) return {};
  // A class that is not the target counts 0 even where its logarithm is -inf.
  const Value product =
      t.chosen ? where(t.chosen, logp.value * t.quantity, 0.0) : logp.value * t.quantity;
  return -sum(product, HostValue(1));
}

void cross_entropy_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  const CrossEntropy t = terms(b);
  const Continued logp = log_probabilities(b);
  const Value dy = expand_dims(g.dout(), HostValue(1));
  if (!t.quantity || !logp.value || !dy) return;
  const Value dlogp = -(dy * t.quantity);
  const std::string type = input_type(b);
  if (g.wants("input")) {
    if (type == "logits") {
      g.d("input") = dlogp - exp(logp.value) * sum(dlogp, HostValue(1), true);
    } else if (type == "probs") {
      const Value d = dlogp * logp.slope;
      g.d("input") = t.chosen ? where(t.chosen, d, 0.0) : d;
    } else {
      g.d("input") = dlogp;
    }
  }
  if (g.wants("target")) {
    const Value d = -(dy * logp.value);
    g.d("target") = t.weights ? d * t.weights : d;
  }
}

// A case whose target holds class numbers.
Sample numbered(std::vector<int64_t> input, std::vector<int64_t> target, Attrs attrs = {}) {
  return at({{"input", std::move(input)}, {"target", std::move(target)}}, std::move(attrs),
            {"target"});
}

void define_cross_entropy(OpFamily& ops) {
  OpDefBuilder block = ops.def("cross_entropy");
  block.python("CrossEntropy")
      .arguments({"input_type", "weights", "input", "target", "robust", "threshold", "categorical"})
      .doc(
          "Cross entropy of each sample over the classes on axis 1, from logits, probs or "
          "log_probs. categorical: the target holds class numbers, else a share for each class. "
          "weights: a number for each class, or 'auto' for N / (C n_c).")
      .formula("-\\sum_c w_c t_c \\ln p_c")
      .input("input", kNumeric)
      .input("target", kTensor)
      .key("weights", false)
      .key("categorical", true)
      .key("threshold", "MIN_POSITIVE_NORMAL")
      .key("robust", false)
      .attr("input_type", "logits")
      .choices({"logits", "probs", "log_probs"})
      .attr("safe_shapes", true)
      .connect({"input", "target", "weights", "categorical", "threshold", "robust", "output"})
      .output("output", computed())
      .promote_float({"input"})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "n c ...");
        r.shape(r.out(), "n ...");
        r.when_known(r.in("categorical"), [](RuleBuilder& rule, const HostValue& categorical) {
          const bool numbers = categorical.is_bool() && categorical.as_bool();
          rule.shape(rule.in("target"), numbers ? "n ..." : "n c ...");
          if (numbers) rule.kind(rule.in("target"), kTensorInt);
        });
      })
      .compose(cross_entropy_body)
      .gradient(cross_entropy_gradient)
      .sample("input", 0.05, 0.95)
      .sample("target", 0.0, 2.0);
  for (const char* type : {"logits", "probs", "log_probs"}) {
    block.with(numbered({4, 3}, {4}, {{"input_type", type}}))
        .with(at({{"input", {4, 3}}, {"target", {4, 3}}},
                 {{"input_type", type}, {"categorical", false}}));
  }
  block.with(numbered({2, 3, 4, 5}, {2, 4, 5}))
      .with(numbered({4, 3}, {4}, {{"weights", "auto"}}))
      .with(numbered({4, 3}, {4}, {{"weights", HostValue::list({0.5, 1.0, 2.0})}}))
      .with(numbered({4, 3}, {4}, {{"input_type", "probs"}, {"robust", true}}))
      .with(numbered({0, 3}, {0}));
}

// --- binary cross entropy ------------------------------------------------------------------

// p: how much a positive target counts; "auto" balances positives and negatives.
Value positive_weight(Builder& b, Value t) {
  if (b.has("pos_weight")) return cast(b.in("pos_weight"), t.dtype());
  const HostValue& weight = b.attr("pos_weight");
  if (!weight.is_string()) return b.scalar(weight.as_number(), t.dtype());
  const Value positive = mean(t, HostValue());
  return ir::apply("stop_gradient", {(1.0 - positive) / positive});
}

Value softplus(Value x) { return ir::apply("softplus", {x}); }

Value binary_body(Builder& b) {
  const Value x = b.in("input");
  const Value t = b.in("target");
  if (!x || !t) return {};
  const Value p = positive_weight(b, t);
  if (input_type(b) == "logits") return (1.0 - t) * x + (t * (p - 1.0) + 1.0) * softplus(-x);
  return -(p * t * logarithm(b, x).value + (1.0 - t) * logarithm(b, 1.0 - x).value);
}

void binary_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  const Value x = g.in("input");
  const Value t = g.in("target");
  const Value p = positive_weight(b, t);
  if (input_type(b) == "logits") {
    if (g.wants("input")) {
      g.d("input") = g.dout() * ((1.0 - t) - (t * (p - 1.0) + 1.0) * sigmoid(-x));
    }
    if (g.wants("target")) g.d("target") = g.dout() * ((p - 1.0) * softplus(-x) - x);
    return;
  }
  const Continued yes = logarithm(b, x);
  const Continued no = logarithm(b, 1.0 - x);
  if (g.wants("input")) g.d("input") = g.dout() * ((1.0 - t) * no.slope - p * t * yes.slope);
  if (g.wants("target")) g.d("target") = g.dout() * (no.value - p * yes.value);
}

void define_binary_cross_entropy(OpFamily& ops) {
  ops.def("binary_cross_entropy")
      .python("BinaryCrossEntropy")
      .arguments({"input_type", "pos_weight", "input", "target", "threshold", "robust"})
      .doc(
          "Cross entropy of yes-or-no targets, from logits or probs; pos_weight p scales the "
          "positive targets, 'auto' is (1 - mean t) / mean t.")
      .formula("-p \\, t \\ln x - (1 - t) \\ln(1 - x)")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .key("pos_weight", 1.0)
      .key("threshold", "MIN_POSITIVE_NORMAL")
      .key("robust", false)
      .attr("input_type", "logits")
      .choices({"logits", "probs"})
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote_float({"input", "target"})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "...");
        r.shape(r.in("target"), "...");
        r.shape(r.out(), "...");
      })
      .compose(binary_body)
      .gradient(binary_gradient)
      .sample("input", 0.1, 0.9)
      .sample("target", 0.0, 1.0)
      .with(at({{"input", {4}}, {"target", {4}}}))
      .with(at({{"input", {4, 2}}, {"target", {4, 2}}}, {{"input_type", "probs"}}))
      .with(at({{"input", {4}}, {"target", {4}}}, {{"pos_weight", 2.0}}))
      .with(at({{"input", {9}}, {"target", {9}}}, {{"pos_weight", "auto"}}, {"target"}))
      .with(at({{"input", {4}}, {"target", {4}}}, {{"input_type", "probs"}, {"robust", true}}))
      .with(at({{"input", {0}}, {"target", {0}}}));
}

}  // namespace

void define_loss(OpFamily& ops) {
  define_distances(ops);
  define_cross_entropy(ops);
  define_binary_cross_entropy(ops);
}

}  // namespace mithril::ops

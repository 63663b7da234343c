// Losses: one value for each element or sample, unless `reduction` says otherwise. All of them keep
// a model's declared shapes safe: `safe_shapes` says that input and target must agree.
#include "infer/relation.h"
#include "ops/reduced_loss.h"
#include "ops/robust.h"

namespace mithril::ops {
namespace {

using tile::Reg;

OpDefBuilder& distance(OpDefBuilder& block, ir::GradientFn gradient) {
  block.arguments({"input", "target"})
      .input("input", kTensor)
      .input("target", kTensor)
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote();
  return binary_cases(reducible(block, {.gradient = std::move(gradient)}), "input", "target");
}

void define_distance_losses(OpFamily& ops) {
  distance(ops.def("squared_error")
               .python("SquaredError")
               .doc("Squared difference of input and target.")
               .formula("(x - t)^2"),
           [](GradBuilder& g) {
             const Value d = g.dout() * (g.in("input") - g.in("target")) * 2.0;
             g.d("input") = d;
             if (g.wants("target")) g.d("target") = -d;
           })
      .pointwise([](tile::Builder&, Reg x, Reg t) {
        if (x.dtype() == DType::kBool) return x ^ t;
        const Reg d = x - t;
        return d * d;
      });

  distance(ops.def("absolute_error")
               .python("AbsoluteError")
               .doc("Absolute difference of input and target; the gradient at equality is 0.")
               .formula("|x - t|"),
           [](GradBuilder& g) {
             const Value d = g.dout() * sign(g.in("input") - g.in("target"));
             g.d("input") = d;
             if (g.wants("target")) g.d("target") = -d;
           })
      .pointwise([](tile::Builder& b, Reg x, Reg t) {
        return x.dtype() == DType::kBool ? (x ^ t) : b.abs(x - t);
      })
      .kinks();
}

// ln x; robust: continued below the threshold by the tangent there, on |x|.
Continued logarithm(Builder& b, Value x) {
  if (b.has("robust")) {
    unsupported(b, b.op().name + ": 'robust' must be known when the model is compiled");
    return {};
  }
  if (!flag(b, "robust")) return {log(x), 1.0 / x};
  return robust_log(x, threshold(b, x));
}

// A probability, and 1 where it is 0 and counts 0: 0 ln 0 is 0, and nothing flows back.
Value counting(Value share, Value p) {
  if (!share || !p) return {};
  return where(logical_and(equal(share, 0.0), equal(p, 0.0)), 1.0, p);
}

// --- cross entropy -------------------------------------------------------------------------

std::string input_type(const Builder& b) {
  const HostValue& type = b.attr("input_type");
  return type.is_string() ? type.as_string() : "logits";
}

/// The terms of the loss -sum_c q_c log p_c over the classes (axis 1).
struct CrossEntropy {
  Value weights;   // q without the target: one for each class, or none
  Value counted;   // where a logarithm counts; none: everywhere
  Value quantity;  // q: the target's share of each class, weighted
};

/// Targets that are class numbers.
struct Chosen {
  Value is_target;  // whether a class is the target of its sample, and counts
  Value is_kept;    // whether the sample counts; none: all of them do
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

bool is_categorical(const Builder& b) {
  return !b.op().has_attr("categorical") || flag(b, "categorical");
}

// Class numbers as they are, read from a table of them: reading beyond it is an error where data
// are checked. Negative ones, which would count from the end, are moved below what counts.
Value checked_classes(Value numbers, Value table) {
  const Value count = size_constant(*table.builder, table.shape()[0]);
  return ir::apply("gather", {table, where(less(numbers, 0.0), numbers - count, numbers)});
}

// The class number of each sample; one number is all of them.
Value class_numbers(Builder& b) {
  const Value target = b.in("target");
  if (!target || target.rank() > 0) return target;
  Shape samples = b.in("input").shape();
  samples.erase(samples.begin() + 1);
  return b.call("broadcast_to", {target}, {{"shape", shape_value(samples)}});
}

Chosen chosen_classes(Builder& b) {
  const Value x = b.in("input");
  Value target = cast(expand_dims(class_numbers(b), HostValue(1)), DType::kInt64);
  Chosen out;
  const HostValue& ignored = b.attr("ignore_index");
  if (ignored.is_int()) {
    out.is_kept = not_equal(target, b.integer(ignored.as_int(), DType::kInt64));
    target = where(out.is_kept, target, b.integer(0, DType::kInt64));
  }
  const Value table = range(b, x.shape()[1]);
  out.is_target = equal(checked_classes(target, table), class_shape(table, x));
  if (out.is_kept) out.is_target = logical_and(out.is_target, out.is_kept);
  return out;
}

// Shares that give every class its part of `smoothing`; samples that do not count have none.
Value smoothed(Value shares, double smoothing, Value is_kept) {
  const Value classes = count(shares, HostValue(1));
  const Value all = shares * (1.0 - smoothing) + smoothing / classes;
  return is_kept ? where(is_kept, all, 0.0) : all;
}

CrossEntropy terms(Builder& b) {
  CrossEntropy out;
  const Value x = b.in("input");
  Value shares = b.in("target");
  if (!x || !shares) return out;
  Value is_kept;
  if (is_categorical(b)) {
    const Chosen chosen = chosen_classes(b);
    if (!chosen.is_target) return out;
    out.counted = chosen.is_target;
    is_kept = chosen.is_kept;
    shares = cast(chosen.is_target, x.dtype());
  } else if (shares.rank() == 0) {
    shares = broadcast_like(shares, x);
  }
  out.weights = class_weights(b, x, shares);
  if (const double smoothing = b.number("label_smoothing"); smoothing > 0.0) {
    if (!core::is_float(shares.dtype())) shares = cast(shares, x.dtype());
    shares = smoothed(shares, smoothing, is_kept);
    out.counted = is_kept;
  }
  out.quantity = out.weights ? shares * out.weights : shares;
  return out;
}

// Of class numbers: the weight of each sample's class, 0 where the sample is ignored.
Value sample_weights(Builder& b) {
  const Value x = b.in("input");
  if (!is_categorical(b) || !x || !b.in("target")) return {};
  const Chosen chosen = chosen_classes(b);
  const Value shares = cast(chosen.is_target, x.dtype());
  const Value weights = class_weights(b, x, shares);
  if (!weights && !chosen.is_kept) return {};
  return sum(weights ? shares * weights : shares, HostValue(1));
}

// log p of each class; `slope` is that of ln in the input, where the input are probabilities.
Continued log_probabilities(Builder& b, const CrossEntropy& t) {
  const Value x = b.in("input");
  const std::string type = input_type(b);
  if (type == "logits") return {ir::apply("log_softmax", {x}, {{"axis", 1}}), {}};
  if (type == "probs") {
    if (!t.quantity || !x) return {};
    return logarithm(b, t.counted ? where(t.counted, x, 1.0) : counting(t.quantity, x));
  }
  if (type == "log_probs") return {x, {}};
  b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "cross_entropy: input_type must be 'logits', 'probs' or 'log_probs', got '{}'",
                    type));
  return {};
}

Value cross_entropy_body(Builder& b) {
  const CrossEntropy t = terms(b);
  const Continued logp = log_probabilities(b, t);
  if (!t.quantity || !logp.value) return {};
  // A class that is not the target counts 0 even where its logarithm is -inf.
  const Value product =
      t.counted ? where(t.counted, logp.value * t.quantity, 0.0) : logp.value * t.quantity;
  return -sum(product, HostValue(1));
}

void cross_entropy_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  const CrossEntropy t = terms(b);
  const Continued logp = log_probabilities(b, t);
  const Value dy = expand_dims(g.dout(), HostValue(1));
  if (!t.quantity || !logp.value || !dy) return;
  const Value dlogp = -(dy * t.quantity);
  const std::string type = input_type(b);
  if (g.wants("input")) {
    if (type == "logits") {
      g.d("input") = dlogp - exp(logp.value) * sum(dlogp, HostValue(1), true);
    } else if (type == "probs") {
      const Value d = dlogp * logp.slope;
      g.d("input") = t.counted ? where(t.counted, d, 0.0) : d;
    } else {
      g.d("input") = dlogp;
    }
  }
  if (g.wants("target")) {
    Value d = -(dy * logp.value);
    if (const double rest = 1.0 - b.number("label_smoothing"); rest < 1.0) d = d * rest;
    g.d("target") = t.weights ? d * t.weights : d;
  }
}

// A case whose target holds class numbers.
Sample numbered(std::vector<int64_t> input, std::vector<int64_t> target, Attrs attrs = {}) {
  return at({{"input", std::move(input)}, {"target", std::move(target)}}, std::move(attrs),
            {"target"});
}

// Terms: input, weights.
core::Status has_weight_for_each_class(infer::Relation& relation) {
  const auto classes = relation.size(0, 1);
  const auto weights = relation.value(1);
  if (!classes || !weights || !weights->is_sequence()) return {};
  const auto given = static_cast<int64_t>(weights->items().size());
  if (*classes == given) return {};
  core::Error error =
      core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                 "'weights' must have one number for each class, got {} for {}", given, *classes);
  error.hint = fmt::format("the classes are axis 1 of 'input': give {} weights", *classes);
  return error;
}

void classes_rule(RuleBuilder& r, Term each) {
  r.shape(r.in("input"), "n c ...");
  r.shape(each, "n ...");
  r.custom({r.in("input"), r.in("weights")}, has_weight_for_each_class);
}

void numbers_rule(RuleBuilder& r) {
  r.shape_or_number(r.in("target"), "n ...");
  r.kind(r.in("target"), kTensorInt);
}

core::Error bad_argument(const std::string& message) {
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "{}", message);
}

void cross_entropy_rule(RuleBuilder& r, Term each) {
  classes_rule(r, each);
  r.kind(each, kFloating);
  threshold_rule(r);
  const auto smoothing = r.known(r.attr("label_smoothing"));
  if (smoothing && !(smoothing->as_number() >= 0.0 && smoothing->as_number() <= 1.0)) {
    r.fail(bad_argument(
        fmt::format("'label_smoothing' must be from 0 to 1, got {}", core::to_string(*smoothing))));
  }
  const auto ignored = r.known(r.attr("ignore_index"));
  const bool ignores = ignored && ignored->is_int();
  r.when_known(r.in("categorical"), [ignores](RuleBuilder& rule, const HostValue& categorical) {
    if (categorical.is_bool() && categorical.as_bool()) {
      numbers_rule(rule);
      return;
    }
    rule.shape_or_number(rule.in("target"), "n c ...");
    if (ignores) rule.fail(bad_argument("'ignore_index' requires class numbers as the target"));
  });
}

constexpr infer::KindSet kIgnored = infer::kScalarInt | infer::kNoneKind;

OpDefBuilder& class_number_cases(OpDefBuilder& block) {
  const HostValue weights = HostValue::list({0.5, 1.0, 2.0});
  return block.with(numbered({2, 3, 4, 5}, {2, 4, 5}))
      .with(numbered({4, 3}, {4}, {{"weights", "auto"}}))
      .with(numbered({4, 3}, {4}, {{"weights", weights}}))
      .with(numbered({9, 3}, {9}, {{"ignore_index", 1}}))
      .with(numbered({9, 3}, {9}, {{"reduction", "mean"}}))
      .with(
          numbered({9, 3}, {9}, {{"weights", weights}, {"ignore_index", 2}, {"reduction", "mean"}}))
      .with(numbered({4, 3, 2}, {4, 2}, {{"weights", weights}, {"reduction", "sum"}}))
      .with(numbered({0, 3}, {0}))
      .rejects(numbered({4, 2}, {4}, {{"weights", weights}}), "for each class, got 3 for 2");
}

void define_cross_entropy(OpFamily& ops) {
  OpDefBuilder block = ops.def("cross_entropy");
  block.python("CrossEntropy")
      .arguments({"input_type", "weights", "input", "target", "robust", "threshold", "categorical",
                  "safe_shapes", "label_smoothing", "ignore_index", "reduction"})
      .doc(
          "Cross entropy of each sample over the classes on axis 1, from logits, probs or "
          "log_probs. categorical: the target holds class numbers, else a share for each class. "
          "weights: a number for each class, or 'auto' for N / (C n_c). A class number that is out "
          "of bounds is an error (on JAX and MLX it counts as the nearest class). A class with the "
          "share 0 counts 0, one that is held impossible inf; robust: the logarithms of probs are "
          "continued below the threshold by their tangents. label_smoothing: what of each target "
          "goes to all classes alike (Szegedy et al., arXiv:1512.00567). "
          "ignore_index: samples of that class number count nothing. The mean is weighted by the "
          "classes of the samples.")
      .formula("-\\sum_c w_c t_c \\ln p_c")
      .input("input", kNumeric)
      .input("target", kTensor)
      .key("weights", false)
      .key("categorical", true)
      .input("threshold", kThreshold, HostValue("MIN_POSITIVE_NORMAL"))
      .key("robust", false)
      .attr("input_type", "logits")
      .choices({"logits", "probs", "log_probs"})
      .attr("safe_shapes", true)
      .attr("label_smoothing", 0.0)
      .attr("ignore_index", HostValue(), kIgnored)
      .connect({"input", "target", "weights", "categorical", "threshold", "robust", "output"})
      .output("output", computed())
      .promote_float({"input"})
      .sample("input", 0.05, 0.95)
      .sample("target", 0.0, 2.0);
  reducible(block, {.shapes = cross_entropy_rule,
                    .body = cross_entropy_body,
                    .gradient = cross_entropy_gradient,
                    .weights = sample_weights});
  for (const char* type : {"logits", "probs", "log_probs"}) {
    block.with(numbered({4, 3}, {4}, {{"input_type", type}}))
        .with(at({{"input", {4, 3}}, {"target", {4, 3}}},
                 {{"input_type", type}, {"categorical", false}}));
  }
  class_number_cases(block)
      .with(numbered({4, 3}, {4}, {{"input_type", "probs"}, {"robust", true}}))
      .with(numbered({4, 3}, {4}, {{"input_type", "probs"}, {"robust", true}, {"threshold", 0.5}}))
      .with(numbered({4, 3}, {4}, {{"label_smoothing", 0.1}}))
      .with(numbered({9, 3}, {9},
                     {{"label_smoothing", 0.25},
                      {"input_type", "probs"},
                      {"weights", HostValue::list({0.5, 1.0, 2.0})},
                      {"ignore_index", 0},
                      {"reduction", "mean"}}))
      .with(at({{"input", {4, 3}}, {"target", {4, 3}}},
               {{"categorical", false}, {"label_smoothing", 0.1}, {"reduction", "mean"}}))
      .rejects(numbered({4, 3}, {4}, {{"label_smoothing", 1.5}}), "must be from 0 to 1")
      .rejects(at({{"input", {4, 3}}, {"target", {4, 3}}},
                  {{"categorical", false}, {"ignore_index", 1}}),
               "requires class numbers");
}

void define_nll(OpFamily& ops) {
  OpDefBuilder block = ops.def("nll_loss");
  block.python("NLLLoss")
      .arguments({"weights", "input", "target", "ignore_index", "reduction"})
      .doc(
          "Negative logarithm of the probability of each sample's class: the input holds "
          "logarithms of probabilities with the classes on axis 1, the target class numbers. "
          "weights and ignore_index as in cross_entropy.")
      .formula("-w_t x_t")
      .input("input", kNumeric)
      .input("target", kTensorInt)
      .key("weights", false)
      .attr("ignore_index", HostValue(), kIgnored)
      .connect({"input", "target", "weights", "output"})
      .output("output", computed())
      .promote_float({"input"})
      .sample("input", -3.0, -0.1)
      .sample("target", 0.0, 2.0)
      .with(numbered({4, 3}, {4}));
  reducible(block,
            {.shapes =
                 [](RuleBuilder& r, Term each) {
                   classes_rule(r, each);
                   numbers_rule(r);
                 },
             .body =
                 [](Builder& b) {
                   return b.call(
                       "cross_entropy", {b.in("input"), b.in("target"), given(b, "weights")},
                       {{"input_type", "log_probs"}, {"ignore_index", b.attr("ignore_index")}});
                 },
             .weights = sample_weights});
  class_number_cases(block);
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
  return -(p * t * logarithm(b, counting(t, x)).value +
           (1.0 - t) * logarithm(b, counting(1.0 - t, 1.0 - x)).value);
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
  const Continued yes = logarithm(b, counting(t, x));
  const Continued no = logarithm(b, counting(1.0 - t, 1.0 - x));
  if (g.wants("input")) g.d("input") = g.dout() * ((1.0 - t) * no.slope - p * t * yes.slope);
  if (g.wants("target")) g.d("target") = g.dout() * (no.value - p * yes.value);
}

void define_binary_cross_entropy(OpFamily& ops) {
  OpDefBuilder block = ops.def("binary_cross_entropy");
  block.python("BinaryCrossEntropy")
      .arguments({"input_type", "pos_weight", "input", "target", "threshold", "robust"})
      .doc(
          "Cross entropy of yes-or-no targets, from logits or probs; pos_weight p scales the "
          "positive targets, 'auto' is (1 - mean t) / mean t. Of probs, what has the share 0 "
          "counts 0, a target that is held impossible inf; robust: logarithms are continued below "
          "the threshold by their tangents.")
      .formula("-p \\, t \\ln x - (1 - t) \\ln(1 - x)")
      .input("input", kNumeric)
      .input("target", kNumeric)
      .key("pos_weight", 1.0)
      .input("threshold", kThreshold, HostValue("MIN_POSITIVE_NORMAL"))
      .key("robust", false)
      .attr("input_type", "logits")
      .choices({"logits", "probs"})
      .attr("safe_shapes", true)
      .output("output", computed())
      .promote_float({"input", "target"})
      .sample("input", 0.1, 0.9)
      .sample("target", 0.0, 1.0);
  reducible(block, {.shapes =
                        [](RuleBuilder& r, Term each) {
                          r.shape(r.in("input"), "...");
                          r.shape_or_number(r.in("target"), "...");
                          r.shape(each, "...");
                          r.kind(each, kFloating);
                          threshold_rule(r);
                        },
                    .body = binary_body,
                    .gradient = binary_gradient})
      .with(at({{"input", {4}}, {"target", {4}}}))
      .with(at({{"input", {4, 2}}, {"target", {4, 2}}}, {{"input_type", "probs"}}))
      .with(at({{"input", {4}}, {"target", {4}}}, {{"pos_weight", 2.0}}))
      .with(at({{"input", {9}}, {"target", {9}}}, {{"pos_weight", "auto"}}, {"target"}))
      .with(at({{"input", {4}}, {"target", {4}}}, {{"input_type", "probs"}, {"robust", true}}))
      .with(at({{"input", {9}}, {"target", {9}}},
               {{"input_type", "probs"}, {"robust", true}, {"threshold", 0.5}}))
      .with(at({{"input", {4, 2}}, {"target", {4, 2}}}, {{"reduction", "mean"}}))
      .with(at({{"input", {4, 2}}, {"target", {4, 2}}},
               {{"input_type", "probs"}, {"reduction", "sum"}}))
      .with(at({{"input", {0}}, {"target", {0}}}));
}

}  // namespace

void define_loss(OpFamily& ops) {
  define_distance_losses(ops);
  define_cross_entropy(ops);
  define_nll(ops);
  define_binary_cross_entropy(ops);
}

}  // namespace mithril::ops

// Normalisations: mean 0 and variance 1 along some axes, then a scale and a shift.
#include "ops/block.h"

namespace mithril::ops {
namespace {

/// A normalised operand, and one over the standard deviation that it was divided by.
struct Normalized {
  Value value, scale;
};

Normalized normalize(Value x, Value mean, Value variance, Operand eps) {
  const Value scale = ir::apply("rsqrt", {ir::apply("add", {variance, std::move(eps)})});
  return {(x - mean) * scale, scale};
}

Value variance(Value x, const HostValue& axis, bool keepdim) {
  return ir::apply("variance", {x},
                   {{"axis", axis}, {"keepdim", HostValue(keepdim)}, {"correction", 0.0}});
}

Normalized normalize_along(Value x, const HostValue& axis, Operand eps) {
  if (!x) return {};
  return normalize(x, mean(x, axis, true), variance(x, axis, true), std::move(eps));
}

// With statistics of the operand itself (Ioffe and Szegedy, arXiv:1502.03167, section 3).
Value through_statistics(Value dy, const Normalized& y, const HostValue& axis) {
  const Value along = y.value * mean(dy * y.value, axis, true);
  return (dy - mean(dy, axis, true) - along) * y.scale;
}

Value scaled(Value y, Value weight, Value bias) {
  if (weight) y = y * weight;
  return bias ? y + bias : y;
}

void define_layer_norm(OpFamily& ops) {
  ops.def("layer_norm")
      .python("LayerNorm")
      .doc(
          "The last axis brought to mean 0 and variance 1, times weight, plus bias; both are "
          "[c] for an input [..., c] (Ba, Kiros, Hinton, arXiv:1607.06450).")
      .formula("\\frac{x - \\bar x}{\\sqrt{\\mathrm{var}(x) + eps}} w + b")
      .input("input", kNumeric)
      .input("eps", infer::kFloating | infer::kScalarFloat, HostValue(1e-5))
      .optional("weight", kFloating, "use_scale")
      .optional("bias", kFloating, "use_bias")
      .attr("use_scale", true)
      .attr("use_bias", true)
      .output("output", computed())
      .promote_float({"input", "weight", "bias"})
      .keys({"input", "eps", "weight", "bias"})
      .connect({"input", "output", "eps", "weight", "bias"})
      .trainable("weight", {Init::Kind::kOnes, "", {}})
      .trainable("bias", {Init::Kind::kZeros, "", {}})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kFloating);
        r.shape(r.in("input"), "... c");
        r.shape(r.out(), "... c");
        if (r.has("weight")) r.shape(r.in("weight"), "c");
        if (r.has("bias")) r.shape(r.in("bias"), "c");
      })
      .compose([](Builder& b) {
        const Normalized y = normalize_along(b.in("input"), HostValue(-1), given(b, "eps"));
        return scaled(y.value, b.in("weight"), b.in("bias"));
      })
      .gradient([](GradBuilder& g) {
        const HostValue last(-1);
        const Normalized y = normalize_along(g.in("input"), last, given(g.builder(), "eps"));
        const Value dy = g.has("weight") ? g.dout() * g.in("weight") : g.dout();
        if (g.wants("input")) g.d("input") = through_statistics(dy, y, last);
        if (g.wants("weight")) g.d("weight") = g.dout() * y.value;
        if (g.wants("bias")) g.d("bias") = g.dout();
      })
      .with(at({{"input", {2, 3, 4}}, {"weight", {4}}, {"bias", {4}}}))
      .with(at({{"input", {5, 4}}, {"weight", {4}}, {"bias", {4}}}))
      .with(at({{"input", {2, 3, 4}}}, {{"use_scale", false}, {"use_bias", false}}))
      .with(at({{"input", {0, 4}}, {"weight", {4}}, {"bias", {4}}}))
      .rejects(at({{"input", {2, 3}}, {"weight", {4}}, {"bias", {4}}}), "layer_norm");
}

bool is_training(const Builder& b) {
  const HostValue& mode = b.attr("mode");
  return mode.is_string() && mode.as_string() == "train";
}

// [C] beside a batch of images.
Value per_channel(Value x) {
  if (!x) return {};
  return reshape(x, HostValue::tuple({1, size_value(x.shape()[0]), 1, 1}));
}

HostValue image_axes() { return HostValue::ints({0, 2, 3}); }

Normalized normalize_channels(Builder& b) {
  const Value x = b.in("input");
  const Operand eps = b.attr("eps");
  if (is_training(b)) return normalize_along(x, image_axes(), eps);
  const auto stored = [&](const char* name) { return per_channel(cast(b.in(name), x.dtype())); };
  return normalize(x, stored("running_mean"), stored("running_var"), eps);
}

std::vector<Value> batch_norm_body(Builder& b) {
  const Value x = b.in("input");
  const Value y = scaled(normalize_channels(b).value, b.in("weight"), b.in("bias"));
  const Value old_mean = b.in("running_mean");
  const Value old_variance = b.in("running_var");
  if (!is_training(b)) return {y, old_mean, old_variance};
  const double momentum = b.number("momentum");
  const Value n = count(x, image_axes());
  const Value unbiased = variance(x, image_axes(), false) * (n / (n - 1.0));
  const auto moved = [&](Value old, Value now) {
    return old * (1.0 - momentum) + cast(now, old.dtype()) * momentum;
  };
  return {y, moved(old_mean, mean(x, image_axes())), moved(old_variance, unbiased)};
}

void batch_norm_gradient(GradBuilder& g) {
  const Normalized y = normalize_channels(g.builder());
  const Value dy = g.has("weight") ? g.dout() * g.in("weight") : g.dout();
  if (g.wants("input")) {
    g.d("input") =
        is_training(g.builder()) ? through_statistics(dy, y, image_axes()) : dy * y.scale;
  }
  if (g.wants("weight")) g.d("weight") = g.dout() * y.value;
  if (g.wants("bias")) g.d("bias") = g.dout();
  if (is_training(g.builder())) return;
  const Value by_scale = dy * y.scale;
  if (g.wants("running_mean")) g.d("running_mean") = -sum(by_scale, image_axes());
  if (g.wants("running_var")) {
    g.d("running_var") = sum(by_scale * y.value * y.scale, image_axes()) * -0.5;
  }
}

void define_batch_norm(OpFamily& ops) {
  const Shapes shapes = {{"input", {3, 4, 2, 5}},
                         {"running_mean", {4}},
                         {"running_var", {4}},
                         {"weight", {1, 4, 1, 1}},
                         {"bias", {1, 4, 1, 1}}};
  ops.def("batch_norm2d")
      .python("BatchNorm2D", {"BatchNorm2d"})
      .alias({"batch_norm"})
      .doc(
          "Channels of images [n, c, h, w] brought to mean 0 and variance 1, times weight, plus "
          "bias (both [1, c, 1, 1]). mode 'train': by the batch's own statistics, and the running "
          "ones move by momentum (with n / (n - 1) for the variance); 'eval': by the running "
          "ones; none: as the model is compiled (Ioffe and Szegedy, arXiv:1502.03167).")
      .formula("\\frac{x - \\mu}{\\sqrt{\\sigma^2 + eps}} w + b")
      .input("input", kTensor)
      .input("running_mean", kTensor)
      .input("running_var", kTensor)
      .optional("weight", kFloating, "use_scale")
      .optional("bias", kFloating, "use_bias")
      .attr("num_features", HostValue(), kWidth)
      .attr("use_scale", true)
      .attr("use_bias", true)
      .attr("eps", 1e-5)
      .attr("momentum", 0.1)
      .attr("mode", HostValue(), infer::kStrKind | infer::kNoneKind)
      .choices({"train", "eval"})
      .output("output", computed())
      .output("new_running_mean", same_as("running_mean"))
      .output("new_running_var", same_as("running_var"))
      .promote_float({"input", "weight", "bias"})
      .trainable("weight", {Init::Kind::kOnes, "", {}})
      .trainable("bias", {Init::Kind::kZeros, "", {}})
      .state("running_mean", "new_running_mean", 0.0)
      .state("running_var", "new_running_var", 1.0)
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "n c h w");
        r.shape(r.out(), "n c h w");
        for (const char* name : {"running_mean", "running_var"}) {
          r.kind(r.in(name), kFloating);
          r.shape(r.in(name), "c");
          r.shape(r.out(std::string("new_") + name), "c");
        }
        if (r.has("weight")) r.shape(r.in("weight"), "1 c 1 1");
        if (r.has("bias")) r.shape(r.in("bias"), "1 c 1 1");
        const auto channels = r.known(r.attr("num_features"));
        if (channels && channels->is_int()) r.equal(r.dim("c"), channels->as_int());
      })
      .compose_many(batch_norm_body)
      .gradient(batch_norm_gradient)
      .sample("running_var", 0.5, 2.0)
      .with(at(shapes, {{"mode", "eval"}}))
      .with(at(shapes, {{"mode", "train"}}))
      .with(at({shapes.begin(), shapes.begin() + 3},
               {{"mode", "train"}, {"use_scale", false}, {"use_bias", false}}));
}

}  // namespace

void define_norm(OpFamily& ops) {
  define_layer_norm(ops);
  define_batch_norm(ops);
}

}  // namespace mithril::ops

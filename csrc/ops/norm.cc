// Normalisations: mean 0 and variance 1 along some axes, then a scale and a shift.
#include "ops/norm.h"

#include "infer/relation.h"

namespace mithril::ops {

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

void state_per_channel(RuleBuilder& r, const char* name, int rank) {
  std::vector<infer::DimTerm> dims(static_cast<size_t>(rank), r.dim(1));
  dims[1] = r.dim("c");
  if (r.has(name)) r.shape(r.in(name), std::span<const infer::DimTerm>(dims));
}

namespace {

void define_layer_norm(OpFamily& ops) {
  ops.def("layer_norm")
      .python("LayerNorm")
      .doc(
          "The last axis brought to mean 0 and variance 1, times weight, plus bias; both are "
          "[c] for an input [..., c] (Ba, Kiros, Hinton, arXiv:1607.06450).")
      .formula("\\frac{x - \\bar x}{\\sqrt{\\mathrm{var}(x) + eps}} w + b")
      .input("input", kNumeric)
      .input("eps", infer::kFloating | infer::kScalarFloat, HostValue(1e-5))
      .at_least("eps", 0.0)
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

// The mean square is brought to 1, and the mean is left where it is.
void define_rms_norm(OpFamily& ops) {
  ops.def("rms_norm")
      .python("RMSNorm")
      .doc(
          "The last axis divided by its root mean square, times weight [c] for an input [..., c] "
          "(Zhang and Sennrich, arXiv:1910.07467).")
      .formula("\\frac{x}{\\sqrt{\\frac{1}{n} \\sum_i x_i^2 + eps}} w")
      .input("input", kNumeric)
      .input("eps", infer::kFloating | infer::kScalarFloat, HostValue(1e-6))
      .at_least("eps", 0.0)
      .optional("weight", kFloating, "use_scale")
      .attr("use_scale", true)
      .output("output", computed())
      .promote_float({"input", "weight"})
      .keys({"input", "eps", "weight"})
      .connect({"input", "output", "eps", "weight"})
      .trainable("weight", {Init::Kind::kOnes, "", {}})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kFloating);
        r.shape(r.in("input"), "... c");
        r.shape(r.out(), "... c");
        if (r.has("weight")) r.shape(r.in("weight"), "c");
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const Value energy = mean(square(x), HostValue(-1), true);
        const Value scale = ir::apply("rsqrt", {ir::apply("add", {energy, given(b, "eps")})});
        return scaled(x * scale, b.in("weight"), Value());
      })
      .with(at({{"input", {2, 3, 4}}, {"weight", {4}}}))
      .with(at({{"input", {5}}, {"weight", {5}}}))
      .with(at({{"input", {5, 4}}}, {{"use_scale", false}}))
      .with(at({{"input", {0, 4}}, {"weight", {4}}}))
      .rejects(at({{"input", {2, 3}}, {"weight", {4}}}), "rms_norm");
}

// Terms: input, num_groups.
core::Status groups_divide_channels(infer::Relation& relation) {
  const auto groups = relation.value(1);
  if (!groups || !groups->is_int()) return {};
  const auto refuse = [&](const std::string& got) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "'num_groups' must be positive and divide the channels, got {}", got);
  };
  if (groups->as_int() < 1) return refuse(core::to_string(*groups));
  const auto rank = relation.rank(0);
  const auto channels = rank && *rank > 1 ? relation.size(0, 1) : std::nullopt;
  if (channels && *channels % groups->as_int() != 0) {
    return refuse(fmt::format("{} and {} channels", groups->as_int(), *channels));
  }
  return {};
}

void grouped_rule(RuleBuilder& r) {
  r.kind(r.out(), kFloating);
  r.same_shape(r.out(), r.in("input"));
  r.equal(r.dim("c"), r.dim(r.in("input"), 1));
  for (const char* name : {"weight", "bias"}) {
    if (r.has(name)) r.shape(r.in(name), "1 c _...");
  }
  r.when_rank_known(r.in("input"), [](RuleBuilder& rule, int rank) {
    if (rank < 2) return;  // the size of axis 1 was refused
    for (const char* name : {"weight", "bias"}) state_per_channel(rule, name, rank);
  });
}

// Normalised over each of `groups` parts of a sample's elements.
Value normalize_parts(Builder& b, infer::Dim groups) {
  const Value x = b.in("input");
  if (!x) return {};
  const Shape shape = x.shape();
  infer::DimTable& dims = b.graph().dims;
  const auto size = dims.divide_exact(dims.product(std::span(shape).subspan(1)), groups);
  if (!size) {
    unsupported(b, b.op().name + ": the channels must be known when the model is compiled");
    return {};
  }
  const Value rows = reshape(x, shape_value({shape[0], groups, *size}));
  const Value y = b.call("layer_norm", {rows, given(b, "eps")},
                         {{"use_scale", HostValue(false)}, {"use_bias", HostValue(false)}});
  return scaled(reshape(y, shape_value(shape)), b.in("weight"), b.in("bias"));
}

// What group_norm and instance_norm have in common.
OpDefBuilder& grouped(OpDefBuilder& block) {
  return block.input("input", kNumeric)
      .input("eps", infer::kFloating | infer::kScalarFloat, HostValue(1e-5))
      .at_least("eps", 0.0)
      .optional("weight", kFloating, "use_scale")
      .optional("bias", kFloating, "use_bias")
      .attr("use_scale", true)
      .attr("use_bias", true)
      .output("output", computed())
      .promote_float({"input", "weight", "bias"})
      .keys({"input", "weight", "bias", "eps"})
      .connect({"input", "output", "eps", "weight", "bias"})
      .trainable("weight", {Init::Kind::kOnes, "", {}})
      .trainable("bias", {Init::Kind::kZeros, "", {}});
}

void define_grouped_norms(OpFamily& ops) {
  const Shapes images = {{"input", {2, 4, 3, 5}}, {"weight", {1, 4, 1, 1}}, {"bias", {1, 4, 1, 1}}};
  const Shapes sequences = {{"input", {2, 6, 3}}, {"weight", {1, 6, 1}}, {"bias", {1, 6, 1}}};
  grouped(ops.def("group_norm")
              .python("GroupNorm")
              .doc("The channels of [n, c, ...] in num_groups parts, each brought to mean 0 and "
                   "variance 1 in each sample, times weight, plus bias (both [1, c, 1, ...]; Wu "
                   "and He, arXiv:1803.08494).")
              .formula("\\frac{x - \\bar x}{\\sqrt{\\mathrm{var}(x) + eps}} w + b")
              .attr("num_groups", 32))
      .rule([](RuleBuilder& r) {
        grouped_rule(r);
        r.custom({r.in("input"), r.attr("num_groups")}, groups_divide_channels);
      })
      .needs_size("input", 1)
      .compose([](Builder& b) { return normalize_parts(b, b.integer_attr("num_groups")); })
      .with(at(images, {{"num_groups", 2}}))
      .with(at(sequences, {{"num_groups", 3}}))
      .with(at({{"input", {3, 32}}}, {{"use_scale", false}, {"use_bias", false}}))
      .with(at({{"input", {0, 4, 2}}, {"weight", {1, 4, 1}}},
               {{"num_groups", 4}, {"use_bias", false}}))
      .rejects(at(images, {{"num_groups", 3}}), "must be positive and divide")
      .rejects(at(images, {{"num_groups", 0}}), "must be positive and divide");

  grouped(ops.def("instance_norm")
              .python("InstanceNorm")
              .doc("Each channel of each sample of [n, c, ...] brought to mean 0 and variance 1, "
                   "times weight, plus bias (both [1, c, 1, ...]; Ulyanov, Vedaldi, Lempitsky, "
                   "arXiv:1607.08022).")
              .formula("\\frac{x - \\bar x}{\\sqrt{\\mathrm{var}(x) + eps}} w + b"))
      .rule(grouped_rule)
      .compose([](Builder& b) {
        const Value x = b.in("input");
        return x ? normalize_parts(b, x.shape()[1]) : Value();
      })
      .with(at(images))
      .with(at(sequences))
      .with(at({{"input", {2, 3, 2, 3, 2}}}, {{"use_scale", false}, {"use_bias", false}}))
      .rejects(at({{"input", {4}}}, {{"use_scale", false}, {"use_bias", false}}), "input");
}

}  // namespace

void define_norm(OpFamily& ops) {
  define_layer_norm(ops);
  define_rms_norm(ops);
  define_grouped_norms(ops);
  define_batch_norms(ops);
}

}  // namespace mithril::ops

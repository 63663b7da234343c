// Normalisation over the batch, with running statistics.
#include "ops/norm.h"

namespace mithril::ops {
namespace {

bool is_training(const Builder& b) {
  const HostValue& mode = b.attr("mode");
  return mode.is_string() && mode.as_string() == "train";
}

// [c] beside a batch of samples of that rank.
Value per_channel(Value x, size_t rank) {
  if (!x) return {};
  HostValue::Tuple shape(rank, HostValue(1));
  shape[1] = size_value(x.shape()[0]);
  return reshape(x, HostValue::tuple(std::move(shape)));
}

// All but that of the channels.
HostValue sample_axes(size_t rank) {
  std::vector<int64_t> axes{0};
  for (size_t i = 2; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  return HostValue::ints(axes);
}

struct Statistics {
  Value mean, variance;  // beside the input
};

Statistics statistics(Builder& b) {
  const Value x = b.in("input");
  if (!x) return {};
  if (is_training(b)) {
    const HostValue axes = sample_axes(x.rank());
    return {mean(x, axes, true), variance(x, axes, true)};
  }
  const auto stored = [&](const char* name) {
    return per_channel(cast(b.in(name), x.dtype()), x.rank());
  };
  return {stored("running_mean"), stored("running_var")};
}

Normalized normalize_channels(Builder& b, const Statistics& s) {
  return s.mean ? normalize(b.in("input"), s.mean, s.variance, b.attr("eps")) : Normalized{};
}

// Counts the values that a channel has.
infer::Dim sample_count(Value x) {
  infer::DimTable& dims = x.builder->graph().dims;
  infer::Dim n = x.shape()[0];
  for (size_t i = 2; i < x.rank(); ++i) n = dims.mul(n, x.shape()[i]);
  return n;
}

// n / (n - 1), for the running variance; 1 where a batch whose size is open at compile has one.
Value unbiased(Value x) {
  const Value n = count(x, sample_axes(x.rank()));
  const bool many = sample_count(x).known();
  return n / (many ? n - 1.0 : maximum(n - 1.0, 1.0));
}

// Tells whether a channel of the batch is a single value, as far as that is known.
bool refuses_single_values(Builder& b, Value x) {
  const infer::Dim n = sample_count(x);
  if (!is_training(b) || !n.known() || n.value() != 1) return false;
  core::Error error = core::fail(
      core::ErrorKind::kShape, core::Code::kShapeConflict,
      "{}: training requires more than one value for each channel, got one", b.op().name);
  error.hint = "give larger batches, or compile with mode='eval'";
  b.fail(std::move(error));
  return true;
}

std::vector<Value> batch_norm_body(Builder& b) {
  const Value x = b.in("input");
  if (x && refuses_single_values(b, x)) return {};
  const Statistics now = statistics(b);
  const Value y = scaled(normalize_channels(b, now).value, b.in("weight"), b.in("bias"));
  const Value old_mean = b.in("running_mean");
  const Value old_variance = b.in("running_var");
  if (!is_training(b)) return {y, old_mean, old_variance};
  const double momentum = b.number("momentum");
  const Value factor = unbiased(x);
  const auto moved = [&](Value old, Value to) {
    return old * (1.0 - momentum) + cast(reshape_like(to, old), old.dtype()) * momentum;
  };
  return {y, moved(old_mean, now.mean), moved(old_variance, now.variance * factor)};
}

void batch_norm_gradient(GradBuilder& g) {
  const HostValue axes = sample_axes(g.in("input").rank());
  const Normalized y = normalize_channels(g.builder(), statistics(g.builder()));
  const bool trains = is_training(g.builder());
  // Weights are the same wherever statistics are taken, so these sums serve all gradients.
  Value dx = trains ? through_statistics(g.dout(), y, axes) : g.dout() * y.scale;
  if (g.has("weight")) dx = dx * g.in("weight");
  if (g.wants("input")) g.d("input") = dx;
  if (g.wants("weight")) g.d("weight") = sum(g.dout() * y.value, axes, true);
  if (g.wants("bias")) g.d("bias") = sum(g.dout(), axes, true);
  if (trains) return;
  if (g.wants("running_mean")) g.d("running_mean") = -sum(dx, axes);
  if (g.wants("running_var")) g.d("running_var") = sum(dx * y.value * y.scale, axes) * -0.5;
}

// What differs between the layers.
struct Layer {
  const char* name;
  const char* python;
  const char* alias;
  const char* samples;  // "images [n, c, h, w]"
  int least_rank, most_rank;
  std::vector<int64_t> input;  // of a test
};

void layer_rule(RuleBuilder& r, const Layer& layer) {
  r.same_shape(r.out(), r.in("input"));
  r.equal(r.dim("c"), r.dim(r.in("input"), 1));
  for (const char* name : {"running_mean", "running_var"}) {
    r.kind(r.in(name), kFloating);
    r.shape(r.in(name), "c");
    r.shape(r.out(std::string("new_") + name), "c");
  }
  const auto per_channel = [](RuleBuilder& rule, int rank) {
    for (const char* name : {"weight", "bias"}) state_per_channel(rule, name, rank);
  };
  if (layer.least_rank == layer.most_rank) {
    r.shape(r.in("input"), layer.most_rank == 4 ? "n c h w" : "n c d h w");
    per_channel(r, layer.most_rank);
  } else {
    r.when_rank_known(r.in("input"), [=, &layer](RuleBuilder& rule, int rank) {
      if (rank <= layer.most_rank) return per_channel(rule, rank);
      rule.fail(core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                           "'input' must have {} or {} dimensions, got {}", layer.least_rank,
                           layer.most_rank, rank));
    });
  }
  const auto channels = r.known(r.attr("num_features"));
  if (channels && channels->is_int()) r.equal(r.dim("c"), channels->as_int());
}

OpDefBuilder& layer_cases(OpDefBuilder& block, const Layer& layer) {
  std::vector<int64_t> each(layer.input.size(), 1);
  each[1] = layer.input[1];
  const Shapes shapes = {{"input", layer.input},
                         {"running_mean", {each[1]}},
                         {"running_var", {each[1]}},
                         {"weight", each},
                         {"bias", each}};
  return block.sample("running_var", 0.5, 2.0)
      .with(at(shapes, {{"mode", "eval"}}))
      .with(at(shapes, {{"mode", "train"}}))
      .with(at({shapes.begin(), shapes.begin() + 3},
               {{"mode", "train"}, {"use_scale", false}, {"use_bias", false}}))
      .rejects(at({{"input", {2, 3, 2, 2, 2, 2}}, {"running_mean", {3}}, {"running_var", {3}}},
                  {{"mode", "eval"}, {"use_scale", false}, {"use_bias", false}}),
               "input");
}

void define_batch_norm(OpFamily& ops, const Layer& layer) {
  OpDefBuilder block = ops.def(layer.name);
  block.python(layer.python, {layer.alias})
      .doc("Channels of " + std::string(layer.samples) +
           " brought to mean 0 and variance 1, times weight, plus bias (both [1, c, 1, ...]). "
           "mode 'train' (or inference=False): by the batch's own statistics, and the running ones "
           "move by momentum (with n / (n - 1) for the variance); 'eval' (inference=True): by the "
           "running ones; none: as the model is compiled (Ioffe and Szegedy, arXiv:1502.03167).")
      .formula("\\frac{x - \\mu}{\\sqrt{\\sigma^2 + eps}} w + b")
      .arguments({"num_features", "use_scale", "use_bias", "eps", "momentum", "inference"})
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
      .at_least("eps", 0.0)
      .within("momentum", 0.0, 1.0)
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
      .rule([&layer](RuleBuilder& r) { layer_rule(r, layer); })
      .compose_many(batch_norm_body)
      .gradient(batch_norm_gradient);
  if (layer.most_rank == 4) block.alias({"batch_norm"});
  layer_cases(block, layer);
  if (layer.least_rank != layer.most_rank) {
    block.with(at(
        {{"input", {3, 4, 5}}, {"running_mean", {4}}, {"running_var", {4}}, {"weight", {1, 4, 1}}},
        {{"mode", "train"}, {"use_bias", false}}));
  }
}

}  // namespace

void define_batch_norms(OpFamily& ops) {
  static const Layer kLayers[] = {
      {"batch_norm1d",
       "BatchNorm1D",
       "BatchNorm1d",
       "samples [n, c] or sequences [n, c, l]",
       2,
       3,
       {5, 4}},
      {"batch_norm2d", "BatchNorm2D", "BatchNorm2d", "images [n, c, h, w]", 4, 4, {3, 4, 2, 5}},
      {"batch_norm3d",
       "BatchNorm3D",
       "BatchNorm3d",
       "volumes [n, c, d, h, w]",
       5,
       5,
       {2, 3, 2, 3, 2}},
  };
  for (const Layer& layer : kLayers) define_batch_norm(ops, layer);
}

}  // namespace mithril::ops

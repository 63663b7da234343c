// Attention, and what tells it of places.
#include <cmath>
#include <limits>

#include "core/tensor_data.h"
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

bool flag(const Builder& b, std::string_view name) {
  const HostValue& value = b.attr(name);
  return value.is_bool() && value.as_bool();
}

// True where a query may look: at its own place and before.
Value causal_mask(Value scores) {
  Builder& b = *scores.builder;
  const auto places = [&](size_t axis, int64_t across) {
    const HostValue size = size_value(scores.shape()[scores.rank() - 2 + axis]);
    return expand_dims(b.call("arange", {}, {{"stop", size}}), HostValue(across));
  };
  return greater_equal(places(0, 1), places(1, 0));
}

Value scale_of(Builder& b, Value query) {
  if (b.has("scale")) return cast(b.in("scale"), query.dtype());
  const HostValue& scale = b.attr("scale");
  if (scale.is_int() || scale.is_double()) return b.scalar(scale.as_number(), query.dtype());
  return ir::apply("rsqrt", {count(query, HostValue(-1))});
}

/// The weights with which each query reads the values, and the scale of the scores.
struct Weights {
  Value weights, scale;
};

Weights weights_of(Builder& b) {
  const Value query = b.in("query");
  const Value key = b.in("key");
  if (!query || !key) return {};
  const Value scale = scale_of(b, query);
  Value scores = matmul(query, swap_axes(key, -1, -2)) * scale;
  if (!scores) return {};
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (flag(b, "is_causal")) scores = where(causal_mask(scores), scores, kNever);
  if (b.has("attn_mask")) {
    const Value mask = b.in("attn_mask");
    scores = mask.dtype() == DType::kBool ? where(mask, scores, kNever) : scores + mask;
  }
  return {ir::apply("softmax", {scores}, {{"axis", -1}}), scale};
}

bool drops_out(Builder& b) {
  const HostValue& p = b.attr("dropout_p");
  const bool some = b.has("dropout_p") || (!p.is_none() && p.as_number() != 0.0);
  if (some) unsupported(b, b.op().name + ": dropout_p must be 0: put a dropout behind it");
  return some;
}

void attention_gradient(GradBuilder& g) {
  if (drops_out(g.builder())) return;
  const auto [p, scale] = weights_of(g.builder());
  if (!p) return;
  const Value dy = g.dout();
  if (g.wants("value")) g.d("value") = matmul(swap_axes(p, -1, -2), dy);
  const Value dp = p * matmul(dy, swap_axes(g.in("value"), -1, -2));
  const Value ds = dp - p * sum(dp, HostValue(-1), true);
  if (g.wants("query")) g.d("query") = matmul(ds, g.in("key")) * scale;
  if (g.wants("key")) g.d("key") = matmul(swap_axes(ds, -1, -2), g.in("query")) * scale;
  if (g.wants("attn_mask")) g.d("attn_mask") = ds;
}

// Sines and cosines of rising wave lengths, in float64: at place p the angle of column c is
// p / 10000^(2 floor(c / 2) / width), which float32 cannot hold at far places.
std::shared_ptr<const core::TensorData> waves(int64_t places, int64_t width, DType dtype) {
  core::TensorData data;
  data.dtype = dtype;
  data.shape = {places, width};
  std::vector<double> rates;
  for (int64_t c = 0; c < width; ++c) {
    rates.push_back(
        std::pow(10000.0, -static_cast<double>(c - c % 2) / static_cast<double>(width)));
  }
  for (int64_t p = 0; p < places; ++p) {
    for (int64_t c = 0; c < width; ++c) {
      const double angle = static_cast<double>(p) * rates[static_cast<size_t>(c)];
      core::append_element(data, HostValue(c % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  }
  return std::make_shared<const core::TensorData>(std::move(data));
}

// Terms: input, hidden_dim, max_len.
core::Status relate_positions(infer::Relation& relation) {
  const auto rank = relation.rank(0);
  const auto most = relation.value(2);
  if (!rank || !most) return {};
  const auto places = relation.size(0, *rank - 2);
  if (!places || *places <= most->as_int()) return {};
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "the second to last axis must have at most max_len = {} places, got {}",
                    most->as_int(), *places);
}

void define_positions(OpFamily& ops) {
  ops.def("positional_encoding")
      .python("PositionalEncoding")
      .doc(
          "The operand [..., places, hidden_dim] plus sines (even columns) and cosines (odd ones) "
          "of each place, at most max_len places (Vaswani et al., arXiv:1706.03762).")
      .formula("x_{p,c} + \\sin(p / 10000^{c / d}), \\cos(p / 10000^{(c - 1) / d})")
      .input("input", kTensor)
      .attr("hidden_dim", infer::kScalarInt)
      .attr("max_len", 5000)
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... l d");
        r.shape(r.out(), "... l d");
        r.equal(r.dim("d"), r.dim(r.attr("hidden_dim")));
        r.custom({r.in("input"), r.attr("hidden_dim"), r.attr("max_len")}, relate_positions);
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const infer::Dim places = x.shape()[x.rank() - 2];
        const int64_t most = places.known() ? places.value() : b.integer_attr("max_len");
        const Value table = b.constant(waves(most, b.integer_attr("hidden_dim"), x.dtype()));
        return x + (places.known() ? table : part(table, 0, infer::Dim(0), places));
      })
      .with(at({{"input", {2, 5, 4}}}, {{"hidden_dim", 4}}))
      .with(at({{"input", {7, 3}}}, {{"hidden_dim", 3}, {"max_len", 7}}))
      .with(at({{"input", {0, 4}}}, {{"hidden_dim", 4}}))
      .rejects(at({{"input", {8, 4}}}, {{"hidden_dim", 4}, {"max_len", 7}}), "at most max_len")
      .rejects(at({{"input", {8, 4}}}, {{"hidden_dim", 6}}), "positional_encoding");
}

}  // namespace

void define_attention(OpFamily& ops) {
  ops.def("scaled_dot_product_attention")
      .python("ScaledDotProduct")
      .arguments({"is_causal", "scale", "dropout_p", "use_attn_mask", "query", "key", "value",
                  "attn_mask"})
      .doc(
          "Each query's mean of the values, weighted by softmax of its products with the keys, "
          "scaled (none: by 1 / sqrt(d)). is_causal: only places up to its own; attn_mask: false "
          "places are left out, or numbers are added (Vaswani et al., arXiv:1706.03762).")
      .formula("\\mathrm{softmax}(Q K^T \\cdot scale) V")
      .input("query", kNumeric)
      .input("key", kNumeric)
      .input("value", kNumeric)
      .key("dropout_p", 0.0)
      .optional("attn_mask", kTensor, "use_attn_mask")
      .key("is_causal", true)
      .key("scale", HostValue())
      .attr("use_attn_mask", false)
      .output("output", computed())
      .promote_float({"query", "key", "value"})
      .keys({"query", "key", "value", "dropout_p", "attn_mask", "is_causal", "scale"})
      .connect({"query", "key", "value", "dropout_p", "is_causal", "scale", "output", "attn_mask"})
      .cin({"query"})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("query"), "... l e");
        r.shape(r.in("key"), "... s e");
        r.shape(r.in("value"), "... s v");
        r.shape(r.out(), "... l v");
        if (!r.has("attn_mask")) return;
        const Term scores = r.fresh(kTensor);
        r.shape(scores, "... l s");
        r.broadcast(scores, {scores, r.in("attn_mask")});
      })
      .compose([](Builder& b) {
        if (drops_out(b)) return Value();
        return matmul(weights_of(b).weights, b.in("value"));
      })
      .gradient(attention_gradient)
      .with(at({{"query", {2, 3, 4}}, {"key", {2, 3, 4}}, {"value", {2, 3, 5}}}))
      .with(at({{"query", {2, 1, 3, 4}}, {"key", {2, 1, 6, 4}}, {"value", {2, 1, 6, 5}}},
               {{"is_causal", false}}))
      .with(at({{"query", {3, 4}}, {"key", {6, 4}}, {"value", {6, 5}}, {"attn_mask", {3, 6}}},
               {{"is_causal", false}, {"use_attn_mask", true}, {"scale", 0.5}}));
  define_positions(ops);
}

}  // namespace mithril::ops

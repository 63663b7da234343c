#include "ops/attention_formula.h"

#include <limits>

#include "ops/attention.h"
#include "ops/broadcast.h"

namespace mithril::ops {
namespace {

// True where a query may look: at its own place and before.
Value causal_mask(Builder& b, Value scores) {
  const infer::Dim queries = scores.shape()[scores.rank() - 2];
  const bool is_first = b.op().input_index("offset") < 0 || known_offset(b) == 0;
  const auto places = [&](size_t axis, int64_t across) {
    const HostValue size = size_value(scores.shape()[scores.rank() - 2 + axis]);
    return expand_dims(b.call("arange", {}, {{"stop", size}}), HostValue(across));
  };
  if (is_first) return greater_equal(places(0, 1), places(1, 0));
  const Value rows = expand_dims(places_from_offset(b, queries), HostValue(1));
  const Value columns = expand_dims(range(b, scores.shape().back()), HostValue(0));
  return greater_equal(rows, columns);
}

Value scale_of(Builder& b, Value query) {
  if (has_operand(b, "scale")) return cast(b.in("scale"), query.dtype());
  const HostValue& scale = b.attr("scale");
  if (scale.is_int() || scale.is_double()) return b.scalar(scale.as_number(), query.dtype());
  return ir::apply("rsqrt", {count(query, HostValue(-1))});
}

bool shares_heads(const Builder& b, Value x, Value key) {
  if (!flag(b, "enable_gqa")) return false;
  return x.shape()[x.rank() - 3] != key.shape()[key.rank() - 3];
}

// [..., h, l, e] as [..., k, h / k * l, e]: the queries that read the same one of the k heads of
// `key` stand below each other, so that one product serves them and nothing is repeated.
Value by_key_head(const Builder& b, Value x, Value key) {
  if (!x || !key || !shares_heads(b, x, key)) return x;
  infer::DimTable& dims = x.builder->graph().dims;
  Shape shape = x.shape();
  const size_t heads = x.rank() - 3;
  const infer::Dim shared = key.shape()[heads];
  shape[heads + 1] = dims.mul(dims.floor_div(shape[heads], shared), shape[heads + 1]);
  shape[heads] = shared;
  return reshape(x, shape_value(shape));
}

// The same backwards: with all axes but the last one as those of `like`.
Value by_query_head(const Builder& b, Value x, Value like) {
  if (!x || !like || !flag(b, "enable_gqa") ||
      x.shape()[x.rank() - 3] == like.shape()[x.rank() - 3]) {
    return x;
  }
  Shape shape = like.shape();
  shape.back() = x.shape().back();
  return reshape(x, shape_value(shape));
}

// A mask or a bias beside the scores; in their shape where its open sizes may differ from theirs.
Value beside(Value x, Value scores) {
  if (!x || !scores) return x;
  const Shape &own = x.shape(), &all = scores.shape();
  const size_t front = all.size() - own.size();
  bool fits = true;
  for (size_t i = 0; i < own.size(); ++i) {
    fits = fits && (own[i] == infer::Dim(1) || own[i] == all[front + i]);
  }
  return fits ? x : broadcast_like(x, scores);
}

// What the shapes are called; rules keep the texts.
struct Templates {
  const char *query, *key, *value, *output, *scores;
};

}  // namespace

bool has_operand(const Builder& b, std::string_view name) {
  return b.op().input_index(name) >= 0 && b.has(name);
}

Weights weights_of(Builder& b) {
  const Value query = b.in("query");
  const Value key = b.in("key");
  if (!query || !key) return {};
  const Value scale = scale_of(b, query);
  const Value products = matmul(by_key_head(b, query, key), swap_axes(key, -1, -2));
  Value scores = by_query_head(b, products, query) * scale;
  if (!scores) return {};
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (has_operand(b, "bias")) scores = scores + beside(cast(b.in("bias"), scores.dtype()), scores);
  if (flag(b, "is_causal")) scores = where(causal_mask(b, scores), scores, kNever);
  if (has_operand(b, "attn_mask")) {
    const Value mask = beside(b.in("attn_mask"), scores);
    scores = mask.dtype() == DType::kBool ? where(mask, scores, kNever)
                                          : scores + cast(mask, scores.dtype());
  }
  return {ir::apply("softmax", {scores}, {{"axis", -1}}), scores, scale};
}

Value mean_of_values(Builder& b, Value weights) {
  const Value value = b.in("value");
  return by_query_head(b, matmul(by_key_head(b, weights, value), value), b.in("query"));
}

AttentionGradients gradients_by_weights(Builder& b, Value output_gradient) {
  const auto [weights, scores, scale] = weights_of(b);
  if (!weights || !output_gradient) return {};
  const Value query = b.in("query"), key = b.in("key"), value = b.in("value");
  const Value dy = by_key_head(b, output_gradient, key);
  const Value p = by_key_head(b, weights, key);
  const Value dp = p * matmul(dy, swap_axes(value, -1, -2));
  const Value ds = dp - p * sum(dp, HostValue(-1), true);
  AttentionGradients out;
  out.query = by_query_head(b, matmul(ds, key), query) * scale;
  out.key = matmul(swap_axes(ds, -1, -2), by_key_head(b, query, key)) * scale;
  out.value = matmul(swap_axes(p, -1, -2), dy);
  out.scores = by_query_head(b, ds, query);
  return out;
}

bool has_shared_heads(RuleBuilder& r) {
  const auto shares = r.known(r.attr("enable_gqa"));
  return shares && shares->is_bool() && shares->as_bool();
}

void attention_rule(RuleBuilder& r, Term output) {
  constexpr Templates kEqual{"... l e", "... s e", "... s v", "... l v", "... l s"};
  constexpr Templates kShared{"... h l e", "... k s e", "... k s v", "... h l v", "... h l s"};
  const bool is_shared = has_shared_heads(r);
  const Templates& of = is_shared ? kShared : kEqual;
  r.shape(r.in("query"), of.query);
  r.shape(r.in("key"), of.key);
  r.shape(r.in("value"), of.value);
  r.shape(output, of.output);
  if (is_shared) r.divide(r.dim("h"), r.dim("k"));
  for (const char* name : {"attn_mask", "bias"}) {
    if (!r.has(name)) continue;
    const Term scores = r.fresh(kTensor);
    r.shape(scores, of.scores);
    state_broadcasts_to(r, r.in(name), scores);
  }
}

ir::Attrs common_attrs(const Builder& b) {
  return {{"is_causal", b.attr("is_causal")},
          {"scale", b.attr("scale")},
          {"enable_gqa", b.attr("enable_gqa")}};
}

}  // namespace mithril::ops

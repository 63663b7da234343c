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

// The axes before the last `inner` ones.
Shape batch_of(Value x, size_t inner) {
  return Shape(x.shape().begin(), x.shape().end() - static_cast<std::ptrdiff_t>(inner));
}

Shape broadcast(infer::DimTable& dims, Shape a, const Shape& other) {
  if (a.size() < other.size()) return broadcast(dims, other, a);
  const size_t front = a.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) a[front + i] = dims.broadcast(a[front + i], other[i]);
  return a;
}

bool broadcasts(RuleBuilder& r) {
  const auto apart = r.known(r.attr("broadcast"));
  return apart && apart->is_bool() && apart->as_bool();
}

// The batch axes q, k and v broadcast to o, those of the scores, q and k, to w.
void state_batches(RuleBuilder& r) {
  const auto batch = [&](const char* axes) {
    const Term term = r.fresh(kTensor);
    r.shape(term, axes);
    return term;
  };
  const Term scores = batch("...w");
  r.broadcast(scores, {batch("...q"), batch("...k")});
  r.broadcast(batch("...o"), {scores, batch("...v")});
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

OneBatch::OneBatch(Builder& b) : b_(b), original_(&b.node()), spread_(b.node()) {
  const bool is_apart = b.op().has_attr("broadcast") && flag(b, "broadcast");
  const Value query = b.in("query"), key = b.in("key"), value = b.in("value");
  if (!is_apart || !query || !key || !value) return;
  const size_t inner = flag(b, "enable_gqa") ? 3 : 2;
  Shape batch = batch_of(query, inner);
  for (const Value x : {key, value}) {
    batch = broadcast(b.graph().dims, batch, batch_of(x, inner));
  }
  for (const char* name : {"query", "key", "value"}) {
    const Value x = b.in(name);
    Shape shape = batch;
    shape.insert(shape.end(), x.shape().end() - static_cast<std::ptrdiff_t>(inner),
                 x.shape().end());
    if (shape == x.shape()) continue;
    const Value made = b.call("broadcast_to", {x}, {{"shape", shape_value(shape)}});
    spread_.operands[static_cast<size_t>(b.op().input_index(name))] = made.id;
  }
  b.enter(b.op(), spread_);
}

OneBatch::~OneBatch() { b_.enter(b_.op(), *original_); }

bool has_shared_heads(RuleBuilder& r) {
  const auto shares = r.known(r.attr("enable_gqa"));
  return shares && shares->is_bool() && shares->as_bool();
}

void attention_rule(RuleBuilder& r, Term output, bool may_broadcast) {
  constexpr Templates kEqual{"... l e", "... s e", "... s v", "... l v", "... l s"};
  constexpr Templates kShared{"... h l e", "... k s e", "... k s v", "... h l v", "... h l s"};
  constexpr Templates kApart{"...q l e", "...k s e", "...v s v", "...o l v", "...w l s"};
  constexpr Templates kApartShared{"...q h l e", "...k k s e", "...v k s v", "...o h l v",
                                   "...w h l s"};
  const bool is_shared = has_shared_heads(r), is_apart = may_broadcast && broadcasts(r);
  if (is_apart) state_batches(r);
  const Templates& of =
      is_apart ? (is_shared ? kApartShared : kApart) : (is_shared ? kShared : kEqual);
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

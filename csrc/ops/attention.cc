// Attention: means of values, weighted by products of queries and keys.
#include "ops/attention.h"

#include "infer/relation.h"
#include "ir/registry.h"
#include "ops/attention_formula.h"
#include "ops/broadcast.h"

namespace mithril::ops {
namespace {

// Products and a softmax, and at most the causal mask: what frameworks have one function for.
bool is_plain(const Builder& b) {
  const bool from_first = b.op().input_index("offset") < 0 || known_offset(b) == 0;
  return !has_operand(b, "attn_mask") && !has_operand(b, "bias") && !has_operand(b, "scale") &&
         (from_first || !flag(b, "is_causal"));
}

Value output_of(Builder& b) {
  const Value output = with_logsumexp(b).output;
  return output ? cast(output, b.in("query").dtype()) : output;
}

Value attended(Builder& b) {
  if (is_plain(b)) {
    return b.call("plain_attention", {b.in("query"), b.in("key"), b.in("value")}, common_attrs(b));
  }
  if (has_operand(b, "scale")) return mean_of_values(b, weights_of(b).weights);
  return output_of(b);
}

// By the general op, which takes what is beside the scores.
Value attended_by_general(Builder& b) {
  const auto operand = [&](std::string_view name) {
    return has_operand(b, name) ? b.in(name) : Value();
  };
  ir::Attrs attrs = common_attrs(b);
  attrs.set("use_attn_mask", HostValue(has_operand(b, "attn_mask")));
  attrs.set("use_bias", HostValue(has_operand(b, "bias")));
  if (b.op().input_index("offset") >= 0 && !b.has("offset")) {
    attrs.set("offset", b.attr("offset"));
  }
  return b.call("attention",
                {b.in("query"), b.in("key"), b.in("value"), operand("attn_mask"), operand("bias"),
                 operand("offset")},
                attrs);
}

bool drops_out(Builder& b) {
  if (b.op().input_index("dropout_p") < 0) return false;
  const HostValue& p = b.attr("dropout_p");
  const bool some = b.has("dropout_p") || (!p.is_none() && p.as_number() != 0.0);
  if (some) {
    unsupported(b, b.op().name +
                       ": dropout_p must be 0: it has no random key; DropoutAttention has one, and "
                       "MultiHeadAttention(dropout=p)");
  }
  return some;
}

void attention_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  if (drops_out(b)) return;
  const OneBatch batch(b);
  const auto wants = [&](const char* name) { return has_operand(b, name) && g.wants(name); };
  const bool of_scores = wants("attn_mask") || wants("bias");
  const AttentionGradients found = has_operand(b, "scale")
                                       ? gradients_by_weights(b, g.dout())
                                       : gradients_by_blocks(b, g.dout(), of_scores);
  if (!found.query) return;
  g.d("query") = found.query;
  g.d("key") = found.key;
  g.d("value") = found.value;
  for (const char* name : {"attn_mask", "bias"}) {
    if (wants(name)) g.d(name) = found.scores;
  }
}

// Both general forms, with and without a dropout of the weights.
OpDefBuilder& general_attention(OpDefBuilder& block) {
  block.input("query", kNumeric)
      .input("key", kNumeric)
      .input("value", kNumeric)
      .optional("attn_mask", kTensor, "use_attn_mask")
      .optional("bias", kFloating, "use_bias");
  return with_offset(block)
      .attr("is_causal", false)
      .attr("scale", HostValue(), kNum | infer::kNoneKind)
      .attr("enable_gqa", false)
      .attr("use_attn_mask", false)
      .attr("use_bias", false)
      .output("output", computed())
      .promote_float({"query", "key", "value"})
      .connect({"query", "key", "value", "attn_mask", "bias", "offset", "output"})
      .cin({"query"});
}

void define_general(OpFamily& ops) {
  general_attention(
      ops.def("attention")
          .python("Attention")
          .arguments({"is_causal", "scale", "enable_gqa", "use_attn_mask", "use_bias", "query",
                      "key", "value", "attn_mask", "bias", "offset"})
          .doc("Scaled dot product attention of heads [..., h, l, e] whose first query stands at "
               "place `offset` of the keys: is_causal lets it see the places up to its own. "
               "enable_gqa: key and value have a number of heads that divides h, each serves the "
               "same number of queries (Ainslie et al., arXiv:2305.13245). bias is added to the "
               "scores, attn_mask too, or where it is false leaves places out.")
          .formula("\\mathrm{softmax}(Q K^T \\cdot scale + bias) V"))
      .rule([](RuleBuilder& r) {
        attention_rule(r, r.out());
        state_offset(r);
      })
      .compose(attended)
      .gradient(attention_gradient)
      .with(at({{"query", {2, 4, 3, 5}}, {"key", {2, 2, 7, 5}}, {"value", {2, 2, 7, 6}}},
               {{"is_causal", true}, {"enable_gqa", true}, {"offset", 2}}))
      .with(
          at({{"query", {4, 3, 5}}, {"key", {4, 3, 5}}, {"value", {4, 3, 5}}, {"bias", {4, 3, 3}}},
             {{"use_bias", true}, {"is_causal", true}, {"scale", 0.5}}))
      .with(at(
          {{"query", {4, 3, 5}},
           {"key", {1, 6, 5}},
           {"value", {1, 6, 2}},
           {"attn_mask", {3, 6}},
           {"bias", {4, 1, 6}},
           {"offset", {}}},
          {{"use_bias", true}, {"use_attn_mask", true}, {"is_causal", true}, {"enable_gqa", true}}))
      .with(at({{"query", {3, 4}}, {"key", {6, 4}}, {"value", {6, 5}}}))
      .with(at({{"query", {2, 0, 4}}, {"key", {2, 3, 4}}, {"value", {2, 3, 5}}}))
      .sample("offset", 0.0, 3.0)
      .rejects(at({{"query", {4, 3, 5}}, {"key", {3, 3, 5}}, {"value", {3, 3, 5}}},
                  {{"enable_gqa", true}}),
               "attention")
      .rejects(at({{"query", {4, 3, 5}}, {"key", {2, 3, 5}}, {"value", {2, 3, 5}}}), "attention")
      .rejects(at({{"query", {3, 5}}, {"key", {3, 5}}, {"value", {3, 5}}}, {{"offset", -1}}),
               "offset must not be negative");
}

void define_plain(OpFamily& ops) {
  ops.def("plain_attention")
      .doc(
          "`Attention` without masks, but for the causal one: what frameworks have a function for.")
      .formula("\\mathrm{softmax}(Q K^T \\cdot scale) V")
      .input("query", kFloating)
      .input("key", kFloating)
      .input("value", kFloating)
      .attr("is_causal", false)
      .attr("scale", HostValue(), kNum | infer::kNoneKind)
      .attr("enable_gqa", false)
      .output("output", same_as("query"))
      .rule([](RuleBuilder& r) { attention_rule(r, r.out()); })
      .compose(output_of)
      .gradient(attention_gradient)
      .with(at({{"query", {2, 3, 4}}, {"key", {2, 6, 4}}, {"value", {2, 6, 5}}}))
      .with(at({{"query", {2, 3, 5, 4}}, {"key", {2, 3, 5, 4}}, {"value", {2, 3, 5, 2}}},
               {{"is_causal", true}, {"scale", 0.5}}))
      .with(at({{"query", {3, 4}}, {"key", {6, 4}}, {"value", {6, 5}}}, {{"is_causal", true}}))
      .with(at({{"query", {6, 4}}, {"key", {3, 4}}, {"value", {3, 5}}}, {{"is_causal", true}}))
      .with(at({{"query", {2, 4, 3, 5}}, {"key", {2, 2, 7, 5}}, {"value", {2, 2, 7, 6}}},
               {{"is_causal", true}, {"enable_gqa", true}}));
}

void define_with_dropout(OpFamily& ops) {
  OpDefBuilder block = ops.def("dropout_attention");
  block.python("DropoutAttention")
      .arguments({"p", "is_causal", "scale", "enable_gqa", "use_attn_mask", "use_bias", "mode",
                  "query", "key", "value", "attn_mask", "bias", "offset"})
      .doc(
          "`Attention`, each of whose weights becomes 0 in train mode with probability p; the "
          "others grow by 1 / (1 - p). mode none: as the model is compiled.")
      .formula("\\mathrm{dropout}(\\mathrm{softmax}(Q K^T \\cdot scale + bias)) V")
      .attr("p", 0.5)
      .within("p", 0.0, 1.0);
  general_attention(block)
      .optional("rng_key", kTensorInt)
      .attr("mode", HostValue(), infer::kStrKind | infer::kNoneKind)
      .choices({"train", "eval"})
      .output("new_rng_key", default_int())
      .state("rng_key", "new_rng_key", "key")
      .rule([](RuleBuilder& r) {
        attention_rule(r, r.out());
        state_offset(r);
        if (r.has("rng_key")) r.shape(r.in("rng_key"), "2");
        r.shape(r.out("new_rng_key"), "2");
      })
      .compose_many([](Builder& b) {
        const bool may_drop = b.has("rng_key");
        const Value weights = may_drop ? weights_of(b).weights : b.in("query");
        const std::vector<Value> dropped =
            b.call_all(*ir::Registry::global().find("dropout"), {weights, b.in("rng_key")},
                       {{"p", b.attr("p")}, {"mode", b.attr("mode")}});
        if (!may_drop) return std::vector<Value>{attended_by_general(b), dropped[1]};
        return std::vector<Value>{mean_of_values(b, dropped[0]), dropped[1]};
      })
      .with(at({{"query", {2, 4, 3, 5}},
                {"key", {2, 2, 7, 5}},
                {"value", {2, 2, 7, 6}},
                {"rng_key", {2}}},
               {{"mode", "train"}, {"enable_gqa", true}, {"is_causal", true}, {"offset", 4}}))
      .with(at({{"query", {6, 5}}, {"key", {6, 5}}, {"value", {6, 2}}, {"rng_key", {2}}},
               {{"mode", "train"}, {"p", 0.2}}))
      .with(at({{"query", {3, 4}}, {"key", {6, 4}}, {"value", {6, 5}}}, {{"mode", "eval"}}));
}

void define_scaled_dot_product(OpFamily& ops) {
  ops.def("scaled_dot_product_attention")
      .python("ScaledDotProduct")
      .arguments({"is_causal", "scale", "dropout_p", "use_attn_mask", "query", "key", "value",
                  "attn_mask"})
      .doc(
          "Each query's mean of the values, weighted by softmax of its products with the keys, "
          "scaled (none: by 1 / sqrt(d)). Causal by default; is_causal: only places up to its own; "
          "attn_mask: false "
          "places are left out, or numbers are added (Vaswani et al., arXiv:1706.03762). "
          "enable_gqa: the heads (third axis from the end) of key and value may be fewer, by a "
          "whole factor. broadcast: the axes before (heads among them, but for enable_gqa) "
          "broadcast; else they are equal, and known of all as soon as of one.")
      .formula("\\mathrm{softmax}(Q K^T \\cdot scale) V")
      .input("query", kNumeric)
      .input("key", kNumeric)
      .input("value", kNumeric)
      .key("dropout_p", 0.0)
      .optional("attn_mask", kTensor, "use_attn_mask")
      .key("is_causal", true)
      .key("scale", HostValue())
      .attr("use_attn_mask", false)
      .attr("enable_gqa", false)
      .attr("broadcast", false)
      .output("output", computed())
      .promote_float({"query", "key", "value"})
      .keys({"query", "key", "value", "dropout_p", "attn_mask", "is_causal", "scale"})
      .connect({"query", "key", "value", "dropout_p", "is_causal", "scale", "output", "attn_mask"})
      .cin({"query"})
      .rule([](RuleBuilder& r) { attention_rule(r, r.out(), true); })
      .compose([](Builder& b) {
        if (drops_out(b)) return Value();
        const OneBatch batch(b);
        const bool is_general = !is_plain(b) && !has_operand(b, "scale");
        return is_general ? attended_by_general(b) : attended(b);
      })
      .gradient(attention_gradient)
      .with(at({{"query", {2, 3, 4}}, {"key", {2, 3, 4}}, {"value", {2, 3, 5}}}))
      .with(at({{"query", {2, 1, 3, 4}}, {"key", {2, 1, 6, 4}}, {"value", {2, 1, 6, 5}}},
               {{"is_causal", false}}))
      .with(at({{"query", {3, 4}}, {"key", {6, 4}}, {"value", {6, 5}}, {"attn_mask", {3, 6}}},
               {{"is_causal", false}, {"use_attn_mask", true}, {"scale", 0.5}}))
      .with(at({{"query", {2, 6, 3, 4}}, {"key", {2, 2, 3, 4}}, {"value", {2, 2, 3, 5}}},
               {{"enable_gqa", true}}))
      .with(at({{"query", {2, 3, 3, 4}}, {"key", {1, 3, 6, 4}}, {"value", {3, 6, 5}}},
               {{"is_causal", false}, {"broadcast", true}}))
      .with(at({{"query", {2, 4, 3, 4}},
                {"key", {1, 2, 3, 4}},
                {"value", {2, 2, 3, 5}},
                {"attn_mask", {2, 1, 1, 3}}},
               {{"is_causal", false},
                {"broadcast", true},
                {"enable_gqa", true},
                {"use_attn_mask", true}}))
      .with(at({{"query", {3, 4}}, {"key", {2, 1, 3, 4}}, {"value", {2, 3, 3, 5}}},
               {{"broadcast", true}}))
      .rejects(at({{"query", {4, 3, 5}}, {"key", {3, 3, 5}}, {"value", {3, 3, 5}}},
                  {{"enable_gqa", true}}),
               "scaled_dot_product_attention")
      .rejects(at({{"query", {4, 3, 5}}, {"key", {1, 3, 5}}, {"value", {1, 3, 5}}}), "key")
      .rejects(at({{"query", {4, 3, 5}}, {"key", {3, 3, 5}}, {"value", {3, 3, 5}}},
                  {{"broadcast", true}}),
               "scaled_dot_product_attention");
}

// Terms: offset.
core::Status relate_offset(infer::Relation& relation) {
  if (relation.kinds(0).is_tensor()) {
    const auto rank = relation.rank(0);
    if (!rank || *rank == 0) return relation.set_rank(0, 0);
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                      "offset must be one integer, got a tensor of rank {}", *rank);
  }
  const auto value = relation.value(0);
  if (!value || !value->is_int() || value->as_int() >= 0) return {};
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "offset must not be negative, got {}", value->as_int());
}

}  // namespace

OpDefBuilder& with_offset(OpDefBuilder& block) {
  return block.input("offset", kTensorInt | infer::kScalarInt, HostValue(0));
}

void state_offset(RuleBuilder& r) { r.custom({r.in("offset")}, relate_offset); }

std::optional<int64_t> known_offset(const Builder& b) {
  if (b.has("offset")) return std::nullopt;
  const HostValue& offset = b.attr("offset");
  if (offset.is_none()) return 0;
  return offset.is_int() ? std::optional(offset.as_int()) : std::nullopt;
}

Value places_from_offset(Builder& b, infer::Dim count) {
  const Value places = range(b, count);
  if (b.has("offset")) return places + cast(b.in("offset"), DType::kInt64);
  if (known_offset(b) == 0) return places;
  return places +
         b.call("constant", {}, {{"value", b.attr("offset")}, {"dtype", HostValue(DType::kInt64)}});
}

void define_attention(OpFamily& ops) {
  define_attention_gradients(ops);
  define_plain(ops);
  define_scaled_dot_product(ops);
  define_general(ops);
  define_with_dropout(ops);
  define_heads(ops);
  define_positions(ops);
}

}  // namespace mithril::ops

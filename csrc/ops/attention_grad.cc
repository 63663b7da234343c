// Attention and its gradients without a matrix of weights: what the forward pass keeps of a row is
// one number (Dao, arXiv:2307.08691). Bodies are the formula with weights. Results of halves are
// float32, which what reads them rounds.
#include "ir/registry.h"
#include "ops/attention.h"

namespace mithril::ops {
namespace {

// Wires and options of the general form; an offset counts with causality alone.
struct Call {
  std::vector<Operand> operands;
  ir::Attrs attrs;
};

Call general_call(const Builder& b) {
  const auto operand = [&](std::string_view name) {
    return has_operand(b, name) ? b.in(name) : Value();
  };
  Call out{
      {b.in("query"), b.in("key"), b.in("value"), operand("attn_mask"), operand("bias"), Value()},
      common_attrs(b)};
  if (b.op().input_index("offset") < 0 || !flag(b, "is_causal")) return out;
  if (b.has("offset")) {
    out.operands.back() = b.in("offset");
  } else if (known_offset(b) != 0) {
    out.attrs.set("offset", b.attr("offset"));
  }
  return out;
}

std::vector<Value> call_all(Builder& b, std::string_view op, Call call) {
  return b.call_all(*ir::Registry::global().find(op), std::move(call.operands),
                    std::move(call.attrs));
}

OpDefBuilder& general_inputs(OpDefBuilder& block) {
  block.input("query", kFloating)
      .input("key", kFloating)
      .input("value", kFloating)
      .optional("attn_mask", kTensor)
      .optional("bias", kFloating);
  return with_offset(block)
      .attr("is_causal", false)
      .attr("scale", HostValue(), kNum | infer::kNoneKind)
      .attr("enable_gqa", false);
}

void define_with_logsumexp(OpFamily& ops) {
  OpDefBuilder block = ops.def("attention_with_logsumexp");
  block
      .doc(
          "`Attention`, and of each query the logarithm of the sum of the exponentials of its "
          "scores, from which its gradient finds the weights.")
      .formula("\\mathrm{softmax}(Q K^T \\cdot scale + bias) V");
  general_inputs(block)
      .output("output", wide_as("query"))
      .output("logsumexp", wide_as("query"))
      .rule([](RuleBuilder& r) {
        attention_rule(r, r.out("output"));
        r.shape(r.out("logsumexp"), has_shared_heads(r) ? "... h l" : "... l");
        state_offset(r);
      })
      .compose_many([](Builder& b) {
        const Weights found = weights_of(b);
        if (!found.scores) return std::vector<Value>(2);
        const Value logsumexp = ir::apply("logsumexp", {found.scores}, {{"axis", -1}});
        return std::vector<Value>{mean_of_values(b, found.weights), logsumexp};
      })
      .with(at({{"query", {2, 4, 3, 5}}, {"key", {2, 2, 7, 5}}, {"value", {2, 2, 7, 6}}},
               {{"is_causal", true}, {"enable_gqa", true}, {"offset", 2}}))
      .with(at({{"query", {4, 3, 5}},
                {"key", {4, 6, 5}},
                {"value", {4, 6, 2}},
                {"attn_mask", {3, 6}},
                {"bias", {4, 1, 6}}},
               {{"scale", 0.5}}));
}

void define_gradients(OpFamily& ops, const char* name, const char* doc, bool of_scores) {
  OpDefBuilder block = ops.def(name);
  block.doc(doc);
  general_inputs(block)
      .input("output", kFloating)
      .input("logsumexp", kFloating)
      .input("cotangent", kFloating)
      .output("query_gradient", wide_as("query"))
      .output("key_gradient", wide_as("query"))
      .output("value_gradient", wide_as("query"));
  if (of_scores) block.output("scores_gradient", wide_as("query"));
  block
      .rule([of_scores](RuleBuilder& r) {
        attention_rule(r, r.in("output"));
        r.shape(r.in("logsumexp"), has_shared_heads(r) ? "... h l" : "... l");
        r.same_shape(r.in("cotangent"), r.in("output"));
        r.same_shape(r.out("query_gradient"), r.in("query"));
        r.same_shape(r.out("key_gradient"), r.in("key"));
        r.same_shape(r.out("value_gradient"), r.in("value"));
        if (of_scores)
          r.shape(r.out("scores_gradient"), has_shared_heads(r) ? "... h l s" : "... l s");
        state_offset(r);
      })
      .compose_many([of_scores](Builder& b) {
        const AttentionGradients found = gradients_by_weights(b, b.in("cotangent"));
        std::vector<Value> out = {found.query, found.key, found.value};
        if (of_scores) out.push_back(found.scores);
        return out;
      })
      .with(at({{"query", {2, 4, 3, 5}},
                {"key", {2, 2, 7, 5}},
                {"value", {2, 2, 7, 6}},
                {"output", {2, 4, 3, 6}},
                {"logsumexp", {2, 4, 3}},
                {"cotangent", {2, 4, 3, 6}}},
               {{"is_causal", true}, {"enable_gqa", true}, {"offset", 2}}))
      .with(at({{"query", {4, 3, 5}},
                {"key", {4, 6, 5}},
                {"value", {4, 6, 2}},
                {"attn_mask", {3, 6}},
                {"bias", {4, 1, 6}},
                {"output", {4, 3, 2}},
                {"logsumexp", {4, 3}},
                {"cotangent", {4, 3, 2}}},
               {{"scale", 0.5}}));
}

}  // namespace

Attended with_logsumexp(Builder& b) {
  const std::vector<Value> found = call_all(b, "attention_with_logsumexp", general_call(b));
  return found.size() == 2 ? Attended{found[0], found[1]} : Attended{};
}

AttentionGradients gradients_by_blocks(Builder& b, Value output_gradient, bool of_scores) {
  const Attended forward = with_logsumexp(b);
  Call call = general_call(b);
  call.operands.insert(call.operands.end(), {forward.output, forward.logsumexp, output_gradient});
  const char* op = of_scores ? "attention_grad_with_scores" : "attention_grad";
  const std::vector<Value> found = call_all(b, op, std::move(call));
  if (found.size() < 3) return {};
  return {found[0], found[1], found[2], of_scores ? found[3] : Value()};
}

void define_attention_gradients(OpFamily& ops) {
  define_with_logsumexp(ops);
  define_gradients(ops, "attention_grad",
                   "Gradients of `Attention`; output and logsumexp are what "
                   "attention_with_logsumexp gives of the same operands.",
                   false);
  define_gradients(ops, "attention_grad_with_scores",
                   "attention_grad with the gradient of the scores, which is that of a bias.",
                   true);
}

}  // namespace mithril::ops

#include "ir/vjp_op.h"

namespace mithril::ir {
namespace {

std::string vjp_name(const std::string& op, size_t input) {
  return op + "_vjp" + std::to_string(input);
}

InputDef tensor_input(std::string name, infer::KindSet kinds) {
  InputDef out;
  out.name = std::move(name);
  out.kinds = kinds;
  out.is_key = !kinds.may_be_tensor();
  return out;
}

}  // namespace

OpDef vjp_of(const OpDef& op, infer::KindSet kinds, size_t input) {
  OpDef out;
  out.name = vjp_name(op.name, input);
  out.family = op.family;
  out.inputs = {tensor_input("cotangent", kinds), tensor_input("result", kinds)};
  for (InputDef copy : op.inputs) {
    copy.name = "of_" + copy.name;
    copy.trainable = false;
    copy.when.clear();
    out.inputs.push_back(std::move(copy));
  }
  out.attrs = op.attrs;
  const std::string like = out.inputs[input + 2].name;
  out.outputs.push_back({"output", same_as(like)});
  out.shape_rule = [like](infer::RuleBuilder& rule) {
    rule.same_shape(rule.in(like), rule.out("output"));
  };
  for (const InputDef& given : out.inputs) out.connect_order.push_back(given.name);
  out.connect_order.emplace_back("output");
  return out;
}

void pull_back_by_vjps(GradBuilder& g, const std::string& op, const OpDef& like) {
  const std::string& result = like.outputs[0].name;
  Attrs attrs;
  for (const auto& [key, value] : g.attrs()) {
    attrs.set(like.find_input(key) != nullptr ? "of_" + key : key, value);
  }
  for (size_t i = 0; i < like.inputs.size(); ++i) {
    const std::string& input = like.inputs[i].name;
    if (!g.has(input) || !g.wants(input) || !core::is_float(g.in(input).dtype())) continue;
    std::vector<Operand> operands{g.dout(result), g.out(result)};
    for (const InputDef& each : like.inputs) operands.emplace_back(g.in(each.name));
    g.d(input) = g.builder().call(vjp_name(op, i), std::move(operands), attrs);
  }
}

}  // namespace mithril::ir

#include "ir/full_rule.h"

#include "ir/infer_types.h"

namespace mithril::ir {

using infer::RuleBuilder;
using infer::Term;

namespace {

// Ops that take tensors or scalars state kinds in their own rule (arith_kind decides).
bool states_own_kinds(const OpDef& op) {
  for (const InputDef& input : op.inputs) {
    if (!input.is_key && input.kinds.may_be_tensor() && input.kinds.meets(infer::kScalar)) {
      return true;
    }
  }
  return false;
}

std::vector<Term> promoted_terms(const OpDef& op, RuleBuilder& rule) {
  std::vector<Term> out;
  for (const InputDef& input : op.inputs) {
    if (!is_promoted(op, input) || input.variadic) continue;
    if (rule.has(input.name)) out.push_back(rule.in(input.name));
  }
  return out;
}

void computed_kind(const OpDef& op, RuleBuilder& rule, Term out) {
  if (op.compute == DTypeRule::Compute::kPromoteFloat) {
    rule.kind(out, infer::kFloating);
    return;
  }
  const std::vector<Term> operands = promoted_terms(op, rule);
  if (operands.size() == 1 && op.compute == DTypeRule::Compute::kPromoteInt) {
    rule.sum_kind(out, operands[0]);
  } else if (operands.size() == 1) {
    rule.same_kind(out, operands[0]);
  } else if (operands.size() == 2) {
    rule.arith_kind(out, operands[0], operands[1], infer::dominant_table());
  } else {
    rule.kind(out, infer::kTensor);
  }
}

void result_kind(const OpDef& op, const OutputDef& output, RuleBuilder& rule) {
  const Term out = rule.out(output.name);
  switch (output.dtype.result) {
    case DTypeRule::Result::kCompute:
    case DTypeRule::Result::kWidened: computed_kind(op, rule, out); return;
    case DTypeRule::Result::kBool: rule.kind(out, infer::kTensorBool); return;
    case DTypeRule::Result::kDefaultInt: rule.kind(out, infer::kTensorInt); return;
    case DTypeRule::Result::kDefaultFloat: rule.kind(out, infer::kFloating); return;
    case DTypeRule::Result::kSameAs:
    case DTypeRule::Result::kWideAs:
      if (rule.has(output.dtype.name)) rule.same_kind(out, rule.in(output.dtype.name));
      return;
    case DTypeRule::Result::kAttr: {
      const int key = op.input_index(output.dtype.name);
      if (key >= 0) rule.kind(rule.in(output.dtype.name), infer::kDTypeKind | infer::kNoneKind);
      rule.kind(out, infer::kTensor);
      return;
    }
    case DTypeRule::Result::kOfValue: rule.kind(out, infer::kTensor); return;
    case DTypeRule::Result::kHost: rule.kind(out, infer::kHost); return;
  }
}

void elementwise_shape(const OpDef& op, RuleBuilder& rule) {
  std::vector<Term> operands;
  for (const InputDef& input : op.inputs) {
    if (input.kinds.may_be_tensor() && rule.has(input.name)) {
      operands.push_back(rule.in(input.name));
    }
  }
  for (const OutputDef& output : op.outputs) {
    if (operands.size() == 1) {
      rule.same_shape(rule.out(output.name), operands[0]);
    } else {
      rule.broadcast(rule.out(output.name), operands);
    }
  }
}

void state(const OpDef& op, RuleBuilder& rule) {
  for (const InputDef& input : op.inputs) {
    if (!input.variadic && rule.has(input.name)) rule.kind(rule.in(input.name), input.kinds);
  }
  if (!states_own_kinds(op)) {
    for (const OutputDef& output : op.outputs) result_kind(op, output, rule);
  }
  if (op.shape_rule) {
    op.shape_rule(rule);
  } else {
    elementwise_shape(op, rule);
  }
}

}  // namespace

infer::Rule elementwise_rule(const OpDef& op) {
  return [&op](RuleBuilder& rule) { elementwise_shape(op, rule); };
}

infer::Rule make_full_rule(const OpDef& op) {
  return [&op](RuleBuilder& rule) { state(op, rule); };
}

}  // namespace mithril::ir

// An op's whole rule for the solver: kinds of inputs and results, then the block's shape rule.
#pragma once
#include "infer/rule.h"
#include "ir/op_def.h"

namespace mithril::ir {

/// Called once by Registry::add, which keeps it as OpDef::full_rule; refers to `op`.
infer::Rule make_full_rule(const OpDef& op);

/// Makes the rule of ops without a shape rule: results have the broadcast shape of the tensor
/// operands. Refers to `op`.
infer::Rule elementwise_rule(const OpDef& op);

}  // namespace mithril::ir

// Gradients that are functions outside of the engine: ops that stand for them in graphs.
#pragma once
#include <string>

#include "ir/builder.h"
#include "ir/op_def.h"

namespace mithril::ir {

/// Declares the op that computes the cotangent of an input: (cotangent, result, inputs …), where
/// results have `kinds`, inputs of `op` are called "of_<name>", and its attributes keep their
/// names. It has the name of `op` with "_vjp<input>", and no gradient of its own.
OpDef vjp_of(const OpDef& op, infer::KindSet kinds, size_t input);

/// Is the gradient rule of an op named `op` with the inputs of `like`: applies those ops.
void pull_back_by_vjps(GradBuilder& g, const std::string& op, const OpDef& like);

}  // namespace mithril::ir

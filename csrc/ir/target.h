// What passes need to know of a backend: a plain struct, filled by the backend.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/dtype.h"

namespace mithril::ir {

struct OpDef;

/// Tells how a target runs a node that is no loop: by no kernel, by one that takes its operands in
/// core::widened types, or as it is.
enum class Support : uint8_t { kNone, kWidened, kAsIs };

using OpNames = std::set<std::string, std::less<>>;

struct Target {
  std::string name;                                   // "cpu", "numpy", "torch" …
  core::DType default_float = core::DType::kFloat32;  // of the backend instance
  core::DType default_int = core::DType::kInt64;
  /// Names the type that mixed precision computes in (passes/cast_policy.h); none: all ops compute
  /// in the types of their operands.
  std::optional<core::DType> compute_float;
  OpNames keeps_whole;  // composites with a lowering of their own
  /// Ops of which the backend's class brings the function, or only the gradient, and the ops that
  /// stand for them (passes/own_ops.h).
  std::map<std::string, std::string, std::less<>> own_functions, own_gradients;
  bool decompose_all = false;  // deterministic="portable"
  // These hold where plans run, and not where source text is emitted:
  bool binds_sizes = false;    // no kernel runs before the sizes it depends on are known
  bool binds_numbers = false;  // numbers are constants of kernels, so they have to be known, too
  bool shares_bodies = false;  // a composite and its gradient compute what both need once
  bool keeps(const OpDef& op) const;
};

}  // namespace mithril::ir

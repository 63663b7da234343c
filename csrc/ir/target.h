// What passes need to know of a backend: a plain struct, filled by the backend.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/dtype.h"

namespace mithril::ir {

struct OpDef;

/// How a target runs a node that is no loop: by no kernel, by one that takes its operands in
/// core::widened types, or as it is.
enum class Support : uint8_t { kNone, kWidened, kAsIs };

struct Target {
  std::string name;                                   // "cpu", "numpy", "torch" …
  core::DType default_float = core::DType::kFloat32;  // of the backend instance
  core::DType default_int = core::DType::kInt64;
  /// Names the type that mixed precision computes in (passes/cast_policy.h); none: all ops compute
  /// in the types of their operands.
  std::optional<core::DType> compute_float;
  std::set<std::string, std::less<>> keeps_whole;  // composites with a lowering of their own
  /// Ops of which the backend's class brings the function, or only the gradient, and the ops that
  /// stand for them (passes/own_ops.h).
  std::map<std::string, std::string, std::less<>> own_functions, own_gradients;
  bool decompose_all = false;  // deterministic="portable"
  bool is_native = false;      // runs plans; else source text is emitted
  bool keeps(const OpDef& op) const;
};

}  // namespace mithril::ir

// Arithmetic on host numbers with Python's meaning; sizes that are expressions stay expressions.
#pragma once
#include <optional>
#include <span>

#include "core/host_value.h"
#include "core/status.h"
#include "infer/dim.h"
#include "ir/op_def.h"

namespace mithril::ops {

enum class HostOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kMod,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRight,
};

/// kShapeUnknown where the result depends on a size in a way that no expression states.
core::Result<core::HostValue> host_arithmetic(HostOp op, const core::HostValue& left,
                                              const core::HostValue& right, infer::DimTable* dims);

/// For RuleBuilder::fold: no value where the operation fails.
template <HostOp op>
std::optional<core::HostValue> fold(std::span<const core::HostValue> in) {
  auto result = host_arithmetic(op, in[0], in[1], nullptr);
  if (!result.ok()) return std::nullopt;
  return std::move(*result);
}

/// For `.host` of a block with two operands.
template <HostOp op>
core::Result<core::HostValue> host(const ir::HostCall& call) {
  return host_arithmetic(op, call.operands[0], call.operands[1], &call.dims);
}

}  // namespace mithril::ops

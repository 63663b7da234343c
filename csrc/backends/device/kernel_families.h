// Structured kernels that are one text in all languages of devices, as rows of the table of
// selection, and what their makers share. The texts stand on names of emit/c_like_text.h. Units are
// mostly elements of the result: a run of them that lie in one row is done by one loop, which a
// device of few long items makes vectors of, and which is one step where an item is one element.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "backends/device/template_text.h"
#include "core/checked.h"
#include "plan/cost.h"
#include "select/kernel_rows.h"

namespace mithril::device {

std::span<const select::KernelDef> row_kernels();
std::span<const select::KernelDef> movement_kernels();
std::span<const select::KernelDef> pool_kernels();
std::span<const select::KernelDef> axis_kernels();
std::span<const select::KernelDef> attention_kernels();

using plan::FunctionCall;
using select::KernelRequest;
using select::Operand;

inline constexpr auto kCanonical = select::OrderClass::kCanonical;

/// "f32": as in m_f32.
inline std::string type_of(const Operand& operand) {
  return std::string(core::short_name(operand.dtype));
}

inline FunctionCall call_of(const KernelRequest& request, std::string text) {
  FunctionCall out;
  out.name = request.op.name;
  out.call = std::move(text);
  return out;
}

/// A step of so many units and elementary operations.
inline plan::Step step_of(FunctionCall call, int64_t units, double operations) {
  plan::Step step;
  step.units = units;
  step.may_fail_on_data = call.check != FunctionCall::Check::kNone;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  step.nanoseconds = operations / plan::kBasicPerNanosecond;
  return step;
}

}  // namespace mithril::device

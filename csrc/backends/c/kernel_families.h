// What kernels.cc lists: the rows of each family, and what their makers share.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/dims.h"
#include "select/kernel_rows.h"

namespace mithril::c {

std::span<const select::KernelDef> axis_kernels();
std::span<const select::KernelDef> linalg_kernels();
std::span<const select::KernelDef> movement_kernels();
std::span<const select::KernelDef> pool_kernels();
std::span<const select::KernelDef> product_kernels();
std::span<const select::KernelDef> row_kernels();

using select::grain_of;
using select::has_real_type;
using select::kRealType;

/// "f32" or "f64".
inline std::string suffix_of(const select::Operand& operand) {
  return std::string(core::short_name(operand.dtype));
}

/// `name` of elements like those of an operand: its text "name.f32".
inline std::string text_of(const char* name, const select::Operand& operand) {
  return fmt::format("{}.{}", name, suffix_of(operand));
}

inline plan::Step step_of(plan::FunctionCall call, int64_t units, int64_t grain = 1) {
  plan::Step step;
  step.units = units;
  step.grain = grain;
  step.may_fail_on_data = call.check != plan::FunctionCall::Check::kNone;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}

/// "static const TYPE d = {1, 2, …};" of numbers.
template <class... Numbers>
std::string declared(const char* type, const Numbers&... numbers) {
  return fmt::format(
      "static const {} d = {{{}}};", type,
      fmt::join(std::initializer_list<std::string>{fmt::to_string(numbers)...}, ", "));
}

inline std::string declared(const ref_conv2d_dims& d) {
  return declared("ref_conv2d_dims", d.batch, d.groups, d.c_in, d.h_in, d.w_in, d.c_out, d.h_out,
                  d.w_out, d.kh, d.kw, d.stride_h, d.stride_w, d.pad_top, d.pad_left, d.dilation_h,
                  d.dilation_w);
}
inline std::string declared(const ref_pool2d_dims& d) {
  return declared("ref_pool2d_dims", d.planes, d.h_in, d.w_in, d.h_out, d.w_out, d.kh, d.kw,
                  d.stride_h, d.stride_w, d.pad_top, d.pad_left, d.dilation_h, d.dilation_w);
}
inline std::string declared(const ref_gather_dims& d) {
  return declared("ref_gather_dims", d.outer, d.bound, d.inner, d.count, d.lowest);
}
inline std::string declared(const ref_axis_dims& d) {
  return declared("ref_axis_dims", d.outer, d.n, d.inner, d.falling);
}
inline std::string declared(const ref_linalg_dims& d) {
  return declared("ref_linalg_dims", d.batch, d.n, d.k, d.lower, d.transposed);
}

}  // namespace mithril::c

#include "backends/device/select.h"

#include <algorithm>

#include "emit/c_doubles.h"
#include "select/kernel_rows.h"
#include "select/printed_loop.h"

namespace mithril::device {

bool is_without_doubles(const select::KernelRequest& request) {
  const auto is_double = [](const select::Operand& operand) {
    return operand.dtype == core::DType::kFloat64;
  };
  if (std::any_of(request.inputs.begin(), request.inputs.end(), is_double) ||
      std::any_of(request.outputs.begin(), request.outputs.end(), is_double)) {
    return false;
  }
  // Recurrences of float32 are computed in float64.
  if (request.op.name == "linear_scan" && select::is_real(request.outputs[0].dtype)) return false;
  return request.epilogue == nullptr || !emit::uses_doubles(request.epilogue->program);
}

select::Backend::Takes Backend::takes() const {
  if (doubles_ == nullptr) return {};
  return [](const tile::Program& program) { return !emit::uses_doubles(program); };
}

core::Result<std::unique_ptr<const select::LoopKernel>> Backend::loop(
    const tile::Program& program) const {
  if (doubles_ != nullptr && emit::uses_doubles(program)) return doubles_->loop(program);
  return select::printed_loop(program);
}

}  // namespace mithril::device

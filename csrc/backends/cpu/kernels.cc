// The CPU's table of structured kernels; each family makes its steps in a file of its own.
#include "backends/cpu/kernels.h"

#include <array>
#include <span>

#include "backends/cpu/kernel_families.h"

namespace mithril::cpu {
namespace {

// One span per family, in order of preference within an op.
const std::array kFamilies = {matmul_kernels,    packed_kernels, movement_kernels, rows_kernels,
                              window_kernels,    linalg_kernels, axis_kernels,     fourier_kernels,
                              attention_kernels, cache_kernels};

}  // namespace

const select::KernelDef* find_kernel(const select::KernelRequest& request) {
  for (const auto& family : kFamilies) {
    for (const select::KernelDef& kernel : family()) {
      if (request.op.name != kernel.op || kernel.packed != request.has_packed()) continue;
      if (request.epilogue != nullptr && kernel.finishing == select::Finishing::kNothing) continue;
      if (kernel.matches(request)) return &kernel;
    }
  }
  return nullptr;
}

std::vector<const select::KernelDef*> kernels_of(std::string_view op) {
  std::vector<const select::KernelDef*> out;
  for (const auto& family : kFamilies) {
    for (const select::KernelDef& kernel : family()) {
      if (op == kernel.op) out.push_back(&kernel);
    }
  }
  return out;
}

bool has_kernel(std::string_view op) {
  for (const auto& family : kFamilies) {
    for (const select::KernelDef& kernel : family()) {
      if (op == kernel.op) return true;
    }
  }
  return false;
}

}  // namespace mithril::cpu

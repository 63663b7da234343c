// The CPU's table of structured kernels; each family makes its steps in a file of its own.
#include "backends/cpu/kernels.h"

#include <array>

#include "backends/cpu/reference/kernel_families.h"

namespace mithril::cpu {
namespace {

// In order of preference within an op.
constexpr std::array<select::KernelFamily, 12> kFamilies = {
    matmul_kernels, packed_kernels,  movement_kernels,  rows_kernels,
    window_kernels, eigen_kernels,   lapack_kernels,    linalg_kernels,
    axis_kernels,   fourier_kernels, attention_kernels, cache_kernels};

}  // namespace

const select::KernelTable& kernel_table() {
  static constexpr select::KernelTable table{kFamilies};
  return table;
}

}  // namespace mithril::cpu

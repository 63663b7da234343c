// The table of structured kernels in C; each family makes its calls in a file of its own.
#include "backends/c/kernels.h"

#include <array>

#include "backends/c/kernel_families.h"

namespace mithril::c {
namespace {

// In order of preference within an op.
constexpr std::array<select::KernelFamily, 6> kFamilies = {
    product_kernels, movement_kernels, row_kernels, pool_kernels, linalg_kernels, axis_kernels};

}  // namespace

const select::KernelTable& kernel_table() {
  static constexpr select::KernelTable table{kFamilies};
  return table;
}

}  // namespace mithril::c

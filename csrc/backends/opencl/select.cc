#include "backends/opencl/select.h"

#include <array>

#include "backends/opencl/kernel_families.h"
#include "select/printed_loop.h"

namespace mithril::opencl {
namespace {

// In order of preference within an op.
constexpr std::array<select::KernelFamily, 1> kFamilies = {product_kernels};

}  // namespace

core::Result<std::unique_ptr<const select::LoopKernel>> Backend::loop(
    const tile::Program& program) const {
  return select::printed_loop(program);
}

std::span<const select::KernelFamily> kernel_families() { return kFamilies; }

}  // namespace mithril::opencl

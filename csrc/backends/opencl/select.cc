#include "backends/opencl/select.h"

#include "select/printed_loop.h"

namespace mithril::opencl {

core::Result<std::unique_ptr<const select::LoopKernel>> Backend::loop(
    const tile::Program& program) const {
  return select::printed_loop(program);
}

std::span<const select::KernelFamily> kernel_families() { return {}; }

}  // namespace mithril::opencl

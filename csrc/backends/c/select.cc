#include "backends/c/select.h"

#include "backends/c/kernels.h"
#include "select/printed_loop.h"

namespace mithril::c {

const select::KernelTable& Backend::kernels() const { return kernel_table(); }

core::Result<std::unique_ptr<const select::LoopKernel>> Backend::loop(
    const tile::Program& program) const {
  return select::printed_loop(program);
}

}  // namespace mithril::c

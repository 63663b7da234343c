#include "backends/device/select.h"

#include "select/printed_loop.h"

namespace mithril::device {

core::Result<std::unique_ptr<const select::LoopKernel>> Backend::loop(
    const tile::Program& program) const {
  return select::printed_loop(program);
}

}  // namespace mithril::device

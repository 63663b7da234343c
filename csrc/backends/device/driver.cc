#include "backends/device/driver.h"

#include <unistd.h>
#include <utility>

namespace mithril::device {

Driver::Driver(std::string kind, std::string name, int64_t memory)
    : kind_(std::move(kind)), name_(std::move(name)), memory_(memory), process_(getpid()) {}

core::Status Driver::check_process() const {
  if (getpid() == process_) return {};
  core::Error error = core::fail(
      core::ErrorKind::kDevice, core::Code::kDevice,
      "{}: this process was forked from one that uses the device {}; drivers do not survive a fork",
      kind_, name_);
  error.hint = "start processes by spawn, or use the backend in the child only";
  return error;
}

core::Result<Arena> Driver::take_arena(int64_t bytes) {
  Arena out = std::exchange(arena_, {});
  if (out.memory != nullptr && out.bytes >= bytes) return out;
  out = {};  // before the larger one is asked for
  MITHRIL_ASSIGN(out.memory, allocate(bytes));
  out.bytes = bytes;
  return out;
}

}  // namespace mithril::device

#include "backends/device/driver.h"

#include <unistd.h>
#include <utility>

#include "backends/device/self_test.h"

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

core::Result<bool> Driver::has_exact_bits() {
  MITHRIL_RETURN_IF_ERROR(check_process());
  const std::lock_guard lock(mutex_);
  if (!may_round_exactly()) return false;
  if (!is_exact_) {
    MITHRIL_ASSIGN(is_exact_, device::has_exact_bits(*this));
  }
  return *is_exact_;
}

std::shared_ptr<const Program> Driver::loaded(const std::string& text) {
  const std::lock_guard lock(programs_mutex_);
  const auto at = programs_.find(text);
  return at == programs_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<const Program> Driver::remember(const std::string& text,
                                                std::shared_ptr<const Program> program) {
  const std::lock_guard lock(programs_mutex_);
  std::erase_if(programs_, [](const auto& known) { return known.second.expired(); });
  programs_[text] = program;
  return program;
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

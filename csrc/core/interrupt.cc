#include "core/interrupt.h"

#include <utility>

#include "core/status.h"

namespace mithril::core {

namespace {

thread_local Interrupt current;

}  // namespace

const Interrupt& current_interrupt() noexcept { return current; }

ScopedInterrupt::ScopedInterrupt(const Interrupt& interrupt) noexcept
    : before_(std::exchange(current, interrupt)) {}
ScopedInterrupt::~ScopedInterrupt() { current = before_; }

bool is_interrupted() noexcept {
  const Interrupt& interrupt = current;
  if (interrupt.poll != nullptr) interrupt.poll(interrupt.context);
  return interrupt.cancel != nullptr && interrupt.cancel->load(std::memory_order_relaxed);
}

void check_interrupt() {
  if (!is_interrupted()) return;
  throw ErrorException(fail(ErrorKind::kInterrupted, Code::kInterrupted, "interrupted"));
}

}  // namespace mithril::core

// Interrupts end work under way early: a flag that its threads read, and who may set it.
#pragma once
#include <atomic>
#include <cstdint>

namespace mithril::core {

/// Tells the work of one thread whether to end. The thread that a caller waits for has a poll, too,
/// which asks outside (Python for signals) and may set the flag; others read the flag alone.
struct Interrupt {
  const std::atomic<bool>* cancel = nullptr;
  void (*poll)(void*) = nullptr;  // cheap, and does what costs more at times of its own choice
  void* context = nullptr;
};

/// That of this thread; none while nobody waits.
const Interrupt& current_interrupt() noexcept;

/// Makes it that of this thread for as long as the scope lasts.
class ScopedInterrupt {
 public:
  explicit ScopedInterrupt(const Interrupt& interrupt) noexcept;
  ~ScopedInterrupt();
  ScopedInterrupt(const ScopedInterrupt&) = delete;
  ScopedInterrupt& operator=(const ScopedInterrupt&) = delete;

 private:
  Interrupt before_;
};

/// Polls, and tells whether to end: what is written by then is of no use to anybody. Some tens of
/// nanoseconds; to be asked at least every 20 ms.
bool is_interrupted() noexcept;

/// Throws ErrorException (kInterrupted) where it is to end: for code that exceptions may pass.
void check_interrupt();

/// Asks for those who do little at a time: every so many units of work.
class InterruptCounter {
 public:
  explicit InterruptCounter(int64_t between) : between_(between), left_(between) {}
  bool is_interrupted(int64_t work) noexcept {
    left_ -= work;
    if (left_ > 0) return false;
    left_ = between_;
    return core::is_interrupted();
  }
  void check(int64_t work) {
    if (is_interrupted(work)) check_interrupt();
  }

 private:
  int64_t between_, left_;
};

}  // namespace mithril::core

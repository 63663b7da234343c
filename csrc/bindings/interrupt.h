// Python's signals while the engine works.
#pragma once
#include <atomic>
#include <optional>

#include "bindings/gil.h"
#include "core/error.h"
#include "core/interrupt.h"

namespace mithril::bindings {

/// Polls Python's signals for work without the lock. Taking it back may have to wait for others, so
/// that is not done at every poll.
class SignalWatch {
 public:
  SignalWatch();
  core::Interrupt interrupt() { return {&cancel_, poll, this}; }
  /// Raises what a signal's handler raised, if one did. Needs the lock.
  void rethrow();

 private:
  static void poll(void* self);

  std::atomic<bool> cancel_{false};
  int64_t last_;
  std::optional<pybind11::error_already_set> raised_;
};

/// The work without the lock; what a handler raised meanwhile is raised, whatever became of it.
template <class Work>
auto interruptible(const Work& work) {
  SignalWatch watch;
  const auto run = [&] {
    const core::ScopedInterrupt scope(watch.interrupt());
    const GilRelease release;
    return work();
  };
  try {
    auto result = run();
    watch.rethrow();
    return result;
  } catch (const core::ErrorException&) {
    watch.rethrow();
    throw;
  }
}

}  // namespace mithril::bindings

// Which steps ran when, for as long as somebody looks (`PhysicalModel.profile`).
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace mithril::runtime {

/// Nanoseconds of a clock that only goes forward; the one of Python's time.perf_counter_ns.
int64_t now();
/// The system's number of the calling thread; the one of Python's threading.get_native_id.
int64_t thread_id();

/// Any number of threads may add; plans must be kept as long as their events.
class Recording {
 public:
  struct Event {
    const plan::Plan* plan;
    int32_t step;
    int32_t threads;  // that could share it; 0: a device did it
    int64_t thread, start, nanoseconds;
  };
  /// All events of one step.
  struct Total {
    int64_t count = 0, nanoseconds = 0;
    int32_t threads = 1;
  };
  using Key = std::pair<const plan::Plan*, int32_t>;

  explicit Recording(size_t most_events) : most_events_(most_events) {}
  /// Keeps what owns a plan (and those that its steps run).
  void keep(const std::shared_ptr<const void>& owner);
  /// Beyond the most events only totals go on.
  void add(const Event& event);

  std::vector<Event> events() const;
  std::map<Key, Total> totals() const;
  int64_t dropped() const;

 private:
  const size_t most_events_;
  mutable std::mutex mutex_;
  std::map<const void*, std::shared_ptr<const void>> owners_;
  std::vector<Event> events_;
  std::map<Key, Total> totals_;
  int64_t dropped_ = 0;
};

/// Tells programs whether they are recorded: one load where they are not.
class Recorder {
 public:
  /// False where a recording is under way.
  bool start(std::shared_ptr<Recording> recording);
  /// Runs under way go on adding to what they began with.
  std::shared_ptr<Recording> stop();
  std::shared_ptr<Recording> current() const {
    return is_on_.load(std::memory_order_acquire) ? locked() : nullptr;
  }

 private:
  std::shared_ptr<Recording> locked() const;

  std::atomic<bool> is_on_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Recording> recording_;
};

}  // namespace mithril::runtime

// Compiled schedules of the process, so that equal loops share their code.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/schedule/schedule.h"

namespace mithril::cpu::jit {

/// Holds all that a compiled schedule depends on.
struct ScheduleKey {
  tile::Program program;  // widened
  CodeTarget target;
  bool operator==(const ScheduleKey&) const = default;
};

/// Holds the schedules used last, `capacity` of them; whoever runs one holds it himself. Any thread
/// may ask.
class ScheduleCache {
 public:
  using Made = std::shared_ptr<const TileSchedule>;

  explicit ScheduleCache(size_t capacity) : capacity_(capacity) {}
  /// The one of the process.
  static ScheduleCache& process();

  /// The schedule of that key, made without the lock if it is not here; of two that are made at
  /// once the first stays. What `make` gives as null is not kept.
  Made get(const ScheduleKey& key, const std::function<Made()>& make);
  size_t size() const;

 private:
  struct Entry {
    ScheduleKey key;
    size_t hash;
    Made schedule;
  };
  using Place = std::list<Entry>::iterator;

  Made find(const ScheduleKey& key, size_t hash);
  void forget_oldest();

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the one used last in front
  std::unordered_multimap<size_t, Place> by_hash_;
};

}  // namespace mithril::cpu::jit

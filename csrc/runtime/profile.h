// Which kernels ran, how often and for how long (MITHRIL_PROFILE=1).
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mithril::runtime {

/// Counts by kernel. Counters live as long as the profile; any number of threads may add.
class Profile {
 public:
  struct Counter {
    std::atomic<int64_t> count{0}, nanoseconds{0}, bytes{0};
    void add(int64_t elapsed, int64_t moved) {
      count.fetch_add(1, std::memory_order_relaxed);
      nanoseconds.fetch_add(elapsed, std::memory_order_relaxed);
      bytes.fetch_add(moved, std::memory_order_relaxed);
    }
  };
  struct Row {
    std::string kernel;
    int64_t count = 0;
    double seconds = 0.0;
    int64_t bytes = 0;
  };

  /// The process's; null unless MITHRIL_PROFILE is set.
  static Profile* process();

  Counter& counter(const std::string& kernel);
  /// Kernels that ran, the most expensive first.
  std::vector<Row> rows() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Counter>> counters_;
};

/// A table for people; "" without rows.
std::string print(const std::vector<Profile::Row>& rows);

}  // namespace mithril::runtime

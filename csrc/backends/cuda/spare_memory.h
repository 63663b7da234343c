// Memory of a device that nobody uses now and later runs take again.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "backends/cuda/api.h"

namespace mithril::cuda {

/// Keeps allocations by size. The one with the lowest address goes first: runs that allocate in the
/// same order have the same addresses again, in whichever order they gave them back, which graphs
/// need. Any thread may call it.
class SpareMemory {
 public:
  /// `most`: bytes that are kept at most.
  explicit SpareMemory(int64_t most) : most_(most) {}

  /// An allocation of exactly that size; nothing where none is kept.
  std::optional<cu_pointer> take(int64_t bytes);
  /// False where it would be too much, and the allocation stays the caller's.
  bool keep(cu_pointer pointer, int64_t bytes);
  /// All that is kept, for who gives it back to the driver.
  std::vector<cu_pointer> take_all();
  int64_t bytes() const;

  /// Keeps an allocation apart, which take() does not hand out: somebody else may still use it.
  void set_aside(cu_pointer pointer, int64_t bytes);
  int64_t lent_bytes() const;
  /// All that is apart, with bytes, for who then waits for everybody else.
  std::vector<std::pair<cu_pointer, int64_t>> take_lent();

 private:
  const int64_t most_;
  mutable std::mutex mutex_;
  int64_t bytes_ = 0, lent_bytes_ = 0;
  std::map<int64_t, std::set<cu_pointer>> kept_;  // by bytes
  std::vector<std::pair<cu_pointer, int64_t>> lent_;
};

}  // namespace mithril::cuda

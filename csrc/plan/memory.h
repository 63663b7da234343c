// What memory a plan takes while it runs, and what it is taken for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "plan/plan.h"

namespace mithril::plan {

/// Something that lies in memory while the most of the arena is in use.
struct Contributor {
  BufferId buffer = -1;  // -1: what the step `writer` takes for plans that it runs itself
  int64_t bytes = 0;
  int32_t writer = -1;  // step
};

/// In bytes. Buffers count as they are; the arena rounds them up to 64 and may have holes.
struct MemoryUse {
  int64_t arena = 0;    // Plan::arena_bytes
  int64_t regions = 0;  // the most that loops and branches take beside the arena
  int64_t scratch = 0;  // of one thread
  int64_t inputs = 0, outputs = 0, constants = 0;
  int32_t peak_step = -1;  // the first step with the most in use; -1 without steps
  int64_t live = 0;        // in use at that step, with what it takes for plans of its own
  std::vector<Contributor> contributors;  // of `live`, the largest first

  /// Counts the bytes that a run allocates, its caller's scratch included.
  int64_t allocated() const;
};

MemoryUse memory_use(const Plan& plan);

/// Counts the bytes in use at each step, as MemoryUse::live does at the peak.
std::vector<int64_t> live_bytes(const Plan& plan);

/// Whose limit it is and how it may be met, for errors.
struct Limit {
  int64_t bytes = 0;
  std::string_view text = "and this process can have";
  std::string_view hint =
      "memory_plan(shapes).largest(name, memory) finds the largest size that fits";
};

/// A typed error if a run allocates more than that; it names the largest buffers.
core::Status check_memory(const Plan& plan, const Limit& limit);

/// Appends to an error of memory what a run takes and what its largest buffers are.
void name_largest(const Plan& plan, core::Error& error);

/// "512 bytes", "1.5 GB": decimal, as sizes of memory are given to `memory_plan`.
std::string print_bytes(int64_t bytes);

}  // namespace mithril::plan

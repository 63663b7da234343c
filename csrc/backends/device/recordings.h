// Steps of a plan as command buffers, by where their operands are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/device/driver.h"
#include "backends/device/plan_code.h"

namespace mithril::device {

/// Keeps the command buffers of one plan: one for each set of addresses of its operands, those that
/// were used last. Whoever uses it holds the driver's mutex.
class Recordings {
 public:
  using Addresses = std::vector<const void*>;
  struct Entry {
    Addresses addresses;
    std::unique_ptr<const CommandBuffer> commands;  // null: nobody has recorded them yet
    bool is_new = true;                             // these addresses were not met before
  };
  static constexpr size_t kMost = 8;  // a step of training may read and write in turn

  /// Finds the entry of these addresses, or makes one in the place of that used longest ago.
  Entry& at(Addresses addresses);
  size_t size() const { return entries_.size(); }

  /// Says that the device does not take what these steps are: they are enqueued one by one.
  void give_up();
  bool has_given_up() const { return has_given_up_; }

 private:
  std::vector<Entry> entries_;  // the last used one first
  bool has_given_up_ = false;
};

/// Counts the commands that steps enqueue, and estimates for how long these keep one core of a CPU
/// busy.
struct Commands {
  int64_t count = 0;
  double nanoseconds = 0;
};

/// Nothing where the host takes part, as it computes a step or reads a condition, or where they are
/// more than a device can be asked to keep.
std::optional<Commands> commands_of(const PlanCode& code);

}  // namespace mithril::device

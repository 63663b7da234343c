// Steps of a plan as command buffers, by where their operands are.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backends/device/driver.h"

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

}  // namespace mithril::device

// How far the host may be ahead of the queue of a device.
#pragma once
#include <algorithm>
#include <cmath>

namespace mithril::device {

/// An interrupt waits for what is enqueued, which therefore is never much. Nanoseconds are
/// estimated for a core of a CPU; how long waits take tells how the device compares with that.
class Lead {
 public:
  /// Each wait costs a GPU, whose queue is empty then, more than a CPU.
  static constexpr double kMostOfCpu = 2e6, kMostOfGpu = 100e6;

  explicit Lead(double most) : most_(most) {}

  /// Estimated nanoseconds that may be enqueued before somebody waits.
  double nanoseconds() const { return nanoseconds_; }
  /// The most that they grow to.
  double most() const { return most_; }

  /// Notes how long a wait for so much took.
  void note_wait(double enqueued, double took) {
    if (!std::isfinite(enqueued)) return;  // a loop, of which nobody knows
    if (took <= kLongestWait) {
      nanoseconds_ = std::min(std::max(nanoseconds_, 2 * enqueued), most_);
    } else {
      const double as_much = enqueued * kLongestWait / took;
      nanoseconds_ = std::max(std::min(nanoseconds_, as_much), kLeast);
    }
  }

 private:
  static constexpr double kLongestWait = 20e6;  // a tenth of what Ctrl-C may take
  static constexpr double kLeast = 1;           // every step is waited for

  double most_, nanoseconds_ = kMostOfCpu;  // until the device is known to be fast
};

}  // namespace mithril::device

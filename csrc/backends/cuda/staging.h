// Pinned memory of the host that copies to and from a device go through: the device reads and
// writes it by itself, while the host goes on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace mithril::cuda {

/// A piece of pinned memory that is handed out from its beginning to its end, and again when the
/// queue is through with all of it. Any thread may use it.
class Staging {
 public:
  /// Copies of at most these bytes go through it: larger ones take longer than to start them does.
  static constexpr int64_t kLargest = 1 << 20;
  static constexpr int64_t kBytes = 8 * kLargest;

  /// `memory` of kBytes; null: there is none.
  void open(std::byte* memory);

  /// Counts the places and reads that there were; those behind are later ones.
  struct Mark {
    uint64_t places = 0, reads = 0;
  };
  /// Ask before the queue is waited for, and say afterwards whether it is through: then what was
  /// read goes to the host, and places are free again. Else what this thread has read goes nowhere,
  /// as its host memory may go, and the queue may still use the places.
  Mark mark() const;
  void release(const Mark& mark, bool is_through);

  /// Calls `enqueue(place)` with room for so many bytes, which hold those of `host`; null where
  /// there is no room.
  template <class Enqueue>
  auto write(const void* host, int64_t bytes, const Enqueue& enqueue) {
    std::unique_lock lock(mutex_);
    std::byte* const place = take(bytes);
    if (place != nullptr) {
      copy(place, host, bytes);
    } else {
      lock.unlock();  // the driver may be long about it
    }
    return enqueue(place);
  }
  /// The same for bytes that the device writes, which release() takes to `host`.
  template <class Enqueue>
  auto read(void* host, int64_t bytes, const Enqueue& enqueue) {
    std::unique_lock lock(mutex_);
    std::byte* const place = take(bytes);
    if (place == nullptr) {
      lock.unlock();
      return enqueue(place);
    }
    auto status = enqueue(place);
    if (status.ok()) {
      reads_.push_back({count_.reads++, std::this_thread::get_id(), host, place, bytes});
    }
    return status;
  }

 private:
  struct Read {
    uint64_t number;
    std::thread::id reader;
    void* host;
    const std::byte* place;
    int64_t bytes;
  };
  std::byte* take(int64_t bytes);
  static void copy(void* to, const void* from, int64_t bytes);

  mutable std::mutex mutex_;
  std::byte* memory_ = nullptr;
  int64_t used_ = 0;
  Mark count_;
  std::vector<Read> reads_;
};

}  // namespace mithril::cuda

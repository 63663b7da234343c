// Output buffers: counted memory that an array object can own, used again once nobody holds it.
#pragma once
#include <atomic>
#include <cstddef>
#include <utility>

#include "core/status.h"
#include "runtime/arena_pool.h"

namespace mithril::runtime {

/// A block with a count of its holders in front of the data. Never made by hand: `Buffer` is the
/// holder, and a foreign object (the base of a NumPy array) may be one by `release` and `adopt`.
struct BufferBlock {
  std::atomic<size_t> holders;
  size_t bytes;        // what was asked for
  size_t class_bytes;  // with this header
};

/// Shares one block of memory; the last holder to go gives it back. The data are 64-byte aligned
/// and not cleared. Holders may live on different threads.
class Buffer {
 public:
  Buffer() = default;
  /// Zero bytes give a buffer with a data pointer that must not be read. Fails with MemoryError.
  static core::Result<Buffer> make(size_t bytes);

  ~Buffer() { drop(); }
  Buffer(const Buffer& other) : block_(other.block_) {
    if (block_ != nullptr) block_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }

  explicit operator bool() const { return block_ != nullptr; }
  std::byte* data() const;
  size_t bytes() const { return block_ == nullptr ? 0 : block_->bytes; }
  bool is_shared() const { return block_ != nullptr && block_->holders.load() > 1; }

  /// Hands this holder's share to foreign code; `adopt` of the same pointer takes it back.
  BufferBlock* release() { return std::exchange(block_, nullptr); }
  static Buffer adopt(BufferBlock* block) { return Buffer(block); }

 private:
  explicit Buffer(BufferBlock* block) : block_(block) {}
  void drop();

  BufferBlock* block_ = nullptr;
};

/// The free list behind `Buffer::make`.
BlockPool& buffer_pool();

}  // namespace mithril::runtime

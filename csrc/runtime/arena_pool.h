// Memory that is used again: blocks by size class, and the arenas that runs of plans take.
#pragma once
#include <array>
#include <cstddef>
#include <mutex>
#include <utility>

#include "core/status.h"

namespace mithril::runtime {

/// Keeps blocks that were given back, by size class. Blocks are 64-byte aligned; those of 2 MiB
/// and more lie on huge pages where the system allows it, and all their pages are there when they
/// are first handed out. Thread-safe; a forked child may go on using it.
class BlockPool {
 public:
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;  // of the whole class, at least what was asked for
  };

  /// At most `keep_bytes` stay in the pool; but the block given back last always stays.
  explicit BlockPool(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~BlockPool() { clear(); }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// At least `bytes` of uncleared memory, or MemoryError. Zero bytes give a null block.
  core::Result<Block> take(size_t bytes);
  void give_back(Block block);
  /// Returns all that is kept to the system.
  void clear();
  size_t kept_bytes() const;
  /// Holds or frees the lock around fork(); for pthread_atfork.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  /// The size that a request is rounded up to: eight steps to each power of two, 4 KiB pages from
  /// 32 KiB on. 0 when it cannot be had.
  static size_t class_bytes(size_t bytes);

 private:
  // A free block's first bytes hold the link.
  struct Free {
    Free* next;
    size_t bytes;
  };
  static constexpr size_t kClasses = 48 * 8;
  static size_t class_index(size_t class_bytes);
  void evict_others(size_t index);

  mutable std::mutex mutex_;
  const size_t keep_bytes_;
  size_t kept_ = 0;
  std::array<Free*, kClasses> free_{};
};

/// Fills memory with 0x7FF7: NaN read as any float type (a signalling one as float64), an odd
/// number as any integer. What reads before it writes shows.
void poison(void* memory, size_t bytes);

/// The intermediates of one run; goes back to its pool when it dies.
class Arena {
 public:
  Arena() = default;
  Arena(BlockPool* pool, BlockPool::Block block) : pool_(pool), block_(block) {}
  ~Arena() { reset(); }
  Arena(Arena&& other) noexcept
      : pool_(other.pool_), block_(std::exchange(other.block_, BlockPool::Block{})) {}
  Arena& operator=(Arena&& other) noexcept {
    reset();
    pool_ = other.pool_;
    block_ = std::exchange(other.block_, BlockPool::Block{});
    return *this;
  }
  std::byte* data() const { return static_cast<std::byte*>(block_.data); }
  size_t bytes() const { return block_.bytes; }

 private:
  void reset();

  BlockPool* pool_ = nullptr;
  BlockPool::Block block_;
};

/// An arena of the process's pool, poisoned when MITHRIL_POISON is set. Calls at the same time get
/// different arenas; each thread keeps the small one that it used last.
core::Result<Arena> take_arena(size_t bytes);

/// The pool behind `take_arena`.
BlockPool& arena_pool();

}  // namespace mithril::runtime

#include "runtime/arena_pool.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <pthread.h>

#include <sys/mman.h>

#include "core/env.h"
#include "core/interrupt.h"

namespace mithril::runtime {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargest = size_t{1} << 46;
constexpr int64_t kTouchedBetweenPolls = int64_t{8} << 20;
constexpr size_t kKeptArenas = size_t{1} << 30;

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

// Maps more than asked for, and gives back what lies outside the huge pages.
void* map_huge(size_t bytes) {
  const size_t total = bytes + kHugePage;
  void* mapped = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapped);
  const size_t before =
      round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (before != 0) munmap(begin, before);
  if (kHugePage != before) munmap(begin + before + bytes, kHugePage - before);
#if defined(MADV_HUGEPAGE)
  madvise(begin + before, bytes, MADV_HUGEPAGE);
#endif
  return begin + before;
}

void release(void* data, size_t bytes) {
  if (bytes >= kHugePage) {
    munmap(data, bytes);
  } else {
    std::free(data);
  }
}

// Whoever waits for gigabytes to be touched may be told not to.
void* allocate(size_t bytes) {
  void* data = bytes >= kHugePage ? map_huge(bytes) : std::aligned_alloc(kAlignment, bytes);
  if (data == nullptr) return nullptr;
  core::InterruptCounter interrupts(kTouchedBetweenPolls);
  for (size_t at = 0; at < bytes; at += kPage) {
    static_cast<volatile char*>(data)[at] = 0;
    if (!interrupts.is_interrupted(kPage)) continue;
    release(data, bytes);
    return nullptr;
  }
  return data;
}

core::Error out_of_memory(size_t bytes) {
  return core::fail(core::ErrorKind::kMemory, core::Code::kOutOfMemory,
                    "memory: {} bytes cannot be allocated", bytes);
}

}  // namespace

size_t BlockPool::class_bytes(size_t bytes) {
  if (bytes > kLargest) return 0;
  if (bytes <= 8 * kAlignment) return round_up(bytes, kAlignment);
  const size_t step = std::bit_floor(bytes - 1) / 8;
  const size_t rounded = round_up(bytes, step);
  return rounded < 8 * kPage ? rounded : round_up(rounded, kPage);
}

size_t BlockPool::class_index(size_t class_bytes) {
  if (class_bytes <= 8 * kAlignment) return class_bytes / kAlignment - 1;
  const auto power = static_cast<size_t>(std::bit_width(class_bytes - 1) - 1);
  const size_t step = (size_t{1} << power) / 8;
  return 8 + (power - 9) * 8 + (class_bytes - 1 - (size_t{1} << power)) / step;
}

core::Result<BlockPool::Block> BlockPool::take(size_t bytes) {
  if (bytes == 0) return Block{};
  const size_t whole = class_bytes(bytes);
  if (whole == 0) return out_of_memory(bytes);
  {
    const std::lock_guard lock(mutex_);
    Free*& head = free_[class_index(whole)];
    if (head != nullptr) {
      Free* found = std::exchange(head, head->next);
      kept_ -= whole;
      return Block{found, whole};
    }
  }
  void* data = allocate(whole);
  if (data == nullptr) {
    clear();  // what is kept for later may be what is missing now
    data = allocate(whole);
  }
  if (data == nullptr) return out_of_memory(bytes);
  return Block{data, whole};
}

void BlockPool::give_back(Block block) {
  if (block.data == nullptr) return;
  const std::lock_guard lock(mutex_);
  const size_t index = class_index(block.bytes);
  if (kept_ + block.bytes > keep_bytes_) evict_others(index);
  if (kept_ + block.bytes > keep_bytes_ && free_[index] != nullptr) {
    release(block.data, block.bytes);
    return;
  }
  free_[index] = new (block.data) Free{free_[index], block.bytes};
  kept_ += block.bytes;
}

// Other sizes are from other models or shapes; the one just used is the likeliest to come again.
void BlockPool::evict_others(size_t index) {
  for (size_t other = kClasses; other-- > 0;) {
    if (other == index) continue;
    while (free_[other] != nullptr) {
      Free* victim = std::exchange(free_[other], free_[other]->next);
      kept_ -= victim->bytes;
      release(victim, victim->bytes);
    }
  }
}

void BlockPool::clear() {
  const std::lock_guard lock(mutex_);
  evict_others(kClasses);
}

size_t BlockPool::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

void poison(void* memory, size_t bytes) {
  auto* words = static_cast<uint16_t*>(memory);
  std::fill(words, words + bytes / sizeof(uint16_t), uint16_t{0x7FF7});
}

namespace {

constexpr size_t kKeptByThread = size_t{256} << 10;

// The small arena that a thread used last: its next run takes no lock, and finds it in the cache.
struct KeptArena {
  BlockPool::Block block;
  ~KeptArena() { arena_pool().give_back(block); }

  bool keep(BlockPool::Block given) {
    if (given.bytes > kKeptByThread || given.bytes <= block.bytes) return false;
    arena_pool().give_back(std::exchange(block, given));
    return true;
  }
};
thread_local KeptArena kept_arena;

}  // namespace

void Arena::reset() {
  const BlockPool::Block block = std::exchange(block_, {});
  if (block.data == nullptr || (pool_ == &arena_pool() && kept_arena.keep(block))) return;
  pool_->give_back(block);
}

BlockPool& arena_pool() {
  static BlockPool* pool = [] {
    auto* made = new BlockPool(kKeptArenas);  // never destroyed: arenas may outlive statics
    pthread_atfork([] { arena_pool().lock(); }, [] { arena_pool().unlock(); },
                   [] { arena_pool().unlock(); });
    return made;
  }();
  return *pool;
}

core::Result<Arena> take_arena(size_t bytes) {
  BlockPool::Block block;
  if (bytes != 0 && bytes <= kept_arena.block.bytes) {
    block = std::exchange(kept_arena.block, {});
  } else {
    MITHRIL_ASSIGN(block, arena_pool().take(bytes));
  }
  Arena arena(&arena_pool(), block);
  if (core::env().poison) poison(arena.data(), arena.bytes());
  return arena;
}

}  // namespace mithril::runtime

#include "runtime/buffer.h"

#include <algorithm>
#include <new>
#include <pthread.h>

#include "runtime/memory_limit.h"

namespace mithril::runtime {

namespace {

constexpr size_t kHeader = 64;
constexpr int64_t kLeastKept = int64_t{256} << 20, kMostKept = int64_t{2} << 30;
static_assert(sizeof(BufferBlock) <= kHeader);

}  // namespace

// A step of training gives as much back as it makes: memory that went to the system meanwhile would
// be mapped and cleared anew each time.
BlockPool& buffer_pool() {
  static BlockPool* pool = [] {
    const int64_t kept = std::clamp(memory_limit() / 8, kLeastKept, kMostKept);
    auto* made =
        new BlockPool(static_cast<size_t>(kept));  // never destroyed: arrays outlive statics
    pthread_atfork([] { buffer_pool().lock(); }, [] { buffer_pool().unlock(); },
                   [] { buffer_pool().unlock(); });
    return made;
  }();
  return *pool;
}

core::Result<Buffer> Buffer::make(size_t bytes) {
  const size_t whole = bytes > SIZE_MAX - kHeader ? SIZE_MAX : bytes + kHeader;
  MITHRIL_ASSIGN(const BlockPool::Block block, buffer_pool().take(whole));
  return adopt(new (block.data) BufferBlock{1, bytes, block.bytes});
}

std::byte* Buffer::data() const {
  return block_ == nullptr ? nullptr : reinterpret_cast<std::byte*>(block_) + kHeader;
}

void Buffer::drop() {
  if (block_ == nullptr || block_->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const size_t class_bytes = block_->class_bytes;
  block_->~BufferBlock();
  buffer_pool().give_back({block_, class_bytes});
}

}  // namespace mithril::runtime

#include "runtime/buffer.h"

#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::runtime {
namespace {

TEST(Buffer, IsAlignedAndHasItsSize) {
  for (const size_t bytes : {0, 1, 63, 64, 65, 4096, 3'000'000}) {
    const Buffer buffer = Buffer::make(bytes).or_throw();
    EXPECT_EQ(buffer.bytes(), bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    std::memset(buffer.data(), 7, bytes);
  }
}

TEST(Buffer, NoneIsEmpty) {
  const Buffer none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_FALSE(none.is_shared());
}

TEST(Buffer, LastHolderGivesItBack) {
  buffer_pool().clear();
  Buffer first = Buffer::make(10'000).or_throw();
  const std::byte* data = first.data();
  {
    const Buffer second = first;
    EXPECT_TRUE(first.is_shared());
    first = Buffer();
    EXPECT_EQ(buffer_pool().kept_bytes(), 0u);
    EXPECT_EQ(second.data(), data);
  }
  EXPECT_GT(buffer_pool().kept_bytes(), 0u);
  EXPECT_EQ(Buffer::make(10'000).or_throw().data(), data);
}

TEST(Buffer, ForeignOwnersHoldAShare) {
  buffer_pool().clear();
  Buffer buffer = Buffer::make(500).or_throw();
  BufferBlock* foreign = Buffer(buffer).release();
  EXPECT_TRUE(buffer.is_shared());
  const std::byte* data = buffer.data();
  buffer = Buffer();
  EXPECT_EQ(buffer_pool().kept_bytes(), 0u);
  EXPECT_EQ(Buffer::adopt(foreign).data(), data);  // dies here
  EXPECT_GT(buffer_pool().kept_bytes(), 0u);
}

TEST(Buffer, TooLargeIsATypedError) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 63, size_t{1} << 50}) {
    auto result = Buffer::make(bytes);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, core::ErrorKind::kMemory);
  }
}

TEST(Buffer, HoldersOnManyThreads) {
  const Buffer shared = Buffer::make(100).or_throw();
  std::vector<std::thread> threads;
  for (int id = 0; id < 8; ++id) {
    threads.emplace_back([shared] {
      for (int round = 0; round < 1000; ++round) {
        const Buffer copy = shared;
        const Buffer own = Buffer::make(200).or_throw();
        ASSERT_NE(copy.data(), own.data());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(shared.is_shared());
}

TEST(Buffer, MakingAndDroppingDoesNotGrow) {
  for (int i = 0; i < 100; ++i) static_cast<void>(Buffer::make(1000));
  const size_t kept = buffer_pool().kept_bytes();
  for (int i = 0; i < 10'000; ++i) static_cast<void>(Buffer::make(1000));
  EXPECT_EQ(buffer_pool().kept_bytes(), kept);
}

}  // namespace
}  // namespace mithril::runtime

#include "runtime/arena_pool.h"

#include <cmath>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace mithril::runtime {
namespace {

TEST(BlockPool, ClassesHoldTheRequestAndWasteLittle) {
  for (size_t bytes = 1; bytes < (size_t{1} << 40); bytes += bytes / 7 + 1) {
    const size_t whole = BlockPool::class_bytes(bytes);
    ASSERT_GE(whole, bytes);
    ASSERT_EQ(whole % 64, 0u) << bytes;
    ASSERT_LE(whole, bytes + bytes / 8 + 64 + (bytes > 32'000 ? 4096 : 0)) << bytes;
    ASSERT_EQ(BlockPool::class_bytes(whole), whole) << bytes;
  }
  EXPECT_EQ(BlockPool::class_bytes(0), 0u);
  EXPECT_EQ(BlockPool::class_bytes(SIZE_MAX), 0u);
}

TEST(BlockPool, GivesBackWhatItWasGiven) {
  BlockPool pool(1 << 20);
  auto first = pool.take(1000).or_throw();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data) % 64, 0u);
  pool.give_back(first);
  EXPECT_EQ(pool.kept_bytes(), first.bytes);
  EXPECT_EQ(pool.take(990).or_throw().data, first.data);  // the same class
  EXPECT_EQ(pool.kept_bytes(), 0u);
  pool.give_back(first);
}

TEST(BlockPool, DifferentClassesNeverMix) {
  BlockPool pool(size_t{1} << 30);
  std::vector<BlockPool::Block> blocks;
  for (size_t bytes = 1; bytes < 300'000; bytes += bytes / 20 + 1) {
    blocks.push_back(pool.take(bytes).or_throw());
    std::memset(blocks.back().data, 1, blocks.back().bytes);
  }
  for (const auto& block : blocks) pool.give_back(block);
  for (size_t bytes = 1; bytes < 300'000; bytes += bytes / 30 + 1) {
    const auto block = pool.take(bytes).or_throw();
    ASSERT_GE(block.bytes, bytes);
    ASSERT_EQ(block.bytes, BlockPool::class_bytes(bytes));
    std::memset(block.data, 2, block.bytes);
    pool.give_back(block);
  }
}

TEST(BlockPool, LargeBlocksLieOnHugePageBoundaries) {
  BlockPool pool(size_t{1} << 30);
  const auto block = pool.take(5'000'000).or_throw();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % (2 << 20), 0u);
  std::memset(block.data, 3, block.bytes);
  pool.give_back(block);
}

TEST(BlockPool, KeepsNoMoreThanItMay) {
  BlockPool pool(10'000);
  std::vector<BlockPool::Block> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(pool.take(1024).or_throw());
  for (const auto& block : blocks) pool.give_back(block);
  EXPECT_LE(pool.kept_bytes(), 10'000u);
  EXPECT_GE(pool.kept_bytes(), 8'000u);
}

TEST(BlockPool, KeepsTheLastBlockWhateverItsSize) {
  BlockPool pool(10'000);
  const auto small = pool.take(1024).or_throw();
  const auto big = pool.take(1'000'000).or_throw();
  pool.give_back(small);
  pool.give_back(big);
  EXPECT_EQ(pool.kept_bytes(), big.bytes);
  EXPECT_EQ(pool.take(1'000'000).or_throw().data, big.data);
  pool.give_back(big);
}

TEST(BlockPool, WhatCannotBeHadIsATypedError) {
  BlockPool pool(0);
  for (const size_t bytes : {SIZE_MAX, size_t{1} << 47, size_t{1} << 63}) {
    auto result = pool.take(bytes);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, core::ErrorKind::kMemory);
    EXPECT_EQ(result.error().code, core::Code::kOutOfMemory);
  }
  auto result = pool.take(SIZE_MAX);
  EXPECT_EQ(result.error().message, "memory: 18446744073709551615 bytes cannot be allocated");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(BlockPool, RefusalByTheSystemIsATypedErrorToo) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{size_t{1} << 30, size_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    BlockPool pool(0);
    _exit(pool.take(size_t{2} << 30).ok() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

TEST(Arena, ReturnsToThePoolWhenItDies) {
  BlockPool pool(1 << 20);
  {
    Arena arena(&pool, pool.take(5000).or_throw());
    Arena moved = std::move(arena);
    EXPECT_EQ(arena.data(), nullptr);  // NOLINT(bugprone-use-after-move)
    EXPECT_NE(moved.data(), nullptr);
    EXPECT_EQ(pool.kept_bytes(), 0u);
    moved = Arena(&pool, pool.take(100).or_throw());
    EXPECT_GE(pool.kept_bytes(), 5000u);
  }
  EXPECT_GE(pool.kept_bytes(), 5100u);
}

TEST(Arena, EmptyOneHasNoData) {
  const Arena arena = take_arena(0).or_throw();
  EXPECT_EQ(arena.data(), nullptr);
  EXPECT_EQ(arena.bytes(), 0u);
}

TEST(Arena, PoisonIsNaNForEveryFloat) {
  Arena arena = take_arena(1000).or_throw();
  poison(arena.data(), arena.bytes());
  for (size_t at = 0; at + 8 <= arena.bytes(); at += 4) {
    float f = 0;
    std::memcpy(&f, arena.data() + at, sizeof f);
    EXPECT_TRUE(std::isnan(f));
    double d = 0;
    std::memcpy(&d, arena.data() + at, sizeof d);
    EXPECT_TRUE(std::isnan(d));
    uint16_t half = 0;
    std::memcpy(&half, arena.data() + at, sizeof half);
    EXPECT_EQ(half & 0x7C00, 0x7C00);  // float16: exponent all ones
    EXPECT_NE(half & 0x03FF, 0);
    EXPECT_EQ(half & 0x7F80, 0x7F80);  // bfloat16 likewise
    EXPECT_NE(half & 0x007F, 0);
  }
}

TEST(Arena, AThreadKeepsItsLastSmallOne) {
  const void* first = nullptr;
  {
    const Arena arena = take_arena(40'000).or_throw();
    const Arena inner = take_arena(100).or_throw();
    EXPECT_NE(arena.data(), inner.data());
    first = arena.data();
  }
  const size_t kept = arena_pool().kept_bytes();
  const Arena again = take_arena(30'000).or_throw();
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(arena_pool().kept_bytes(), kept);  // the pool had no part in it
  std::thread([&] { EXPECT_NE(take_arena(30'000).or_throw().data(), first); }).join();
}

TEST(Arena, WhatAThreadKeptGoesBackWithIt) {
  const size_t before = arena_pool().kept_bytes();
  std::thread([] { take_arena(50'000).or_throw(); }).join();
  EXPECT_GE(arena_pool().kept_bytes() + 300'000, before);
  const size_t kept = arena_pool().kept_bytes();
  std::thread([] { take_arena(50'000).or_throw(); }).join();
  EXPECT_EQ(arena_pool().kept_bytes(), kept);
}

TEST(Arena, CallsAtOnceGetDifferentOnes) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int id = 1; id <= 8; ++id) {
    threads.emplace_back([&, id] {
      for (int round = 0; round < 200; ++round) {
        const Arena arena = take_arena(4096).or_throw();
        std::memset(arena.data(), id, arena.bytes());
        for (size_t i = 0; i < arena.bytes(); i += 512) {
          if (arena.data()[i] != static_cast<std::byte>(id)) wrong.fetch_add(1);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mithril::runtime

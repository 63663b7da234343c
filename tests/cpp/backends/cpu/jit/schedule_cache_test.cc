#include "backends/cpu/jit/schedule_cache.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tile/builder.h"

namespace mithril::cpu::jit {
namespace {

ScheduleKey key(double number) {
  tile::Builder t;
  t.store(t.load(core::DType::kFloat32) * number);
  return {t.finish(), {Isa::kAvx2, Layout::kPointwise}};
}

ScheduleCache::Made make() { return std::make_shared<const TileSchedule>(); }

TEST(ScheduleCache, MakesOncePerKey) {
  ScheduleCache cache(4);
  const auto first = cache.get(key(1), make);
  EXPECT_EQ(cache.get(key(1), make), first);
  EXPECT_NE(cache.get(key(2), make), first);
  for (ScheduleKey other : {key(1), key(1), key(1), key(1)}) {
    static int which = 0;
    if (which == 0) other.target.isa = Isa::kAvx512;
    if (which == 1) other.target.layout = Layout::kRowInside;
    if (which == 2) other.target.recompute = true;
    if (which == 3) other.target.streams = true;
    ++which;
    EXPECT_NE(cache.get(other, make), first);
  }
}

TEST(ScheduleCache, ForgetsWhatWasUsedLongestAgo) {
  ScheduleCache cache(2);
  const auto one = cache.get(key(1), make), two = cache.get(key(2), make);
  cache.get(key(1), make);
  cache.get(key(3), make);  // the second goes
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.get(key(1), make), one);
  EXPECT_NE(cache.get(key(2), make), two);
}

TEST(ScheduleCache, DoesNotKeepWhatCouldNotBeMade) {
  ScheduleCache cache(2);
  EXPECT_EQ(cache.get(key(1), [] { return ScheduleCache::Made(); }), nullptr);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_NE(cache.get(key(1), make), nullptr);
}

TEST(ScheduleCache, TheFirstOfTwoStays) {
  ScheduleCache cache(2);
  ScheduleCache::Made inner;
  const auto outer = cache.get(key(1), [&] {
    inner = cache.get(key(1), make);
    return make();
  });
  EXPECT_EQ(outer, inner);
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ScheduleCache, AnyThreadMayAsk) {
  ScheduleCache cache(8);
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_NE(cache.get(key(i % 12), make), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.size(), 8u);
}

}  // namespace
}  // namespace mithril::cpu::jit

#include "backends/cuda/staging.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/status.h"

namespace mithril::cuda {
namespace {

class StagingTest : public ::testing::Test {
 protected:
  StagingTest() { staging_.open(memory_.data()); }

  /// Returns where the bytes of a write are; null: it goes around.
  std::byte* write(const void* host, int64_t bytes) {
    return staging_.write(host, bytes, [](std::byte* place) { return place; });
  }
  std::byte* read(void* host, int64_t bytes) {
    std::byte* out = nullptr;
    const auto enqueue = [&](std::byte* place) {
      out = place;
      return core::Status();
    };
    EXPECT_TRUE(staging_.read(host, bytes, enqueue).ok());
    return out;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(Staging::kBytes);
  Staging staging_;
};

TEST_F(StagingTest, KeepsWhatIsWrittenUntilTheQueueIsThrough) {
  int64_t one = 1, two = 2;
  std::byte* const first = write(&one, sizeof one);
  const Staging::Mark mark = staging_.mark();
  std::byte* const second = write(&two, sizeof two);
  ASSERT_NE(first, second);
  one = two = 3;
  EXPECT_EQ(std::to_integer<int>(*first), 1);
  EXPECT_EQ(std::to_integer<int>(*second), 2);
  staging_.release(mark, true);  // the second one may be on its way
  EXPECT_NE(write(&one, sizeof one), first);
  staging_.release(staging_.mark(), true);
  EXPECT_EQ(write(&one, sizeof one), first);
}

TEST_F(StagingTest, ReadsArriveOnceTheQueueIsThrough) {
  const int64_t one = 1;
  int64_t early = 0, late = 0;
  std::byte* const first = read(&early, sizeof early);
  const Staging::Mark mark = staging_.mark();
  std::byte* const second = read(&late, sizeof late);
  *first = *second = std::byte{7};
  EXPECT_EQ(early, 0);
  staging_.release(mark, true);
  EXPECT_EQ(early, 7);
  EXPECT_EQ(late, 0);
  early = 0;
  staging_.release(staging_.mark(), false);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(late, 0);
  EXPECT_NE(write(&one, sizeof one), first);
  staging_.release(staging_.mark(), true);
  EXPECT_EQ(late, 0);
  EXPECT_EQ(write(&one, sizeof one), first);
}

TEST_F(StagingTest, AWaitThatFailsTakesNothingFromOtherThreads) {
  int64_t mine = 0;
  *read(&mine, sizeof mine) = std::byte{7};
  std::thread([&] { staging_.release(staging_.mark(), false); }).join();
  staging_.release(staging_.mark(), true);
  EXPECT_EQ(mine, 7);
}

TEST_F(StagingTest, LargeCopiesAndThoseForWhichThereIsNoRoomGoAround) {
  std::vector<std::byte> large(Staging::kLargest + 1);
  EXPECT_EQ(write(large.data(), Staging::kLargest + 1), nullptr);
  for (int64_t i = 0; i < Staging::kBytes / Staging::kLargest; ++i) {
    EXPECT_NE(write(large.data(), Staging::kLargest), nullptr);
  }
  EXPECT_EQ(write(large.data(), 1), nullptr);
  staging_.release(staging_.mark(), true);
  EXPECT_NE(write(large.data(), 1), nullptr);
  Staging none;
  const std::byte byte{};
  EXPECT_EQ(none.write(&byte, 1, [](std::byte* place) { return place; }), nullptr);
}

}  // namespace
}  // namespace mithril::cuda

#include "backends/cuda/spare_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mithril::cuda {
namespace {

TEST(SpareMemory, GivesTheLowestAddressOfThatSize) {
  SpareMemory spare(1 << 20);
  EXPECT_EQ(spare.take(512), std::nullopt);
  for (const cu_pointer pointer : {3, 1, 2}) EXPECT_TRUE(spare.keep(pointer, 512));
  EXPECT_TRUE(spare.keep(4, 1024));
  EXPECT_EQ(spare.bytes(), 3 * 512 + 1024);
  EXPECT_EQ(spare.take(512), 1U);
  EXPECT_TRUE(spare.keep(1, 512));
  EXPECT_EQ(spare.take(512), 1U);
  EXPECT_EQ(spare.take(1024), 4U);
  EXPECT_EQ(spare.take(1024), std::nullopt);
  EXPECT_THAT(spare.take_all(), ::testing::ElementsAre(2, 3));
  EXPECT_EQ(spare.bytes(), 0);
  EXPECT_TRUE(spare.take_all().empty());
}

TEST(SpareMemory, KeepsNoMoreThanItMay) {
  SpareMemory spare(1000);
  EXPECT_TRUE(spare.keep(1, 600));
  EXPECT_FALSE(spare.keep(2, 401));
  EXPECT_TRUE(spare.keep(3, 400));
  EXPECT_FALSE(spare.keep(4, 1));
  EXPECT_EQ(spare.take(600), 1U);
  EXPECT_TRUE(spare.keep(2, 401));
}

TEST(SpareMemory, HandsOutNothingThatIsLent) {
  SpareMemory spare(1 << 20);
  spare.set_aside(7, 512);
  spare.set_aside(8, 1024);
  EXPECT_EQ(spare.take(512), std::nullopt);
  EXPECT_TRUE(spare.take_all().empty());
  EXPECT_EQ(spare.bytes(), 0);
  EXPECT_EQ(spare.lent_bytes(), 512 + 1024);
  EXPECT_THAT(spare.take_lent(), ::testing::ElementsAre(std::pair(7, 512), std::pair(8, 1024)));
  EXPECT_EQ(spare.lent_bytes(), 0);
  EXPECT_TRUE(spare.take_lent().empty());
}

}  // namespace
}  // namespace mithril::cuda

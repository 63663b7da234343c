#include "core/checked.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(CheckedAdd, GivesTheSumInsideTheRange) {
  EXPECT_EQ(checked_add(2, 3), 5);
  EXPECT_EQ(checked_add(kMax, 0), kMax);
  EXPECT_EQ(checked_add(kMax, kMin), -1);
}

TEST(CheckedAdd, RefusesToWrap) {
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add(kMin, -1), std::nullopt);
}

TEST(CheckedMul, GivesTheProductInsideTheRange) {
  EXPECT_EQ(checked_mul(-4, 5), -20);
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
}

TEST(CheckedMul, RefusesToWrap) {
  EXPECT_EQ(checked_mul(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_mul(kMin, -1), std::nullopt);
}

std::optional<int64_t> count(const std::vector<int64_t>& dims) { return element_count(dims); }

TEST(ElementCount, MultipliesTheDims) {
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({7}), 7);
  EXPECT_EQ(count({2, 3, 4}), 24);
}

TEST(ElementCount, IsZeroWithAZeroDim) {
  EXPECT_EQ(count({0}), 0);
  EXPECT_EQ(count({3, 0, 5}), 0);
}

TEST(ElementCount, RefusesNegativeDimsAnywhere) {
  EXPECT_EQ(count({-1}), std::nullopt);
  EXPECT_EQ(count({0, -1}), std::nullopt);
  EXPECT_EQ(count({kMin, kMin}), std::nullopt);
}

TEST(ElementCount, RefusesOverflowEvenBesideAZeroDim) {
  EXPECT_EQ(count({kMax, 2}), std::nullopt);
  EXPECT_EQ(count({0, kMax, 2}), std::nullopt);
  EXPECT_EQ(count({kMax, 2, 0}), std::nullopt);
}

}  // namespace
}  // namespace mithril::core

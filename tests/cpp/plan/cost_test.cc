#include "plan/cost.h"

#include <cmath>

#include <gtest/gtest.h>

namespace mithril::plan {
namespace {

Plan plan_of(int64_t bytes) {
  Plan out;
  out.buffers = {{BufferSpec::Kind::kInput, 0, bytes}, {BufferSpec::Kind::kOutput, 0, bytes}};
  return out;
}

Step step_of(double nanoseconds) {
  Step out;
  out.operands = {{0, 0, false}, {1, 0, true}};
  out.nanoseconds = nanoseconds;
  return out;
}

TEST(Cost, CountsWhatIsComputedAndMoved) {
  const double none = nanoseconds_of(plan_of(0), step_of(1));
  EXPECT_GT(none, 1.0);
  EXPECT_DOUBLE_EQ(nanoseconds_of(plan_of(0), step_of(1001)), none + 1000);
  EXPECT_GT(nanoseconds_of(plan_of(1 << 20), step_of(1)), none + 10'000);
}

TEST(Cost, WhatIsNotKnownIsNotCheap) {
  EXPECT_GT(nanoseconds_of(plan_of(4096), step_of(0)),
            10 * nanoseconds_of(plan_of(4096), step_of(1)));
}

TEST(Cost, RegionsMayTakeForever) {
  Step loop = step_of(1);
  loop.loop = std::make_shared<const RegionLoop>();
  EXPECT_TRUE(std::isinf(nanoseconds_of(plan_of(4), loop)));
  Step branch = step_of(1);
  branch.branch = std::make_shared<const Branch>();
  EXPECT_TRUE(std::isinf(nanoseconds_of(plan_of(4), branch)));
}

}  // namespace
}  // namespace mithril::plan

#include "plan/schedule.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "plan/memory.h"
#include "plan/plan.h"

namespace mithril::plan {
namespace {

using Pairs = std::vector<std::pair<BufferId, BufferId>>;

KernelStatus idle(const KernelArgs&, int64_t, int64_t) { return KernelStatus::kOk; }

Step uses(const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
  Step out;
  out.kernel = idle;
  for (const BufferId id : reads) out.operands.push_back({id, 0, false});
  for (const BufferId id : writes) out.operands.push_back({id, 0, true});
  return out;
}

// Buffers: inputs 0 and 1, outputs 2 and 3, then temporaries.
Steps with_temporaries(int32_t count, int64_t bytes) {
  Steps out;
  for (int32_t i = 0; i < 2; ++i) out.buffers.push_back({BufferSpec::Kind::kInput, i, bytes});
  for (int32_t i = 0; i < 2; ++i) out.buffers.push_back({BufferSpec::Kind::kOutput, i, bytes});
  for (int32_t i = 0; i < count; ++i) {
    out.buffers.push_back({BufferSpec::Kind::kTemporary, 0, bytes});
  }
  return out;
}

Steps in_order(Steps steps) {
  std::vector<Step> out;
  for (const int32_t at : schedule(steps)) out.push_back(steps.steps[static_cast<size_t>(at)]);
  steps.steps = std::move(out);
  return steps;
}

int64_t peak(const Steps& steps) { return memory_use(std::move(make_plan(steps)).or_throw()).live; }

TEST(Schedule, KeepsTheOrderThatIsAsGood) {
  Steps steps = with_temporaries(2, 1000);
  steps.steps = {uses({0}, {4}), uses({4}, {5}), uses({5}, {2}), uses({0}, {3})};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Schedule, WhatLiesIdleAtThePeakIsMadeWhereItIsRead) {
  Steps steps = with_temporaries(4, 10'000);
  steps.steps = {uses({0}, {4}), uses({0}, {5}), uses({5}, {6}), uses({6}, {7}), uses({4, 7}, {2})};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{1, 2, 3, 0, 4}));
  steps.steps.push_back(uses({4}, {3}));  // the first that reads it
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{1, 2, 3, 0, 4, 5}));
  steps.steps[2].depends_on = {4};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

// As the gradient of a large matrix, most is in use where it is made.
TEST(Schedule, WhatMakesThePeakIsMadeWhereItIsRead) {
  Steps steps = with_temporaries(6, 1000);
  const int64_t bytes[] = {50'000, 80'000, 1000, 150'000, 51'000, 1000};
  for (size_t i = 0; i < 6; ++i) steps.buffers[4 + i].bytes = bytes[i];
  steps.steps = {uses({0}, {4}),    uses({0}, {5}), uses({5}, {6}),   uses({5}, {7}),
                 uses({4, 6}, {8}), uses({8}, {9}), uses({7, 9}, {2})};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1, 2, 4, 5, 3, 6}));
}

TEST(Schedule, WaitsForWhatItDoesNotRead) {
  Steps steps = with_temporaries(3, 10'000);
  // The last but one frees what the first has made, but is to wait for the third.
  steps.steps = {uses({0}, {4}), uses({0}, {5}), uses({5}, {6}), uses({4}, {2}), uses({6}, {3})};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 3, 1, 2, 4}));
  steps.steps[3].depends_on = {6};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{1, 2, 0, 3, 4}));
}

TEST(Schedule, WhatFreesMemoryRunsAsSoonAsItCan) {
  Steps steps = with_temporaries(3, 10'000);
  // Two gradients, then the two updates that read them and nothing else.
  steps.steps = {uses({0}, {4}), uses({0, 4}, {5}), uses({5}, {6}), uses({4}, {2}), uses({6}, {3})};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1, 3, 2, 4}));
  EXPECT_EQ(peak(steps), 30'000);
  EXPECT_EQ(peak(in_order(steps)), 20'000);
}

TEST(Schedule, WhatTakesLittleDoesNotHoldItUp) {
  Steps steps = with_temporaries(4, 10'000);
  steps.buffers[7].bytes = 4;
  // The update reads a number that was computed late.
  steps.steps = {uses({0}, {4}), uses({4}, {5}),    uses({5}, {6}),
                 uses({1}, {7}), uses({4, 7}, {2}), uses({6}, {3})};
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{3, 0, 4, 1, 2, 5}));
}

TEST(Donation, AnUpdateLiesWhereItsOperandDoes) {
  Steps steps = with_temporaries(1, 100);
  steps.steps = {uses({0, 1}, {4}), uses({0, 4}, {2}), uses({4, 0}, {3})};
  steps.steps[1].inplace = {{0, 0}};
  EXPECT_TRUE(overwrite_inputs(steps, {{2, 0}}).empty());
  EXPECT_EQ(steps.steps[1].operands[2].buffer, 0);
  // The last step reads what is overwritten: it runs before.
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 2, 1}));
}

TEST(Donation, RefusesAStepThatReadsInAnotherOrder) {
  Steps steps = with_temporaries(0, 100);
  steps.steps = {uses({0}, {2})};
  EXPECT_EQ(overwrite_inputs(steps, {{2, 0}}), (Pairs{{2, 0}}));
  steps.steps[0].inplace = {{1, 0}};
  EXPECT_EQ(overwrite_inputs(steps, {{2, 0}}), (Pairs{{2, 0}}));
  EXPECT_EQ(steps.steps[0].operands[1].buffer, 2);
  steps.steps[0].inplace = {{0, 0}};
  EXPECT_TRUE(overwrite_inputs(steps, {{2, 0}}).empty());
}

TEST(Donation, RefusesWhatIsReadWithTheResult) {
  Steps steps = with_temporaries(1, 100);
  // The first step makes something that the reader of the old value needs.
  steps.steps = {uses({1}, {2, 4}), uses({0, 4}, {3})};
  EXPECT_EQ(overwrite_inputs(steps, {{2, 0}}), (Pairs{{2, 0}}));
  // Nobody may read the output itself: it would lie where the old value is.
  steps.steps = {uses({1}, {2}), uses({2}, {3})};
  EXPECT_EQ(overwrite_inputs(steps, {{2, 0}}), (Pairs{{2, 0}}));
}

TEST(Donation, OfTwoThatReadEachOtherOneIsRefused) {
  Steps steps = with_temporaries(0, 100);
  steps.steps = {uses({0, 1}, {2}), uses({0, 1}, {3})};
  steps.steps[0].inplace = {{0, 0}};
  steps.steps[1].inplace = {{0, 1}};
  EXPECT_EQ(overwrite_inputs(steps, {{2, 0}, {3, 1}}), (Pairs{{2, 0}}));
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1}));
}

TEST(Donation, WhatMayRefuseTheDataRunsBefore) {
  Steps steps = with_temporaries(0, 100);
  steps.steps = {uses({1}, {3}), uses({0}, {2})};
  steps.steps[1].inplace = {{0, 0}};
  EXPECT_TRUE(overwrite_inputs(steps, {{2, 0}}).empty());
  std::swap(steps.steps[0], steps.steps[1]);
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1}));
  std::swap(steps.steps[0], steps.steps[1]);
  steps.steps[0].may_fail_on_data = true;
  EXPECT_EQ(schedule(steps), (std::vector<int32_t>{0, 1}));
}

// Orders of random programs: everything is written before it is read, inputs are overwritten
// last, and no order is worse than the one given.
TEST(Schedule, RandomProgramsStayPrograms) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    constexpr int32_t kCount = 20;
    Steps steps = with_temporaries(kCount, 0);
    for (size_t i = 4; i < steps.buffers.size(); ++i) {
      steps.buffers[i].bytes = 2000 * static_cast<int64_t>(random() % 9);
    }
    for (int32_t i = 0; i < kCount; ++i) {
      std::vector<BufferId> reads;
      for (uint32_t k = random() % 3; k > 0; --k) {
        reads.push_back(random() % 4 == 0 || i == 0
                            ? static_cast<BufferId>(random() % 2)
                            : 4 + static_cast<BufferId>(random() % static_cast<uint32_t>(i)));
      }
      steps.steps.push_back(uses(reads, {4 + i}));
      steps.steps.back().may_fail_on_data = random() % 5 == 0;
    }
    const auto at = static_cast<std::ptrdiff_t>(random() % steps.steps.size());
    Step update = uses({0, 4}, {2});
    update.inplace = {{0, 0}};
    steps.steps.insert(steps.steps.begin() + std::max<std::ptrdiff_t>(at, 1), update);
    ASSERT_TRUE(overwrite_inputs(steps, {{2, 0}}).empty());
    const std::vector<int32_t> order = schedule(steps);
    std::vector<int32_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], static_cast<int32_t>(i));
    std::vector<bool> written(steps.buffers.size(), false);
    bool is_overwritten = false;
    for (const int32_t one : order) {
      const Step& now = steps.steps[static_cast<size_t>(one)];
      EXPECT_FALSE(is_overwritten && now.may_fail_on_data);
      for (const OperandRef& use : now.operands) {
        if (use.write || use.buffer < 4) continue;
        EXPECT_TRUE(written[static_cast<size_t>(use.buffer)]);
      }
      for (const OperandRef& use : now.operands) {
        EXPECT_FALSE(!use.write && use.buffer == 0 && is_overwritten);
        if (use.write) written[static_cast<size_t>(use.buffer)] = true;
      }
      is_overwritten |= written[0];
    }
  }
}

}  // namespace
}  // namespace mithril::plan

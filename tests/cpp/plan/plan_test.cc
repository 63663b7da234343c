#include "plan/plan.h"

#include <gtest/gtest.h>

namespace mithril::plan {
namespace {

KernelStatus nothing(const KernelArgs&, int64_t, int64_t) { return KernelStatus::kOk; }

// Temporaries 0..n-1 of `bytes`, after one input (buffer n) and one output (buffer n + 1).
Steps temporaries(int32_t count, int64_t bytes) {
  Steps out;
  for (int32_t i = 0; i < count; ++i) {
    out.buffers.push_back({Buffer::Kind::kTemporary, 0, bytes});
  }
  out.buffers.push_back({Buffer::Kind::kInput, 0, bytes});
  out.buffers.push_back({Buffer::Kind::kOutput, 0, bytes});
  return out;
}

Step step(std::vector<BufferId> reads, BufferId write) {
  Step out;
  out.kernel = nothing;
  for (const BufferId id : reads) out.operands.push_back({id, 0, false});
  out.operands.push_back({write, 0, true});
  return out;
}

Plan planned(Steps steps) { return std::move(make_plan(std::move(steps))).or_throw(); }

TEST(Plan, ReusesTheBytesOfWhatIsNoLongerRead) {
  Steps steps = temporaries(3, 1000);  // input 3, output 4
  steps.steps = {step({3}, 0), step({0}, 1), step({1}, 2), step({2}, 4)};
  const Plan plan = planned(std::move(steps));
  EXPECT_EQ(plan.arena_bytes, 2 * 1024);  // two of the three live at once
  EXPECT_EQ(plan.steps[0].operands[1].offset, plan.steps[2].operands[1].offset);
}

TEST(Plan, KeepsAValueUntilItsLastReader) {
  Steps steps = temporaries(3, 64);
  // 0 is read by the last step: neither 1 nor 2 may lie on it.
  steps.steps = {step({3}, 0), step({0}, 1), step({1}, 2), step({0, 2}, 4)};
  const Plan plan = planned(std::move(steps));
  const int64_t kept = plan.steps[0].operands[1].offset;
  EXPECT_NE(plan.steps[1].operands[1].offset, kept);
  EXPECT_NE(plan.steps[2].operands[1].offset, kept);
}

TEST(Plan, AStepNeverWritesWhatItReadsUnlessItMay) {
  Steps steps = temporaries(2, 64);
  steps.steps = {step({2}, 0), step({0}, 1), step({1}, 3)};
  Plan plan = planned(steps);
  EXPECT_NE(plan.steps[1].operands[0].offset, plan.steps[1].operands[1].offset);

  steps.steps[1].inplace = {0};
  plan = planned(steps);
  EXPECT_EQ(plan.steps[1].operands[0].offset, plan.steps[1].operands[1].offset);
  EXPECT_EQ(plan.arena_bytes, 64);
}

TEST(Plan, OnlyTheFirstOutputTakesOver) {
  Steps steps = temporaries(2, 64);
  steps.steps = {step({2}, 0), step({0}, 3), step({1}, 3)};
  steps.steps[1].operands.push_back({1, 0, true});  // behind the output of the graph
  steps.steps[1].inplace = {0};
  const Plan plan = planned(std::move(steps));
  EXPECT_NE(plan.steps[1].operands[0].offset, plan.steps[1].operands[2].offset);
}

TEST(Plan, DoesNotTakeOverAnOperandThatIsReadLater) {
  Steps steps = temporaries(2, 64);
  steps.steps = {step({2}, 0), step({0}, 1), step({0, 1}, 3)};
  steps.steps[1].inplace = {0};
  const Plan plan = planned(std::move(steps));
  EXPECT_NE(plan.steps[1].operands[0].offset, plan.steps[1].operands[1].offset);
}

TEST(Plan, AddressesInputsOutputsAndConstants) {
  Steps steps = temporaries(1, 64);
  steps.buffers.push_back({Buffer::Kind::kConstant, 0, 4});
  steps.constants.push_back(std::make_shared<core::TensorData>());
  steps.steps = {step({1, 3}, 0), step({0}, 2)};
  steps.steps[0].operands[0].offset = 8;
  const Plan plan = planned(std::move(steps));
  EXPECT_EQ(plan.base_count(), 4);
  EXPECT_EQ(plan.steps[0].operands[0].base, plan.input_base(0));
  EXPECT_EQ(plan.steps[0].operands[0].offset, 8);
  EXPECT_EQ(plan.steps[0].operands[1].base, plan.constant_base(0));
  EXPECT_EQ(plan.steps[1].operands[1].base, plan.output_base(0));
}

TEST(Plan, RefusesWhatNoAddressSpaceHolds) {
  Steps steps = temporaries(2, INT64_MAX - 100);
  steps.steps = {step({2}, 0), step({2}, 1), step({0, 1}, 3)};
  const auto plan = make_plan(std::move(steps));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, core::ErrorKind::kMemory);
}

}  // namespace
}  // namespace mithril::plan

#include <gtest/gtest.h>

#include "plan/plan.h"

namespace mithril::plan {
namespace {

Plan two_steps() {
  Steps steps;
  steps.buffers = {{BufferSpec::Kind::kInput, 0, 12},
                   {BufferSpec::Kind::kTemporary, 0, 12},
                   {BufferSpec::Kind::kOutput, 0, 8},
                   {BufferSpec::Kind::kConstant, 0, 4}};
  steps.constants.push_back(nullptr);
  Step first;
  first.operands = {{0, 0, false}, {0, 4, false}, {1, 0, true}};
  first.label = "add";
  first.units = 3;
  Step second;
  second.operands = {{1, 4, false}, {3, 0, false}, {2, 0, true}};
  second.label = "matmul";
  second.location = {"train.py", 3, "net.head"};
  steps.steps = {first, second};
  return std::move(make_plan(std::move(steps))).or_throw();
}

TEST(PrintPlan, ShowsWhereEveryOperandLies) {
  EXPECT_EQ(print(two_steps()),
            "plan: 2 steps, arena 64 bytes, scratch 0 bytes a thread, 1 inputs, 1 outputs, 1 "
            "constants\n"
            "    0 add (input0+0[12], input0+4[12]) -> arena+0[12]; 3 units by 1\n"
            "    1 matmul (arena+4[12], constant0+0[4]) -> output0+0[8]; 1 units by 1; net.head\n");
}

TEST(PrintPlan, CountsEachBufferOfAStepOnce) {
  const Plan plan = two_steps();
  EXPECT_EQ(bytes_of(plan, plan.steps[0].step), 24);
  EXPECT_EQ(bytes_of(plan, plan.steps[1].step), 24);
}

}  // namespace
}  // namespace mithril::plan

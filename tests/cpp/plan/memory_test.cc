#include "plan/memory.h"

#include <gtest/gtest.h>

namespace mithril::plan {
namespace {

KernelStatus nothing(const KernelArgs&, int64_t, int64_t) { return KernelStatus::kOk; }

Step step(const char* label, std::vector<BufferId> reads, BufferId write) {
  Step out;
  out.kernel = nothing;
  out.label = label;
  for (const BufferId id : reads) out.operands.push_back({id, 0, false});
  out.operands.push_back({write, 0, true});
  return out;
}

// x → a (1000) → b (3000) → y, with a read again by the last step.
Steps kept_over_a_large_one() {
  Steps out;
  out.buffers = {{BufferSpec::Kind::kInput, 0, 10},
                 {BufferSpec::Kind::kTemporary, 0, 1000, core::DType::kFloat32, {10, 25}, "net.a"},
                 {BufferSpec::Kind::kTemporary, 0, 3000, core::DType::kFloat64, {375}, "net.b"},
                 {BufferSpec::Kind::kConstant, 0, 7},
                 {BufferSpec::Kind::kOutput, 0, 20}};
  out.constants.push_back(nullptr);
  out.steps = {step("first", {0}, 1), step("second", {1, 3}, 2), step("third", {1, 2}, 4)};
  return out;
}

Plan planned(Steps steps) { return std::move(make_plan(std::move(steps))).or_throw(); }

TEST(Memory, CountsWhatIsInUseAtEachStep) {
  const Plan plan = planned(kept_over_a_large_one());
  EXPECT_EQ(live_bytes(plan), (std::vector<int64_t>{1000, 4000, 4000}));
  const MemoryUse use = memory_use(plan);
  EXPECT_EQ(use.arena, 1024 + 3008);
  EXPECT_EQ(use.peak_step, 1);
  EXPECT_EQ(use.live, 4000);
  EXPECT_EQ(use.inputs, 10);
  EXPECT_EQ(use.constants, 7);
  EXPECT_EQ(use.outputs, 20);
  ASSERT_EQ(use.contributors.size(), 2u);
  EXPECT_EQ(use.contributors[0].buffer, 2);
  EXPECT_EQ(use.contributors[0].bytes, 3000);
  EXPECT_EQ(use.contributors[0].writer, 1);
  EXPECT_EQ(use.contributors[1].writer, 0);
}

TEST(Memory, WhatIsOverwrittenCountsOnce) {
  Steps steps = kept_over_a_large_one();
  steps.buffers[2].bytes = 1000;
  steps.steps[1].inplace = {{0, 0}};
  steps.steps[2] = step("third", {2}, 4);
  const Plan plan = planned(steps);
  ASSERT_EQ(plan.arena_bytes, 1024);
  EXPECT_EQ(live_bytes(plan), (std::vector<int64_t>{1000, 1000, 1000}));
  EXPECT_EQ(memory_use(plan).contributors.size(), 1u);
}

TEST(Memory, LoopsTakeWhatTheirBodiesTake) {
  auto loop = std::make_shared<RegionLoop>();
  Plan body = planned(kept_over_a_large_one());
  body.scratch_bytes = 100;
  loop->body = std::make_shared<const Plan>(body);
  loop->length = 3;
  loop->carry_bytes = {50};
  Steps steps = kept_over_a_large_one();
  steps.steps[1].kernel = nullptr;
  steps.steps[1].loop = loop;
  const MemoryUse use = memory_use(planned(steps));
  EXPECT_EQ(use.regions, body.arena_bytes + 100 + 50);
  EXPECT_EQ(use.peak_step, 1);
  EXPECT_EQ(use.live, 4000 + use.regions);
  EXPECT_EQ(use.contributors[0].buffer, -1);
  EXPECT_EQ(use.contributors[0].bytes, use.regions);
  EXPECT_EQ(use.allocated(), use.arena + use.regions + 20);

  // Of two branches the larger one counts, whichever it is.
  auto branch = std::make_shared<Branch>();
  branch->taken = std::make_shared<const Plan>();
  branch->other = loop->body;
  steps.steps[1].loop = nullptr;
  steps.steps[1].branch = branch;
  EXPECT_EQ(memory_use(planned(steps)).regions, body.arena_bytes + 100);
}

TEST(Memory, APlanWithoutStepsTakesNothing) {
  const MemoryUse use = memory_use(Plan());
  EXPECT_EQ(use.peak_step, -1);
  EXPECT_EQ(use.allocated(), 0);
  EXPECT_TRUE(live_bytes(Plan()).empty());
}

TEST(Memory, WhatIsTooLargeIsRefusedWithTheLargest) {
  Steps steps = kept_over_a_large_one();
  steps.buffers[4].bytes = 2'000'000;
  const Plan plan = planned(steps);
  const int64_t needed = plan.arena_bytes + 2'000'000;
  EXPECT_TRUE(check_memory(plan, {needed}).ok());
  const core::Status status = check_memory(plan, {needed - 1});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, core::ErrorKind::kMemory);
  EXPECT_EQ(status.error().code, core::Code::kOutOfMemory);
  EXPECT_EQ(status.error().message,
            "memory: a run at these sizes takes 2.0 MB (4.0 kB of intermediates, 2.0 MB of "
            "outputs), and this process can have 2.0 MB\n"
            "  2.0 MB float32[] of third\n"
            "  3.0 kB float64[375] of second in 'net.b'\n"
            "  1.0 kB float32[10, 25] of first in 'net.a'");
}

TEST(Memory, SumsDoNotOverflow) {
  Steps steps = kept_over_a_large_one();
  steps.buffers[4].bytes = INT64_MAX - 5;
  EXPECT_EQ(memory_use(planned(steps)).allocated(), INT64_MAX);
}

TEST(Memory, BytesAreShownInDecimalUnits) {
  EXPECT_EQ(print_bytes(0), "0 bytes");
  EXPECT_EQ(print_bytes(999), "999 bytes");
  EXPECT_EQ(print_bytes(1000), "1.0 kB");
  EXPECT_EQ(print_bytes(999'949), "999.9 kB");
  EXPECT_EQ(print_bytes(999'999), "1.0 MB");
  EXPECT_EQ(print_bytes(8'500'000'000), "8.5 GB");
  EXPECT_EQ(print_bytes(INT64_MAX), "9.2 EB");
}

}  // namespace
}  // namespace mithril::plan

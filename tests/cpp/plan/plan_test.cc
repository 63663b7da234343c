#include "plan/plan.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace mithril::plan {
namespace {

KernelStatus nothing(const KernelArgs&, int64_t, int64_t) { return KernelStatus::kOk; }

// Temporaries 0..n-1 of `bytes`, after one input (buffer n) and one output (buffer n + 1).
Steps temporaries(int32_t count, int64_t bytes) {
  Steps out;
  for (int32_t i = 0; i < count; ++i) {
    out.buffers.push_back({BufferSpec::Kind::kTemporary, 0, bytes});
  }
  out.buffers.push_back({BufferSpec::Kind::kInput, 0, bytes});
  out.buffers.push_back({BufferSpec::Kind::kOutput, 0, bytes});
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

  steps.steps[1].inplace = {{0, 0}};
  plan = planned(steps);
  EXPECT_EQ(plan.steps[1].operands[0].offset, plan.steps[1].operands[1].offset);
  EXPECT_EQ(plan.arena_bytes, 64);
}

TEST(Plan, AnOutputTakesOverWhatItMayItself) {
  Steps steps = temporaries(2, 64);
  steps.steps = {step({2}, 0), step({0}, 3), step({1}, 3)};
  steps.steps[1].operands.push_back({1, 0, true});  // behind the output of the graph
  steps.steps[1].inplace = {{0, 0}};
  Plan plan = planned(steps);
  EXPECT_NE(plan.steps[1].operands[0].offset, plan.steps[1].operands[2].offset);
  steps.steps[1].inplace = {{1, 0}};
  plan = planned(steps);
  EXPECT_EQ(plan.steps[1].operands[0].offset, plan.steps[1].operands[2].offset);
}

TEST(Plan, NoTwoOutputsTakeOverOneOperand) {
  Steps steps = temporaries(3, 64);
  steps.steps = {step({3}, 0), step({0}, 1), step({1, 2}, 4)};
  steps.steps[1].operands.push_back({2, 0, true});
  steps.steps[1].inplace = {{0, 0}, {1, 0}};
  const Plan plan = planned(std::move(steps));
  EXPECT_NE(plan.steps[1].operands[1].offset, plan.steps[1].operands[2].offset);
}

TEST(Plan, DoesNotTakeOverAnOperandThatIsReadLater) {
  Steps steps = temporaries(2, 64);
  steps.steps = {step({2}, 0), step({0}, 1), step({0, 1}, 3)};
  steps.steps[1].inplace = {{0, 0}};
  const Plan plan = planned(std::move(steps));
  EXPECT_NE(plan.steps[1].operands[0].offset, plan.steps[1].operands[1].offset);
}

TEST(Plan, TellsWhichInputsAnOutputMayUpdate) {
  Steps steps = temporaries(1, 64);  // input 1, output 2
  steps.steps = {step({1}, 0), step({1, 0}, 2), step({2}, 0)};
  EXPECT_TRUE(planned(steps).donations.empty());
  steps.steps[1].inplace = {{0, 0}};
  EXPECT_TRUE(planned(steps).donations.empty());
  steps.steps[1].partial_update = true;
  ASSERT_EQ(planned(steps).donations.size(), 1U);
  EXPECT_EQ(planned(steps).donations[0].input, 0);
  EXPECT_EQ(planned(steps).donations[0].output, 0);
}

TEST(Plan, AnInputThatIsReadAgainIsNotUpdated) {
  Steps steps = temporaries(1, 64);
  const auto updating = [](std::vector<BufferId> reads, BufferId write) {
    Step out = step(std::move(reads), write);
    out.inplace = {{0, 0}};
    out.partial_update = true;
    return out;
  };
  steps.steps = {updating({1}, 2), step({1}, 0)};
  EXPECT_TRUE(planned(steps).donations.empty());  // by a later step
  steps.steps = {updating({1, 1}, 2)};
  EXPECT_TRUE(planned(steps).donations.empty());  // by the step itself
  steps.steps = {step({1}, 0), updating({0}, 2)};
  EXPECT_TRUE(planned(steps).donations.empty());  // no input
  steps.steps = {updating({1}, 0)};
  EXPECT_TRUE(planned(steps).donations.empty());  // no output
  steps.buffers[2].bytes = 128;
  steps.steps = {updating({1}, 2)};
  EXPECT_TRUE(planned(steps).donations.empty());  // another size
}

// What a step writes over what it reads: an output over all of an operand that it may overwrite,
// that has as many bytes and is not read later.
bool may_share(const Steps& steps, size_t at, BufferId written, BufferId read) {
  const Step& step = steps.steps[at];
  for (const Step* later = &step + 1; later < steps.steps.data() + steps.steps.size(); ++later) {
    for (const OperandRef& use : later->operands) {
      if (use.buffer == read) return false;
    }
  }
  std::vector<BufferId> outputs;
  for (const OperandRef& use : step.operands) {
    if (use.write) outputs.push_back(use.buffer);
  }
  const auto bytes = [&](BufferId id) { return steps.buffers[static_cast<size_t>(id)].bytes; };
  return bytes(written) == bytes(read) &&
         std::any_of(step.inplace.begin(), step.inplace.end(), [&](const InPlace& k) {
           const OperandRef& use = step.operands[static_cast<size_t>(k.operand)];
           return outputs[static_cast<size_t>(k.output)] == written && use.buffer == read &&
                  use.offset == 0;
         });
}

// The first and the last step that uses each temporary, and where it lies.
struct Placed {
  size_t first = 0, last = 0;
  int64_t offset = -1;
};

std::vector<Placed> placed(const Steps& steps, const Plan& plan, size_t temporaries) {
  std::vector<Placed> out(temporaries);
  for (size_t at = 0; at < steps.steps.size(); ++at) {
    for (size_t k = 0; k < steps.steps[at].operands.size(); ++k) {
      const OperandRef& use = steps.steps[at].operands[k];
      if (static_cast<size_t>(use.buffer) >= temporaries) continue;
      Placed& place = out[static_cast<size_t>(use.buffer)];
      const int64_t offset = plan.steps[at].operands[k].offset - use.offset;
      if (place.offset < 0) place = {at, at, offset};
      EXPECT_EQ(place.offset, offset);
      place.last = at;
    }
  }
  return out;
}

TEST(Plan, WhatLivesAtOnceLiesApart) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    constexpr int32_t kCount = 24;
    Steps steps = temporaries(kCount, 0);
    for (BufferSpec& buffer : steps.buffers) buffer.bytes = 32 * static_cast<int64_t>(random() % 9);
    size_t most_scratch = 0;
    for (int32_t i = 0; i < kCount; ++i) {
      Step made = step({}, i);
      for (uint32_t reads = random() % 4; reads > 0; --reads) {
        const auto from =
            i == 0 ? kCount : static_cast<int32_t>(random() % static_cast<uint32_t>(i));
        const int64_t offset = random() % 4 == 0 ? 16 : 0;
        made.operands.insert(made.operands.begin(), {from, offset, false});
      }
      const bool has_two = i + 1 < kCount && random() % 4 == 0;
      if (has_two) made.operands.push_back({++i, 0, true});
      for (size_t k = 0; !made.operands[k].write; ++k) {
        const int32_t output = has_two && random() % 2 == 0 ? 1 : 0;
        if (random() % 2 == 0) made.inplace.push_back({output, static_cast<int32_t>(k)});
      }
      made.scratch_bytes = random() % 100;
      most_scratch = std::max(most_scratch, made.scratch_bytes);
      steps.steps.push_back(std::move(made));
    }
    const Plan plan = planned(steps);
    EXPECT_EQ(plan.scratch_bytes, most_scratch);
    const std::vector<Placed> places = placed(steps, plan, kCount);
    const auto bytes = [&](size_t id) { return steps.buffers[id].bytes; };
    for (size_t a = 0; a < kCount; ++a) {
      EXPECT_EQ(places[a].offset % 64, 0);
      EXPECT_LE(places[a].offset + bytes(a), plan.arena_bytes);
      for (size_t b = 0; b < a; ++b) {  // b is written before a, or by the same step
        const bool apart = places[b].offset + bytes(b) <= places[a].offset ||
                           places[a].offset + bytes(a) <= places[b].offset;
        if (apart || places[b].last < places[a].first) continue;
        EXPECT_TRUE(
            places[b].last == places[a].first && places[b].first < places[a].first &&
            may_share(steps, places[a].first, static_cast<BufferId>(a), static_cast<BufferId>(b)))
            << "round " << round << ": " << a << " and " << b;
      }
    }
  }
}

TEST(Plan, AddressesInputsOutputsAndConstants) {
  Steps steps = temporaries(1, 64);
  steps.buffers.push_back({BufferSpec::Kind::kConstant, 0, 4});
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

#include "runtime/executable.h"

#include <gtest/gtest.h>

namespace mithril::runtime {
namespace {

using plan::BufferSpec;
using plan::KernelArgs;
using plan::KernelStatus;
using plan::Step;
using plan::Steps;

// y[i] = a[i] + b[i]; every float is a unit.
KernelStatus add(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto* a = static_cast<const float*>(args.buffers[0]);
  const auto* b = static_cast<const float*>(args.buffers[1]);
  auto* y = static_cast<float*>(args.buffers[2]);
  for (int64_t i = begin; i < end; ++i) y[i] = a[i] + b[i];
  return KernelStatus::kOk;
}

KernelStatus complain(const KernelArgs& args, int64_t, int64_t) {
  args.error->report(0, 2, 7, 5);
  return KernelStatus::kBadData;
}

// (x + x) + constant over `count` floats.
Steps doubled_plus_constant(int64_t count) {
  Steps out;
  const int64_t bytes = count * 4;
  out.buffers = {{BufferSpec::Kind::kInput, 0, bytes},
                 {BufferSpec::Kind::kTemporary, 0, bytes},
                 {BufferSpec::Kind::kConstant, 0, bytes},
                 {BufferSpec::Kind::kOutput, 0, bytes}};
  auto constant = std::make_shared<core::TensorData>();
  constant->bytes.resize(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < count; ++i) {
    reinterpret_cast<float*>(constant->bytes.data())[i] = 0.5F;
  }
  out.constants.push_back(constant);
  Step first, second;
  first.kernel = second.kernel = add;
  first.units = second.units = count;
  first.grain = second.grain = 16;
  first.operands = {{0, 0, false}, {0, 0, false}, {1, 0, true}};
  second.operands = {{1, 0, false}, {2, 0, false}, {3, 0, true}};
  second.label = "add";
  out.steps = {first, second};
  return out;
}

HostExecutable executable(Steps steps) {
  return HostExecutable(std::move(plan::make_plan(std::move(steps))).or_throw());
}

TEST(Executable, RunsStepsInOrderOverTheArena) {
  constexpr int64_t kCount = 1000;
  const HostExecutable program = executable(doubled_plus_constant(kCount));
  std::vector<float> x(kCount), y(kCount, -1.0F);
  for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    RunControl control;
    control.pool = &pool;
    ASSERT_TRUE(program.run(inputs, outputs, control).ok());
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(y[static_cast<size_t>(i)], 2.0F * static_cast<float>(i) + 0.5F);
    }
  }
}

TEST(Executable, TurnsTheErrorSlotIntoATypedError) {
  Steps steps = doubled_plus_constant(4);
  steps.steps[1].kernel = complain;
  steps.steps[1].label = "gather";
  const HostExecutable program = executable(std::move(steps));
  std::vector<float> x(4), y(4);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  const core::Status status = program.run(inputs, outputs);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, core::ErrorKind::kIndex);
  EXPECT_EQ(status.error().message, "index 7 is out of bounds for an axis of size 5");
}

TEST(Executable, StopsWhenCancelled) {
  const HostExecutable program = executable(doubled_plus_constant(64));
  std::vector<float> x(64), y(64);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  const std::atomic<bool> cancel{true};
  RunControl control;
  control.cancel = &cancel;
  const core::Status status = program.run(inputs, outputs, control);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, core::ErrorKind::kInterrupted);
}

TEST(Executable, TellsARecordingOfEachStep) {
  ThreadPool pool(2);
  const HostExecutable program = executable(doubled_plus_constant(64));
  std::vector<float> x(64), y(64);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  Recording recording(10);
  RunControl control;
  control.pool = &pool;
  program.run(inputs, outputs, control).or_throw();
  control.recording = &recording;
  const int64_t before = now();
  program.run(inputs, outputs, control).or_throw();
  const auto events = recording.events();
  ASSERT_EQ(events.size(), 2u);
  for (int32_t i = 0; i < 2; ++i) {
    const Recording::Event& event = events[static_cast<size_t>(i)];
    EXPECT_EQ(event.plan, &program.plan());
    EXPECT_EQ(event.step, i);
    EXPECT_EQ(event.threads, 2);  // 64 units by 16
    EXPECT_EQ(event.thread, thread_id());
    EXPECT_GE(event.start, before);
    EXPECT_GE(event.nanoseconds, 0);
    EXPECT_LE(event.start + event.nanoseconds, now());
  }
  ThreadPool many(8);
  control.pool = &many;
  program.run(inputs, outputs, control).or_throw();
  EXPECT_EQ(recording.events().back().threads, 4);  // there are no more chunks
}

KernelStatus note_chunk(const KernelArgs& args, int64_t begin, int64_t end) {
  auto* chunks = static_cast<float*>(args.buffers[2]);
  chunks[begin] = static_cast<float>(end - begin);
  return KernelStatus::kOk;
}

TEST(Executable, HandsOnlyLongStepsToThreads) {
  for (const double nanoseconds : {1.0, 1e6}) {
    Steps steps = doubled_plus_constant(64);
    for (Step& step : steps.steps) {
      step.kernel = note_chunk;
      step.nanoseconds = nanoseconds;
    }
    const HostExecutable program = executable(std::move(steps));
    EXPECT_EQ(program.is_brief(), nanoseconds == 1.0);
    std::vector<float> x(64), y(64, 0.0F);
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    ASSERT_TRUE(program.run(inputs, outputs).ok());
    EXPECT_EQ(y[0], nanoseconds == 1.0 ? 64.0F : 16.0F);
  }
}

TEST(Executable, PollsBetweenLongStepsOnly) {
  for (const double nanoseconds : {1.0, 1e9}) {
    Steps steps = doubled_plus_constant(4);
    for (Step& step : steps.steps) step.nanoseconds = nanoseconds;
    const HostExecutable program = executable(std::move(steps));
    std::vector<float> x(4), y(4);
    const void* inputs[] = {x.data()};
    void* outputs[] = {y.data()};
    int polls = 0;
    RunControl control;
    control.poll = [](void* count) { ++*static_cast<int*>(count); };
    control.poll_context = &polls;
    ASSERT_TRUE(program.run(inputs, outputs, control).ok());
    EXPECT_EQ(polls, nanoseconds == 1.0 ? 0 : 2);
  }
}

Step step_of(plan::KernelFn kernel, std::vector<plan::BufferId> reads, plan::BufferId writes) {
  Step out;
  out.kernel = kernel;
  out.units = out.grain = 1;
  for (const plan::BufferId id : reads) out.operands.push_back({id, 0, false});
  out.operands.push_back({writes, 0, true});
  return out;
}

// A plan of one step over one float, from inputs of these sizes to an output of `bytes`.
std::shared_ptr<const plan::Plan> plan_of(plan::KernelFn kernel, std::vector<plan::BufferId> reads,
                                          const std::vector<int64_t>& inputs, int64_t bytes) {
  Steps out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    out.buffers.push_back({BufferSpec::Kind::kInput, static_cast<int32_t>(i), inputs[i]});
  }
  out.buffers.push_back({BufferSpec::Kind::kOutput, 0, bytes});
  out.steps = {step_of(kernel, std::move(reads), static_cast<plan::BufferId>(inputs.size()))};
  return std::make_shared<const plan::Plan>(std::move(plan::make_plan(std::move(out))).or_throw());
}

KernelStatus negated(const KernelArgs& args, int64_t, int64_t) {
  *static_cast<float*>(args.buffers[1]) = -*static_cast<const float*>(args.buffers[0]);
  return KernelStatus::kOk;
}

KernelStatus is_below_limit(const KernelArgs& args, int64_t, int64_t) {
  const float value = *static_cast<const float*>(args.buffers[0]);
  *static_cast<bool*>(args.buffers[2]) = value < *static_cast<const float*>(args.buffers[1]);
  return KernelStatus::kOk;
}

TEST(Executable, RunsTheBranchThatTheBoolChooses) {
  auto branch = std::make_shared<plan::Branch>();
  branch->taken = plan_of(add, {0, 0}, {4}, 4);
  branch->other = plan_of(negated, {0}, {4}, 4);
  branch->inputs = 1;
  Steps steps;
  steps.buffers = {{BufferSpec::Kind::kInput, 0, 4},
                   {BufferSpec::Kind::kInput, 1, 1},
                   {BufferSpec::Kind::kOutput, 0, 4}};
  steps.steps = {step_of(nullptr, {0, 1}, 2)};
  steps.steps[0].branch = branch;
  const HostExecutable program = executable(steps);
  for (const bool taken : {true, false}) {
    const float x = 3.0F;
    float y = 0.0F;
    const void* inputs[] = {&x, &taken};
    void* outputs[] = {&y};
    program.run(inputs, outputs).or_throw();
    EXPECT_EQ(y, taken ? 6.0F : -3.0F);
  }
}

// The number of steps decides in which of two places the last one left the state.
TEST(Executable, ALoopOnDataGivesItsStateAfterAnyNumberOfSteps) {
  auto loop = std::make_shared<plan::RegionLoop>();
  loop->body = plan_of(add, {0, 1}, {4, 4}, 4);
  loop->condition = plan_of(is_below_limit, {0, 1}, {4, 4}, 1);
  loop->constants = 1;
  loop->carry_bytes = {4};
  Steps steps;
  steps.buffers = {{BufferSpec::Kind::kInput, 0, 4},
                   {BufferSpec::Kind::kInput, 1, 4},
                   {BufferSpec::Kind::kOutput, 0, 4}};
  steps.steps = {step_of(nullptr, {0, 1}, 2)};
  steps.steps[0].loop = loop;
  const HostExecutable program = executable(steps);
  const float limit = 10.0F;  // also what a step adds
  for (int count = 0; count < 5; ++count) {
    const float x = 5.0F - 10.0F * static_cast<float>(count - 1);
    float y = -1.0F;
    const void* inputs[] = {&x, &limit};
    void* outputs[] = {&y};
    program.run(inputs, outputs).or_throw();
    EXPECT_EQ(y, 15.0F) << count;
  }
}

}  // namespace
}  // namespace mithril::runtime

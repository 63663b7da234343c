// Covers: backends/device/driver.cc backends/device/plan_code.cc backends/device/select.cc
// Covers: backends/device/injection.cc
// Plans on a device whose memory no host sees: every op has the bits of the CPU, and nothing is
// copied, launched or waited for without need.
#include "backends/device/executable.h"

#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/target.h"
#include "backends/device/injection.h"
#include "backends/device/on_fake.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "ops/built.h"
#include "specialize/bytes.h"
#include "specialize/on_cpu.h"

namespace mithril::device::test {
namespace {

using mithril::test::Bytes;
using mithril::test::Sizes;
using Counts = std::map<std::string, int64_t>;

ir::Graph parsed(std::string_view text) { return std::move(ir::parse(text)).or_throw(); }

/// A graph on the fake device and on the CPU, with inputs.
struct Pair {
  ir::Graph graph;
  std::shared_ptr<FakeDriver> driver = std::make_shared<FakeDriver>();
  std::unique_ptr<SpecializationCache> fake, cpu;
  Sizes sizes;
  std::vector<Bytes> inputs;

  Pair(ir::Graph of, Sizes with, const select::KernelTable& kernels = fake_kernels(),
       std::vector<plan::Donation> overwrites = {})
      : graph(std::move(of)), sizes(std::move(with)) {
    SpecializationOptions on_device = on_fake(driver, kernels), on_host = on_cpu();
    on_device.select.overwrites = std::move(overwrites);
    for (SpecializationOptions* options : {&on_device, &on_host}) {
      options->select.exact_conv = options->select.canonical = true;
      options->passes.verify = true;
    }
    fake = std::make_unique<SpecializationCache>(std::move(optimized(graph, kernels)).or_throw(),
                                                 std::move(on_device));
    ir::Graph other = std::move(passes::optimize(graph, cpu::target())).or_throw();
    cpu = std::make_unique<SpecializationCache>(std::move(other), std::move(on_host));
    inputs = mithril::test::random_inputs(graph, sizes);
  }

  core::Result<std::vector<Bytes>> run(SpecializationCache& on,
                                       const runtime::RunControl& control = {}) const {
    MITHRIL_ASSIGN(const auto made, on.specialize(sizes));
    return mithril::test::run(graph, *made, inputs, control);
  }
};

void expect_same(const Pair& pair, const std::string& where) {
  const auto wanted = pair.run(*pair.cpu), got = pair.run(*pair.fake);
  ASSERT_EQ(wanted.ok(), got.ok()) << where << ": " << (wanted.ok() ? got : wanted).error().text();
  if (!wanted.ok()) {
    EXPECT_EQ(wanted.error().kind, got.error().kind) << where;
    EXPECT_NE(wanted.error().kind, core::ErrorKind::kInternal) << where;
    return;
  }
  for (size_t i = 0; i < wanted->size(); ++i) {
    EXPECT_TRUE(mithril::test::is_same(pair.graph.type(pair.graph.outputs[i].value).dtype,
                                       (*wanted)[i], (*got)[i]))
        << where << ", output " << i;
  }
}

// ---------------------------------------------------------------- values

class Ops : public ::testing::TestWithParam<std::string> {};

// Every sample of every op, in loops of the device and by kernels of the host.
TEST_P(Ops, HaveTheBitsOfTheCpu) {
  const ir::OpDef* op = ir::Registry::global().find(GetParam());
  const int64_t before = live_objects();
  for (size_t at = 0; at < op->samples.size(); ++at) {
    ir::test::Built built = ir::test::build(*op, op->samples[at]);
    ASSERT_TRUE(built.status.ok());
    const Sizes sizes = mithril::test::sizes_of(built.graph);
    expect_same(Pair(std::move(built.graph), sizes), ir::test::describe(*op, at));
  }
  EXPECT_EQ(live_objects(), before);
}

// Lists of results have no node: models have what their bodies make.
bool is_list(const ir::OpDef& op) {
  return op.body == ir::BodyKind::kCompose &&
         op.outputs[0].dtype.result == ir::DTypeRule::Result::kHost;
}

std::vector<std::string> sampled_ops() {
  std::vector<std::string> out;
  for (const ir::OpDef* op : ir::Registry::global().all()) {
    if (!op->samples.empty() && !is_list(*op)) out.push_back(op->name);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Device, Ops, ::testing::ValuesIn(sampled_ops()),
                         [](const auto& op) { return op.param; });

// ---------------------------------------------------------------- counts

Counts counted(const FakeDriver& driver) {
  Counts out;
  for (const std::string& symbol : driver.log()) ++out[symbol.substr(5)];
  return out;
}

/// Expects these calls of a first run, and those of the runs after it.
void expect_counts(const Pair& pair, Counts first, const Counts& later = {}) {
  const auto made = std::move(pair.fake->specialize(pair.sizes)).or_throw();
  pair.driver->clear();
  expect_same(pair, "first");
  EXPECT_EQ(counted(*pair.driver), first);
  pair.driver->clear();
  expect_same(pair, "second");
  first.erase("allocate");  // memory for temporaries is kept
  EXPECT_EQ(counted(*pair.driver), later.empty() ? first : later);
}

// Inputs go in once, outputs come out once, and nobody waits but at the end.
TEST(DeviceCounts, OfOneLoop) {
  const Pair pair(parsed(R"(graph g<f32, i64>(%x: f32[3, 4], %y: f32[4]) {
  %0 = multiply(%x, %y) : f32[3, 4]
  %1 = tanh(%0) : f32[3, 4]
  return y=%1
})"),
                  {{3, 4}, {4}});
  expect_counts(
      pair,
      {{"allocate", 1}, {"operand", 3}, {"write", 2}, {"launch", 1}, {"read", 1}, {"finish", 1}});
}

constexpr const char* kProducts =
    R"(graph g<f32, i64>(%x: f32[3, 4], %w: f32[4, 5], %v: f32[5, 2]) {
  %0 = matmul(%x, %w) : f32[3, 5]
  %1 = matmul(%0, %v) : f32[3, 2]
  return y=%1
})";

// Kernels of a step run one after the other; what they share is memory of the plan.
TEST(DeviceCounts, OfStepsInPhases) {
  const Sizes sizes{{3, 4}, {4, 5}, {5, 2}};
  const Pair pair(parsed(kProducts), sizes, phased_kernels());
  expect_counts(
      pair,
      {{"allocate", 1}, {"operand", 4}, {"write", 3}, {"launch", 4}, {"read", 1}, {"finish", 1}});
  const auto made = std::move(pair.fake->specialize(sizes)).or_throw();
  const plan::Plan& plan = made->executable->plan();
  ASSERT_EQ(plan.steps.size(), 2U);
  for (const plan::PlannedStep& planned : plan.steps) {
    EXPECT_EQ(planned.step.operands.size(), 4U);
    EXPECT_TRUE(planned.step.operands.back().write);
  }
  // There are 12 numbers, and then 15, beside the 15 that the first product is.
  EXPECT_GE(plan.arena_bytes, 60 + 60);
  EXPECT_LE(plan.arena_bytes, 64 + 64);
}

// A step takes what the device says that its kernels took; one of the host what the host's clock
// says, which in a test is less than half an hour.
TEST(DeviceTimes, AreThoseOfTheDevice) {
  const Pair pair(parsed(R"(graph g<f32, i64>(%x: f32[3, 4], %w: f32[4, 5]) {
  %0 = matmul(%x, %w) : f32[3, 5]
  %1 = argsort(%0) : i64[3, 5]
  %2 = exp(%0) : f32[3, 5]
  return y=%1, z=%2
})"),
                  {{3, 4}, {4, 5}}, phased_kernels());
  const auto made = std::move(pair.fake->specialize(pair.sizes)).or_throw();
  runtime::Recording recording(100);
  std::move(pair.run(*pair.fake, {.recording = &recording})).or_throw();
  std::multiset<int64_t> launches;
  for (const auto& [key, total] : recording.totals()) {
    launches.insert(total.nanoseconds / kLaunchTime);
    EXPECT_EQ(total.nanoseconds % kLaunchTime == 0, total.threads == 0);
  }
  EXPECT_EQ(launches, (std::multiset<int64_t>{0, 1, 2}));  // the product is two kernels
  EXPECT_EQ(pair.driver->count("fake.timing"), 2);
}

// They are recorded, too, all of a step.
TEST(DeviceCounts, OfStepsInPhasesThatAreRecorded) {
  const Sizes sizes{{3, 4}, {4, 5}, {5, 2}};
  Pair pair(parsed(kProducts), sizes, phased_kernels());
  pair.driver = std::make_shared<FakeDriver>(int64_t{1} << 30, true);
  SpecializationOptions options = on_fake(pair.driver, phased_kernels());
  pair.fake = std::make_unique<SpecializationCache>(
      std::move(optimized(pair.graph, phased_kernels())).or_throw(), std::move(options));
  expect_same(pair, "first");
  for (int run = 0; run < 3; ++run) expect_same(pair, "again");
  const auto made = std::move(pair.fake->specialize(sizes)).or_throw();
  const auto source = print_plan(made->executable->plan(), pair.driver->print_options());
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(commands_of(*source->code)->count, 4);
}

// The constant is brought when the program is made, and is no business of runs.
TEST(DeviceCounts, OfConstants) {
  const Pair pair(parsed(R"(graph g<f32, i64>(%x: f32[2, 3]) {
  %0 = constant(value=tensor<f32[3, 2]>(0.0, 1.0, 2.0, 3.0, 4.0, 5.0)) : f32[3, 2]
  %1 = matmul(%x, %0) : f32[2, 2]
  return y=%1
})"),
                  {{2, 3}});
  pair.driver->clear();
  std::move(pair.fake->specialize(pair.sizes)).or_throw();
  EXPECT_EQ(counted(*pair.driver), (Counts{{"build", 1}, {"kernel", 1}, {"constant", 1}}));
  expect_counts(
      pair,
      {{"allocate", 1}, {"operand", 2}, {"write", 1}, {"launch", 1}, {"read", 1}, {"finish", 1}});
}

// What is between steps stays on the device.
TEST(DeviceCounts, OfSteps) {
  const Pair pair(parsed(R"(graph g<f32, i64>(%x: f32[2, 3], %w: f32[3, 3]) {
  %0 = matmul(%x, %w) : f32[2, 3]
  %1 = tanh(%0) : f32[2, 3]
  %2 = matmul(%1, %w) : f32[2, 3]
  %3 = softmax(%2) : f32[2, 3]
  return y=%3
})"),
                  {{2, 3}, {3, 3}});
  expect_counts(
      pair,
      {{"allocate", 1}, {"operand", 3}, {"write", 2}, {"launch", 4}, {"read", 1}, {"finish", 1}});
}

// The host's kernel sees its operand and its result, each once; nothing else moves for it.
TEST(DeviceCounts, OfAHostStep) {
  const Pair pair(parsed(R"(graph g<f32, i64>(%x: f32[5]) {
  %0 = exp(%x) : f32[5]
  %1 = argsort(%0) : i64[5]
  return y=%1
})"),
                  {{5}});
  expect_counts(pair, {{"allocate", 1},
                       {"operand", 2},
                       {"write", 1},
                       {"launch", 1},
                       {"map", 2},
                       {"unmap", 2},
                       {"read", 1},
                       {"finish", 1}});
}

// The memory that is given away is the result's: it goes in and comes out, and is there once.
TEST(DeviceCounts, OfAnInputThatIsGivenAway) {
  Pair pair(parsed(R"(graph g<f32, i64>(%x: f32[6], %y: f32[6]) {
  %0 = add(%x, %y) : f32[6]
  return x=%0
})"),
            {{6}, {6}}, fake_kernels(), {{0, 0}});
  const auto wanted = std::move(pair.run(*pair.cpu)).or_throw();
  const auto made = std::move(pair.fake->specialize(pair.sizes)).or_throw();
  pair.driver->clear();
  const void* const inputs[] = {pair.inputs[0].data(), pair.inputs[1].data()};
  void* const outputs[] = {pair.inputs[0].data()};
  made->executable->run(inputs, outputs).or_throw();
  EXPECT_EQ(pair.inputs[0], wanted[0]);
  EXPECT_EQ(counted(*pair.driver), (Counts{{"allocate", 1},
                                           {"operand", 2},
                                           {"write", 2},
                                           {"launch", 1},
                                           {"read", 1},
                                           {"finish", 1}}));
}

constexpr const char* kScan = R"(graph m<f32, i64>(%h: f32[b], %x: f32[T, b]) {
  %0, %1 = scan(%h, %x, carries=1, xs=1, length='T') : f32[b], f32[T, b] {
    graph step<f32, i64>(%c0: f32[b], %x0: f32[b]) {
      %0 = add(%c0, %x0) : f32[b]
      return c0=%0, y0=%x0
    }
  }  # model.loop
  return last=%0, xs=%1
}
)";

// A loop of known length writes its last carry where it is wanted; of no steps it is copied there.
TEST(DeviceCounts, OfALoop) {
  for (const int64_t length : {0, 1, 4}) {
    const Pair pair(parsed(kScan), {{3}, {length, 3}});
    Counts counts{{"allocate", 1}, {"finish", 1}};
    const bool runs = length > 0;
    counts["operand"] = runs ? 4 : 2;  // of nothing there is no memory
    counts["write"] = counts["read"] = runs ? 2 : 1;
    if (runs) counts["launch"] = 2 * length;
    if (!runs) counts["copy"] = 1;
    expect_counts(pair, counts);
  }
}

constexpr const char* kBranch = R"(graph m<f32, i64>(%x: f32[3], %p: bool[]) {
  %0 = cond(%x, %p) : f32[3] {
    graph taken<f32, i64>(%k0: f32[3]) {
      %0 = exp(%k0) : f32[3]
      return y0=%0
    }
  } {
    graph other<f32, i64>(%k0: f32[3]) {
      %0 = negate(%k0) : f32[3]
      return y0=%0
    }
  }
  return y=%0
}
)";

constexpr const char* kWhile = R"(graph m<f32, i64>(%x: f32[], %limit: f32[]) {
  %0 = while_loop(%x, %limit, carries=1) : f32[] {
    graph condition<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = less(%c0, %k0) : bool[]
      return go=%0
    }
  } {
    graph step<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = exp(%c0) : f32[]
      return c0=%0
    }
  }
  return y=%0
}
)";

Bytes number(float x) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&x);
  return {bytes, bytes + sizeof x};
}

// The host reads the bool of each condition, and the last carry is copied to the result at most.
TEST(DeviceCounts, OfALoopWithACondition) {
  Pair pair(parsed(kWhile), {{}, {}});
  pair.inputs = {number(0.0F), number(2.0F)};  // 0, 1, e
  std::move(pair.fake->specialize(pair.sizes)).or_throw();
  pair.driver->clear();
  expect_same(pair, "three conditions, two steps");
  const Counts counts = counted(*pair.driver);
  EXPECT_EQ(counts.at("byte"), 3);
  EXPECT_EQ(counts.at("launch"), 3 + 2);
  EXPECT_LE(counts.count("copy") == 0 ? 0 : counts.at("copy"), 1);
  EXPECT_EQ(counts.at("finish"), 1);
}

// The host reads the bool and nothing else, and one branch runs.
TEST(DeviceCounts, OfABranch) {
  const Pair pair(parsed(kBranch), {{3}, {}});
  expect_counts(pair, {{"allocate", 1},
                       {"operand", 3},
                       {"write", 2},
                       {"byte", 1},
                       {"launch", 1},
                       {"read", 1},
                       {"finish", 1}});
}

}  // namespace
}  // namespace mithril::device::test

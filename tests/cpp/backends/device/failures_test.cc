// Covers: backends/device/executable.cc runtime/executable.cc
// A device that fails at each of its calls in turn, is lost, or lies about what it can do: typed
// errors, nothing that stays behind, and a next call that works.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/device/injection.h"
#include "backends/device/on_fake.h"
#include "ir/text.h"
#include "specialize/bytes.h"

namespace mithril::device::test {
namespace {

using core::ErrorKind;
using mithril::test::Bytes;
using mithril::test::Sizes;

constexpr const char* kSteps = R"(graph g<f32, i64>(%x: f32[2, 3]) {
  %0 = constant(value=tensor<f32[3, 3]>(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)) : f32[3, 3]
  %1 = matmul(%x, %0) : f32[2, 3]
  %2 = tanh(%1) : f32[2, 3]
  %3 = argsort(%2) : i64[2, 3]
  %4 = transpose(%1) : f32[3, 2]
  return places=%3, y=%2, t=%4
})";

constexpr const char* kScan = R"(graph m<f32, i64>(%h: f32[3], %x: f32[4, 3]) {
  %0, %1 = scan(%h, %x, carries=1, xs=1, length=4) : f32[3], i64[4, 3] {
    graph step<f32, i64>(%c0: f32[3], %x0: f32[3]) {
      %0 = add(%c0, %x0) : f32[3]
      %1 = argsort(%0) : i64[3]
      return c0=%0, y0=%1
    }
  }  # model.loop
  return last=%0, places=%1
}
)";

constexpr const char* kWhile = R"(graph m<f32, i64>(%x: f32[1], %p: bool[]) {
  %0 = while_loop(%x, carries=1) : f32[1] {
    graph condition<f32, i64>(%c0: f32[1]) {
      %0 = max(%c0) : f32[]
      %1 = constant(value=7.0, dtype=f32) : f32[]
      %2 = less(%0, %1) : bool[]
      return go=%2
    }
  } {
    graph step<f32, i64>(%c0: f32[1]) {
      %0 = exp(%c0) : f32[1]
      return c0=%0
    }
  }
  %1 = cond(%0, %p) : f32[1] {
    graph taken<f32, i64>(%k0: f32[1]) {
      %0 = exp(%k0) : f32[1]
      return y0=%0
    }
  } {
    graph other<f32, i64>(%k0: f32[1]) {
      %0 = negate(%k0) : f32[1]
      return y0=%0
    }
  }
  return y=%1
}
)";

/// A program on a device of its own, and the outputs of a run in which nothing failed.
struct Case {
  ir::Graph graph;
  std::shared_ptr<FakeDriver> driver = std::make_shared<FakeDriver>();
  const select::KernelTable& kernels;
  Sizes sizes;
  std::vector<Bytes> inputs, wanted;

  explicit Case(std::string_view text, const select::KernelTable& with = fake_kernels())
      : graph(std::move(ir::parse(text)).or_throw()),
        kernels(with),
        sizes(mithril::test::sizes_of(graph)),
        inputs(mithril::test::random_inputs(graph, sizes)) {}

  std::unique_ptr<SpecializationCache> program() const {
    return std::make_unique<SpecializationCache>(std::move(optimized(graph, kernels)).or_throw(),
                                                 on_fake(driver, kernels));
  }
  core::Result<std::vector<Bytes>> run(const Specialization& made,
                                       const runtime::RunControl& control = {}) const {
    return mithril::test::run(graph, made, inputs, control);
  }
  /// Counts what is alive of the device, but for memory that is kept for the next run.
  int64_t alive() const {
    driver->give_back({});
    return live_objects();
  }
  std::map<std::string, int64_t> counts() const {
    std::map<std::string, int64_t> out;
    for (const std::string& symbol : driver->log()) ++out[symbol];
    return out;
  }
};

class Failures : public ::testing::TestWithParam<const char*> {
 public:
  ~Failures() override {
    for (const char* symbol : kSymbols) inject_failure(symbol, 0, 0);
  }
};

ErrorKind kind_of(int failure) {
  return failure == kNoMemory ? ErrorKind::kMemory : ErrorKind::kDevice;
}

// While a program is made.
TEST_P(Failures, OfMakingAProgramAreTold) {
  Case at(GetParam());
  const int64_t before = at.alive();
  at.program()->specialize(at.sizes).or_throw();
  const auto counts = at.counts();
  EXPECT_TRUE(counts.contains("fake.build") && counts.contains("fake.kernel"));
  for (const auto& [symbol, count] : counts) {
    for (int64_t nth = 1; nth <= count; ++nth) {
      const auto program = at.program();
      inject_failure(symbol, nth, kNoMemory);
      const auto failed = program->specialize(at.sizes);
      ASSERT_FALSE(failed.ok()) << symbol << " " << nth;
      EXPECT_EQ(failed.error().kind, ErrorKind::kMemory);
      EXPECT_EQ(at.alive(), before) << symbol << " " << nth;
      const auto made = program->specialize(at.sizes);
      ASSERT_TRUE(made.ok()) << symbol << " " << nth << ": " << made.error().text();
      EXPECT_TRUE(at.run(**made).ok());
    }
  }
  EXPECT_EQ(at.alive(), before);
}

// While it runs, with times taken and without: the run before and the run after have the same bits.
TEST_P(Failures, OfARunAreTold) {
  Case at(GetParam());
  const auto program = at.program();
  const auto made = std::move(program->specialize(at.sizes)).or_throw();
  const auto wanted = std::move(at.run(*made)).or_throw();
  const int64_t before = at.alive();
  runtime::Recording recording(1000);
  for (runtime::Recording* const times : {static_cast<runtime::Recording*>(nullptr), &recording}) {
    const auto run = [&] { return at.run(*made, {.recording = times}); };
    at.driver->clear();
    ASSERT_TRUE(run().ok());
    const auto counts = at.counts();
    EXPECT_GE(counts.size(), 6u);
    EXPECT_EQ(counts.contains("fake.timed"), times != nullptr);
    for (const auto& [symbol, count] : counts) {
      for (int64_t nth = 1; nth <= count; ++nth) {
        for (const int failure : {kFails, kNoMemory, kLost}) {
          const std::string where = fmt::format("{} {} {}", symbol, nth, failure);
          EXPECT_EQ(at.alive(), before) << where;
          inject_failure(symbol, nth, failure);
          const auto failed = run();
          ASSERT_FALSE(failed.ok()) << where;
          EXPECT_EQ(failed.error().kind, kind_of(failure)) << where;
          EXPECT_EQ(at.alive(), before) << where;
          if (failure == kLost) {
            const auto again = run();
            ASSERT_FALSE(again.ok()) << where;
            EXPECT_EQ(again.error().kind, ErrorKind::kDevice) << where;
          }
          at.driver->revive();
          const auto next = run();
          ASSERT_TRUE(next.ok()) << where << ": " << next.error().text();
          EXPECT_EQ(*next, wanted) << where;
        }
      }
    }
  }
  EXPECT_EQ(at.alive(), before);
}

INSTANTIATE_TEST_SUITE_P(Device, Failures, ::testing::Values(kSteps, kScan, kWhile));

TEST(DeviceFailures, TooLittleMemoryIsToldBeforeARun) {
  Case at(kSteps);
  at.driver = std::make_shared<FakeDriver>(64);
  const int64_t before = at.alive();
  const auto made = at.program()->specialize(at.sizes);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::kMemory);
  EXPECT_EQ(at.alive(), before);
}

// ---------------------------------------------------------------- kernels that lie or fail

constexpr const char* kSorted = R"(graph g<f32, i64>(%x: f32[2, 3]) {
  %0 = argsort(%x) : i64[2, 3]
  return y=%0
})";

using select::KernelRequest;
using Make = core::Result<plan::Step> (*)(const KernelRequest&);

core::Result<plan::Step> refuse(const KernelRequest&) {
  return core::fail(ErrorKind::kUnsupported, core::Code::kUnsupported, "no, after all");
}
core::Result<plan::Step> make_nothing(const KernelRequest&) { return plan::Step(); }
core::Result<plan::Step> make_unknown(const KernelRequest&) {
  plan::FunctionCall call;
  call.name = "argsort";
  call.call = "fake_sort(a0)";
  plan::Step step;
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}
core::Result<plan::Step> make_failing(const KernelRequest&) {
  plan::Step step;
  step.kernel = [](const plan::KernelArgs&, int64_t, int64_t) {
    return plan::KernelStatus::kFailed;
  };
  return step;
}
core::Result<plan::Step> make_refusing(const KernelRequest&) {
  plan::Step step;
  step.kernel = [](const plan::KernelArgs& args, int64_t, int64_t) {
    args.error->report(0, 1, 7, 3);
    return plan::KernelStatus::kBadData;
  };
  return step;
}

/// A table whose first row for argsort has this `make`.
template <Make kMake>
const select::KernelTable& table_with() {
  static constexpr select::KernelDef kRows[] = {
      {"argsort", "fake.argsort", select::OrderClass::kCanonical, true, {}, kMake}};
  static constexpr select::KernelFamily kFamilies[] = {
      []() -> std::span<const select::KernelDef> { return kRows; }};
  static const select::KernelTable table(kFamilies, &host_kernels());
  return table;
}

/// Gives the error that a program ends with, made or run; the device has nothing of it then.
core::Error error_with(const select::KernelTable& kernels) {
  const Case at(kSorted, kernels);
  const int64_t before = at.alive();
  const auto outcome = [&]() -> core::Status {
    MITHRIL_ASSIGN(const auto made, at.program()->specialize(at.sizes));
    return at.run(*made).ok() ? core::Status() : std::move(at.run(*made)).status();
  };
  core::Error out;
  try {
    core::Status status = outcome();
    EXPECT_FALSE(status.ok());
    if (!status.ok()) out = status.take();
  } catch (const core::ErrorException& error) {  // a bug of the backend
    out = error.error();
  }
  EXPECT_EQ(at.alive(), before);
  return out;
}

TEST(DeviceLies, AKernelThatIsNotThereAfterAll) {
  const core::Error error = error_with(table_with<refuse>());
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(error.message, "no, after all");
}

TEST(DeviceLies, AKernelThatIsNothing) {
  const core::Error error = error_with(table_with<make_nothing>());
  EXPECT_EQ(error.kind, ErrorKind::kInternal);
  EXPECT_NE(error.message.find("fake.argsort: its backend gave no kernel for the host"),
            std::string::npos)
      << error.message;
}

TEST(DeviceLies, AFunctionThatTheDeviceDoesNotKnow) {
  const core::Error error = error_with(table_with<make_unknown>());
  EXPECT_EQ(error.kind, ErrorKind::kInternal);
  EXPECT_EQ(error.message, "Fake: no function fake_sort(a0)");
}

TEST(DeviceLies, AKernelThatFails) {
  const core::Error error = error_with(table_with<make_failing>());
  EXPECT_EQ(error.kind, ErrorKind::kInternal);
  EXPECT_EQ(error.message, "kernel fake.argsort failed; this is a bug in mithril");
}

TEST(DeviceLies, AKernelThatRefusesItsData) {
  const core::Error error = error_with(table_with<make_refusing>());
  EXPECT_EQ(error.kind, ErrorKind::kIndex);
  EXPECT_EQ(error.message, "index 7 is out of bounds for an axis of size 3");
}

TEST(DeviceLies, AnExecutableThatIsNotThere) {
  const Case at(kSorted);
  SpecializationOptions options = on_fake(at.driver);
  options.make_executable = [](plan::Plan) {
    return core::Result<std::shared_ptr<const runtime::Executable>>(
        std::shared_ptr<const runtime::Executable>());
  };
  SpecializationCache program(std::move(optimized(at.graph)).or_throw(), options);
  EXPECT_THROW((void)program.specialize(at.sizes), core::ErrorException);
}

}  // namespace
}  // namespace mithril::device::test

// Covers: backends/device/executable.cc backends/device/recordings.cc backends/device/driver.cc
// Who runs a plan is asked between steps whether to go on, and may run it again from there.
#include <atomic>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "backends/device/injection.h"
#include "backends/device/lead.h"
#include "backends/device/on_fake.h"
#include "backends/device/recordings.h"
#include "backends/device/storage.h"
#include "ir/text.h"
#include "specialize/bytes.h"

namespace mithril::device::test {
namespace {

using core::ErrorKind;
using mithril::test::Bytes;

/// Counts how often a run asks, and does something when it does for the `nth` time; `slow`: a
/// device that is so slow that every step is waited for.
struct Asked {
  int64_t nth = 0;
  std::function<void()> then;
  FakeDriver* slow = nullptr;
  int64_t calls = 0;
  std::atomic<bool> cancel{false};

  static void poll(void* self) {
    auto& own = *static_cast<Asked*>(self);
    if (own.slow != nullptr) own.slow->lead().note_wait(1, 1e9);
    if (++own.calls == own.nth) own.then();
  }
  runtime::RunControl control() { return {&cancel, &poll, this}; }
};

/// A program on a device of its own.
struct Made {
  ir::Graph graph;
  std::shared_ptr<FakeDriver> driver;
  std::shared_ptr<const Specialization> made;

  explicit Made(std::string_view text, bool records = false,
                const select::KernelTable& kernels = fake_kernels())
      : graph(std::move(ir::parse(text)).or_throw()),
        driver(std::make_shared<FakeDriver>(int64_t{1} << 30, records)) {
    SpecializationCache cache(std::move(optimized(graph, kernels)).or_throw(),
                              on_fake(driver, kernels));
    made = std::move(cache.specialize(mithril::test::sizes_of(graph))).or_throw();
  }
  core::Result<std::vector<Bytes>> run(const std::vector<Bytes>& inputs,
                                       const runtime::RunControl& control = {}) const {
    return mithril::test::run(graph, *made, inputs, control);
  }
};

Bytes floats(const std::vector<float>& values) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + values.size() * sizeof(float)};
}

// ---------------------------------------------------------------- interrupts

constexpr const char* kEndless = R"(graph m<f32, i64>(%x: f32[]) {
  %0 = while_loop(%x, carries=1) : f32[] {
    graph condition<f32, i64>(%c0: f32[]) {
      %0 = constant(value=0.0, dtype=f32) : f32[]
      %1 = greater_equal(%c0, %0) : bool[]
      return go=%1
    }
  } {
    graph step<f32, i64>(%c0: f32[]) {
      %0 = tanh(%c0) : f32[]
      return c0=%0
    }
  }
  return y=%0
}
)";

// Neither the condition nor the body has a step.
constexpr const char* kIdle = R"(graph m<f32, i64>(%x: f32[], %p: bool[]) {
  %0 = while_loop(%x, %p, carries=1) : f32[] {
    graph condition<f32, i64>(%c0: f32[], %k0: bool[]) {
      return go=%k0
    }
  } {
    graph step<f32, i64>(%c0: f32[], %k0: bool[]) {
      return c0=%c0
    }
  }
  return y=%0
}
)";

TEST(DeviceInterrupts, EndLoopsThatDoNotEnd) {
  for (const char* text : {kEndless, kIdle}) {
    const Made program(text);
    Asked asked;
    asked.nth = 20;
    asked.then = [&] { asked.cancel = true; };
    std::vector<Bytes> inputs{floats({1.0F})};
    if (text == kIdle) inputs.emplace_back(1, std::byte{1});
    const auto stopped = program.run(inputs, asked.control());
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().kind, ErrorKind::kInterrupted);
    EXPECT_EQ(asked.calls, 20);
    EXPECT_LE(program.driver->count("fake.byte"), 20);  // it asks in each turn
  }
}

constexpr const char* kProducts = R"(graph g<f32, i64>(%x: f32[2, 2], %w: f32[2, 2]) {
  %0 = matmul(%x, %w) : f32[2, 2]
  %1 = matmul(%0, %w) : f32[2, 2]
  %2 = matmul(%1, %w) : f32[2, 2]
  %3 = matmul(%2, %w) : f32[2, 2]
  return y=%3
})";
const std::vector<Bytes> kOnes{floats({1, 0, 0, 1}), floats({1, 2, 0, 1})};
const Bytes kProduct = floats({1, 8, 0, 1});  // the fourth power of the second matrix

// A run that is short need not ask again; where steps are long, it waits and asks before each.
TEST(DeviceInterrupts, EndRunsBetweenSteps) {
  const Made program(kProducts);
  Asked asked;
  EXPECT_EQ(std::move(program.run(kOnes, asked.control())).or_throw()[0], kProduct);
  EXPECT_EQ(asked.calls, 1);
  asked.slow = program.driver.get();
  program.driver->clear();
  asked.calls = 0;
  asked.nth = 3;
  asked.then = [&] { asked.cancel = true; };
  const auto stopped = program.run(kOnes, asked.control());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::kInterrupted);
  EXPECT_EQ(program.driver->count("fake.launch"), 2);
  EXPECT_EQ(std::move(program.run(kOnes)).or_throw()[0], kProduct);
}

// Times are taken of one step after the other.
TEST(DeviceInterrupts, EndRunsThatAreTimed) {
  const Made program(kProducts);
  runtime::Recording recording(100);
  Asked asked;
  asked.nth = 3;
  asked.then = [&] { asked.cancel = true; };
  runtime::RunControl control = asked.control();
  control.recording = &recording;
  EXPECT_FALSE(program.run(kOnes, control).ok());
  EXPECT_EQ(program.driver->count("fake.launch"), 2);
}

TEST(DeviceLead, IsWhatADeviceDoesInTheTimeOfAWait) {
  constexpr double kQuick = 1e6, kSecond = 1e9;
  Lead lead(Lead::kMostOfGpu);
  EXPECT_EQ(lead.nanoseconds(), 2e6);
  for (int i = 0; i < 10; ++i) lead.note_wait(lead.nanoseconds(), kQuick);
  EXPECT_EQ(lead.nanoseconds(), Lead::kMostOfGpu);
  lead.note_wait(1e8, kSecond);  // a fiftieth would have taken 20 ms
  EXPECT_EQ(lead.nanoseconds(), 2e6);
  lead.note_wait(1e9, kSecond);  // of one step that is longer than that
  EXPECT_EQ(lead.nanoseconds(), 2e6);
  lead.note_wait(lead.nanoseconds(), kQuick);
  EXPECT_EQ(lead.nanoseconds(), 4e6);
  lead.note_wait(1e3, kQuick);  // so little says nothing of more
  lead.note_wait(INFINITY, kQuick);
  lead.note_wait(INFINITY, kSecond);
  EXPECT_EQ(lead.nanoseconds(), 4e6);
  lead.note_wait(0.001, kSecond);
  EXPECT_EQ(lead.nanoseconds(), 1);
}

// ---------------------------------------------------------------- runs within runs

/// Two sets of places for the operands of kProducts, and what a run makes of each.
struct Places {
  std::vector<std::shared_ptr<const Storage>> inputs;
  std::shared_ptr<const Storage> output;

  Places(const std::shared_ptr<FakeDriver>& driver, float factor) {
    for (const Bytes& value : {floats({factor, 0, 0, factor}), kOnes[1]}) {
      const auto bytes = static_cast<int64_t>(value.size());
      inputs.push_back(std::move(Storage::make(driver, bytes)).or_throw());
      std::move(inputs.back()->write(0, value.data(), bytes)).or_throw();
    }
    output = std::move(Storage::make(driver, 16)).or_throw();
  }
  core::Status run(const Made& program, const runtime::RunControl& control = {}) const {
    const void* const from[] = {inputs[0]->address(), inputs[1]->address()};
    void* const to[] = {const_cast<std::byte*>(output->address())};
    return program.made->executable->run(from, to, control);
  }
  std::vector<float> result() const {
    std::vector<float> out(4);
    std::move(output->read(0, out.data(), 16)).or_throw();
    return out;
  }
};

// The run within finds, makes or drops the recordings among which the one around it looks.
TEST(DeviceRunsWithinRuns, HaveRecordingsOfTheirOwn) {
  using Case = std::pair<size_t, bool>;
  for (const Case& one : {Case(1, false), Case(1, true), Case(9, false)}) {
    const size_t count = one.first;
    const bool gives_up = one.second;
    const Made program(kProducts, true);
    const Places own(program.driver, 1.0F);
    std::vector<Places> others;  // nine are more than are kept
    for (size_t i = 0; i < count; ++i) others.emplace_back(program.driver, 2.0F);
    ASSERT_TRUE(own.run(program).ok());
    for (int run = 0; run < 3; ++run) {  // recorded, enqueued as it was recorded, and that again
      const std::vector<float> nothing(4, 0.0F);
      ASSERT_TRUE(own.output->write(0, nothing.data(), 16).ok());
      Asked asked;
      asked.nth = 1;
      asked.then = [&] {
        if (gives_up) inject_failure("fake.record", 1, kFails);
        for (int i = 0; i < 2; ++i) {
          for (const Places& other : others) EXPECT_TRUE(other.run(program).ok());
        }
        for (int i = 0; i < 2; ++i) EXPECT_TRUE(others[0].run(program).ok());
        inject_failure("fake.record", 0, 0);
      };
      ASSERT_TRUE(own.run(program, asked.control()).ok());
      EXPECT_EQ(asked.calls, 1);
      EXPECT_EQ(own.result(), (std::vector<float>{1, 8, 0, 1})) << run;
      EXPECT_EQ(others[0].result(), (std::vector<float>{2, 16, 0, 2})) << run;
    }
  }
}

// Both report to the same place.
TEST(DeviceRunsWithinRuns, ReportIndicesOfTheirOwn) {
  const std::vector<Bytes> good{floats({1, 0, 0, 1}), floats({1, 0, 0, 1})};
  const std::vector<Bytes> bad{floats({1, 5, 0, 1}), floats({1, 0, 0, 1})};
  const Made program(kProducts, false, checked_kernels());
  EXPECT_EQ(program.run(bad).error().kind, ErrorKind::kIndex);
  EXPECT_EQ(std::move(program.run(good)).or_throw()[0], good[0]);
  for (int64_t nth = 1; nth <= 4; ++nth) {
    for (const bool is_bad_within : {false, true}) {
      Asked asked;
      asked.slow = program.driver.get();
      asked.nth = nth;
      asked.then = [&] {
        const auto within = program.run(is_bad_within ? bad : good);
        EXPECT_EQ(within.ok(), !is_bad_within);
      };
      const auto around = program.run(is_bad_within ? good : bad, asked.control());
      ASSERT_EQ(around.ok(), is_bad_within) << nth;
      if (around.ok()) {
        EXPECT_EQ((*around)[0], good[0]);
      } else {
        EXPECT_EQ(around.error().kind, ErrorKind::kIndex);
        EXPECT_EQ(around.error().message, "index 5 is out of bounds for an axis of size 3");
      }
    }
  }
}

}  // namespace
}  // namespace mithril::device::test

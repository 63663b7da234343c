// Covers: backends/device/storage.cc backends/device/driver.cc backends/device/executable.cc
// Covers: backends/device/recordings.cc
// Memory of a device that outlives runs: programs read and write it where it is, and nobody waits
// but who reads it.
#include "backends/device/storage.h"

#include <map>

#include <gtest/gtest.h>

#include "backends/cpu/target.h"
#include "backends/device/injection.h"
#include "backends/device/on_fake.h"
#include "backends/device/recordings.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "specialize/bytes.h"
#include "specialize/on_cpu.h"

namespace mithril::device::test {
namespace {

using core::ErrorKind;
using mithril::test::Bytes;
using StoragePtr = std::shared_ptr<const Storage>;

constexpr const char* kLoops = R"(graph g<f32, i64>(%x: f32[3, 4], %y: f32[4]) {
  %0 = multiply(%x, %y) : f32[3, 4]
  %1 = tanh(%0) : f32[3, 4]
  %2 = transpose(%1) : f32[4, 3]
  %3 = constant(value=tensor<f32[3, 2]>(0.0, 1.0, 2.0, 3.0, 4.0, 5.0)) : f32[3, 2]
  %4 = matmul(%2, %3) : f32[4, 2]
  return y=%1, z=%4
})";

constexpr const char* kOnHost = R"(graph g<f32, i64>(%x: f32[2, 5]) {
  %0 = argsort(%x) : i64[2, 5]
  return places=%0
})";

StoragePtr stored(const std::shared_ptr<FakeDriver>& driver, const Bytes& bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  StoragePtr out = std::move(Storage::make(driver, size)).or_throw();
  std::move(out->write(0, bytes.data(), size)).or_throw();
  return out;
}

Bytes bytes_in(const Storage& storage) {
  Bytes out(static_cast<size_t>(storage.bytes()));
  std::move(storage.read(0, out.data(), storage.bytes())).or_throw();
  return out;
}

/// A program whose operands all are on the fake device, and what the CPU makes of them.
struct Placed {
  ir::Graph graph;
  std::shared_ptr<FakeDriver> driver;
  std::unique_ptr<SpecializationCache> cache;
  std::shared_ptr<const Specialization> made;
  std::vector<Bytes> values, wanted;
  std::vector<StoragePtr> inputs, outputs;

  explicit Placed(std::string_view text, bool records = false)
      : graph(std::move(ir::parse(text)).or_throw()),
        driver(std::make_shared<FakeDriver>(int64_t{1} << 30, records)) {
    const auto sizes = mithril::test::sizes_of(graph);
    values = mithril::test::random_inputs(graph, sizes);
    SpecializationCache cpu(std::move(passes::optimize(graph, cpu::target())).or_throw(), on_cpu());
    wanted =
        std::move(mithril::test::run(graph, *std::move(cpu.specialize(sizes)).or_throw(), values))
            .or_throw();
    cache = std::make_unique<SpecializationCache>(std::move(optimized(graph)).or_throw(),
                                                  on_fake(driver));
    made = std::move(cache->specialize(sizes)).or_throw();
    for (const Bytes& value : values) inputs.push_back(stored(driver, value));
    for (const Bytes& value : wanted) {
      outputs.push_back(
          std::move(Storage::make(driver, static_cast<int64_t>(value.size()))).or_throw());
    }
  }

  core::Status run() const {
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const StoragePtr& one : inputs) from.push_back(one->address());
    for (const StoragePtr& one : outputs) to.push_back(const_cast<std::byte*>(one->address()));
    return made->executable->run(from, to);
  }

  void expect_outputs() const {
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(bytes_in(*outputs[i]), wanted[i]) << i;
  }
};

TEST(DeviceStorage, HoldsWhatWasWritten) {
  const auto driver = std::make_shared<FakeDriver>();
  const int64_t before = live_objects();
  {
    const Bytes one{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    const StoragePtr first = stored(driver, one), second = stored(driver, one);
    EXPECT_EQ(bytes_in(*first), one);
    EXPECT_NE(first->address(), second->address());
    const std::byte nine{9};
    ASSERT_TRUE(first->write(2, &nine, 1).ok());
    EXPECT_EQ(bytes_in(*first), (Bytes{one[0], one[1], nine, one[3]}));
    EXPECT_EQ(bytes_in(*second), one);
    ASSERT_TRUE(second->copy(*first, 1, 3).ok());
    EXPECT_EQ(bytes_in(*second), (Bytes{one[1], nine, one[3], one[3]}));
  }
  EXPECT_EQ(live_objects(), before);
}

TEST(DeviceStorage, HasAddressesThatOnlyTheDriverKnows) {
  const auto driver = std::make_shared<FakeDriver>();
  const StoragePtr storage = stored(driver, Bytes(100));
  const int local = 0;
  EXPECT_FALSE(Driver::is_given(&local));
  EXPECT_FALSE(Driver::is_given(nullptr));
  EXPECT_TRUE(Driver::is_given(storage->address()));
  const Ref ref = driver->stored(storage->address() + 60);
  EXPECT_EQ(ref.offset, 60);
  EXPECT_EQ(ref.memory, driver->stored(storage->address()).memory);
  EXPECT_THROW(FakeDriver().stored(storage->address()), core::ErrorException);
}

// A program that is thrown away waits for its runs in the queue, which need its kernels.
TEST(DeviceStorage, AProgramGoesAfterItsRuns) {
  Placed placed(kLoops);
  ASSERT_TRUE(placed.run().ok());
  EXPECT_GT(placed.driver->unwaited(), 0);
  placed.driver->clear();
  placed.made.reset();
  placed.cache.reset();
  EXPECT_EQ(placed.driver->count("fake.finish"), 1);
  placed.expect_outputs();
}

TEST(DeviceStorage, OfNothing) {
  const auto driver = std::make_shared<FakeDriver>();
  const StoragePtr storage = stored(driver, {});
  EXPECT_TRUE(Driver::is_given(storage->address()));
  EXPECT_TRUE(bytes_in(*storage).empty());
}

// The queue is given the launches and nothing else; who reads waits.
TEST(DeviceStorage, IsUsedWhereItIs) {
  const Placed placed(kLoops);
  for (int run = 0; run < 2; ++run) {
    placed.driver->clear();
    ASSERT_TRUE(placed.run().ok());
    std::map<std::string, int> calls;
    for (const std::string& symbol : placed.driver->log()) ++calls[symbol];
    EXPECT_EQ(calls.erase("fake.allocate"), run == 0 ? 1U : 0U);  // memory for temporaries
    EXPECT_EQ(calls.size(), 1U);
    EXPECT_GE(calls["fake.launch"], 1);
  }
  placed.expect_outputs();
}

TEST(DeviceStorage, IsMappedForKernelsOfTheHost) {
  const Placed placed(kOnHost);
  ASSERT_TRUE(placed.run().ok());
  placed.expect_outputs();
}

// A program may go while the queue still needs its kernels and constants.
TEST(DeviceStorage, HasResultsOfProgramsThatAreGone) {
  Placed placed(kLoops);
  ASSERT_TRUE(placed.run().ok());
  placed.made.reset();
  placed.cache.reset();
  placed.inputs.clear();
  placed.expect_outputs();
}

// One operand may be the host's and another the device's.
TEST(DeviceStorage, IsMixedWithMemoryOfTheHost) {
  const Placed placed(kLoops);
  Bytes y(placed.wanted[0].size());
  const void* const from[] = {placed.values[0].data(), placed.inputs[1]->address()};
  void* const to[] = {y.data(), const_cast<std::byte*>(placed.outputs[1]->address())};
  ASSERT_TRUE(placed.made->executable->run(from, to).ok());
  EXPECT_EQ(y, placed.wanted[0]);
  EXPECT_EQ(bytes_in(*placed.outputs[1]), placed.wanted[1]);
}

// Each call of a run fails in turn: an error of its kind, and the next run is right.
TEST(DeviceStorage, SurvivesCallsThatFail) {
  for (const char* text : {kLoops, kOnHost}) {
    const Placed placed(text);
    ASSERT_TRUE(placed.run().ok());
    const int64_t before = live_objects();
    for (const char* symbol : {"fake.launch", "fake.map", "fake.unmap"}) {
      inject_failure(symbol, 1, kFails);
      const core::Status failed = placed.run();
      inject_failure(symbol, 1, 0);
      if (!failed.ok()) {
        EXPECT_EQ(failed.error().kind, ErrorKind::kDevice) << symbol;
      }
      ASSERT_TRUE(placed.run().ok()) << symbol;
      placed.expect_outputs();
    }
    EXPECT_EQ(live_objects(), before);
  }
}

// ---------------------------------------------------------------- command buffers

constexpr const char* kScan = R"(graph m<f32, i64>(%h: f32[3], %x: f32[4, 3]) {
  %0, %1 = scan(%h, %x, carries=1, xs=1, length=4) : f32[3], f32[4, 3] {
    graph step<f32, i64>(%c0: f32[3], %x0: f32[3]) {
      %0 = add(%c0, %x0) : f32[3]
      return c0=%0, y0=%0
    }
  }
  return last=%0, sums=%1
}
)";

std::map<std::string, int> calls_of_a_run(const Placed& placed) {
  placed.driver->clear();
  std::move(placed.run()).or_throw();
  std::map<std::string, int> out;
  for (const std::string& symbol : placed.driver->log()) ++out[symbol.substr(5)];
  out.erase("allocate");  // memory for temporaries
  return out;
}

using Calls = std::map<std::string, int>;

// The first run enqueues steps, the second one records them; from then on they are one command,
// which reads what its operands are by then.
TEST(DeviceCommands, AreRecordedWhereOperandsAreAsBefore) {
  for (const char* text : {kLoops, kScan}) {
    const Placed placed(text, true), plain(text);
    const int steps = calls_of_a_run(plain).at("launch");
    EXPECT_EQ(calls_of_a_run(placed), (Calls{{"launch", steps}}));
    Calls second = calls_of_a_run(placed);
    second.erase("finish");  // the first run could be long for all that is known of its loop
    EXPECT_EQ(second, (Calls{{"record", 1}, {"launch", steps}, {"recorded", 1}, {"commands", 1}}));
    EXPECT_EQ(calls_of_a_run(placed), (Calls{{"commands", 1}}));
    placed.expect_outputs();
    const Bytes other(placed.values[0].size(), std::byte{0x3F});
    for (const Placed* on : {&placed, &plain}) {
      ASSERT_TRUE(on->inputs[0]->write(0, other.data(), on->inputs[0]->bytes()).ok());
      ASSERT_TRUE(on->run().ok());
    }
    EXPECT_EQ(calls_of_a_run(placed), (Calls{{"commands", 1}}));
    for (size_t i = 0; i < placed.outputs.size(); ++i) {
      EXPECT_EQ(bytes_in(*placed.outputs[i]), bytes_in(*plain.outputs[i]));
      EXPECT_NE(bytes_in(*placed.outputs[i]), placed.wanted[i]);
    }
  }
}

// What is written and read in turn has a recording for each turn.
TEST(DeviceCommands, AreOfTheAddressesOfARun) {
  Placed placed(kLoops, true);
  const StoragePtr first = placed.outputs[0];
  const StoragePtr second = std::move(Storage::make(placed.driver, first->bytes())).or_throw();
  for (int run = 0; run < 4; ++run) {
    for (const StoragePtr& output : {first, second}) {
      placed.outputs[0] = output;
      const Calls calls = calls_of_a_run(placed);
      EXPECT_EQ(calls.count("launch"), run < 2 ? 1U : 0U);
      EXPECT_EQ(calls.count("commands"), run < 1 ? 0U : 1U);
      placed.expect_outputs();
    }
  }
}

// A condition that the host reads, and a step that it computes, cannot be recorded.
TEST(DeviceCommands, AreNotOfPlansThatTheHostTakesPartIn) {
  const Placed placed(kOnHost, true);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(calls_of_a_run(placed).count("record"), 0U);
  placed.expect_outputs();
}

// A device that cannot record gets steps one by one; one that fails otherwise says so.
TEST(DeviceCommands, ThatCannotBeRecordedAreSteps) {
  for (const char* symbol : {"fake.record", "fake.recorded", "fake.launch"}) {
    const Placed placed(kLoops, true);
    const int64_t before = live_objects();
    calls_of_a_run(placed);
    inject_failure(symbol, 1, kFails);
    EXPECT_GE(calls_of_a_run(placed).at("launch"), 1) << symbol;
    placed.expect_outputs();
    const Calls calls = calls_of_a_run(placed);
    EXPECT_EQ(calls.count("record") + calls.count("commands"), 0U) << symbol;
    placed.expect_outputs();
    EXPECT_LE(live_objects(), before + 1) << symbol;  // memory for temporaries
  }
  const Placed placed(kLoops, true);
  for (int run = 0; run < 2; ++run) ASSERT_TRUE(placed.run().ok());
  inject_failure("fake.commands", 1, kFails);
  EXPECT_EQ(placed.run().error().kind, ErrorKind::kDevice);
  ASSERT_TRUE(placed.run().ok());
  placed.expect_outputs();
}

TEST(DeviceCommands, OfTheAddressesUsedLongestAgoGo) {
  Recordings recordings;
  std::vector<int> places(Recordings::kMost + 1);
  const auto is_new = [&](size_t at) { return recordings.at({&places[at], nullptr}).is_new; };
  for (size_t i = 0; i < Recordings::kMost; ++i) EXPECT_TRUE(is_new(i));
  EXPECT_FALSE(is_new(0));
  EXPECT_TRUE(is_new(Recordings::kMost));  // in the place of 1
  EXPECT_EQ(recordings.size(), Recordings::kMost);
  EXPECT_FALSE(is_new(0));
  EXPECT_TRUE(is_new(1));
  recordings.give_up();
  EXPECT_TRUE(recordings.has_given_up());
  EXPECT_EQ(recordings.size(), 0U);
}

TEST(DeviceStorage, TellsWhatFailed) {
  const auto driver = std::make_shared<FakeDriver>();
  const StoragePtr storage = stored(driver, Bytes(8));
  std::byte value{};
  inject_failure("fake.allocate", 1, kNoMemory);
  EXPECT_EQ(Storage::make(driver, 8).error().kind, ErrorKind::kMemory);
  inject_failure("fake.write", 1, kFails);
  EXPECT_EQ(storage->write(0, &value, 1).error().kind, ErrorKind::kDevice);
  inject_failure("fake.finish", 1, kFails);
  EXPECT_EQ(storage->read(0, &value, 1).error().kind, ErrorKind::kDevice);
  EXPECT_TRUE(storage->read(0, &value, 1).ok());
  EXPECT_EQ(Storage::borrow(driver, &value, 1, nullptr).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace mithril::device::test

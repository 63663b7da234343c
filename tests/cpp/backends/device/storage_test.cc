// Covers: backends/device/storage.cc backends/device/driver.cc backends/device/executable.cc
// Memory of a device that outlives runs: programs read and write it where it is, and nobody waits
// but who reads it.
#include "backends/device/storage.h"

#include <map>

#include <gtest/gtest.h>

#include "backends/cpu/target.h"
#include "backends/device/injection.h"
#include "backends/device/on_fake.h"
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
  std::shared_ptr<FakeDriver> driver = std::make_shared<FakeDriver>();
  std::unique_ptr<SpecializationCache> cache;
  std::shared_ptr<const Specialization> made;
  std::vector<Bytes> values, wanted;
  std::vector<StoragePtr> inputs, outputs;

  explicit Placed(std::string_view text) : graph(std::move(ir::parse(text)).or_throw()) {
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

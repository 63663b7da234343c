// Covers: backends/device/driver.cc backends/device/executable.cc backends/device/storage.cc
// Covers: backends/opencl/device.cc backends/cuda/device.cc
// Threads at once on one device: the fake one, the first one of OpenCL, and that of CUDA's driver,
// which is the emulator's where scripts/cpp_tests.sh could build it. They compile one program for
// sizes of their own and of all, evaluate it, and make, read and free arrays.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/target.h"
#include "backends/cuda/device.h"
#include "backends/cuda/kernel_families.h"
#include "backends/device/executable.h"
#include "backends/device/injection.h"
#include "backends/device/on_fake.h"
#include "backends/device/select.h"
#include "backends/device/storage.h"
#include "backends/opencl/device.h"
#include "backends/opencl/kernel_families.h"
#include "core/env.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "specialize/bytes.h"
#include "specialize/on_cpu.h"

namespace mithril::device::test {
namespace {

using mithril::test::Bytes;
using mithril::test::Sizes;

constexpr int kThreads = 4, kRounds = 10;

// Loops, products, and a step that is the host's.
constexpr const char* kText = R"(graph g<f32, i64>(%x: f32[b, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[b, 4]
  %1 = tanh(%0) : f32[b, 4]
  %2 = softmax(%1) : f32[b, 4]
  %3 = transpose(%w) : f32[4, 4]
  %4 = matmul(%w, %3) : f32[4, 4]
  %5 = det(%4) : f32[]
  return y=%2, d=%5
})";

/// A device, and how programs of it are made; without a driver `missing` says why.
struct Target {
  std::shared_ptr<Driver> driver;
  SpecializationOptions options;
  const select::KernelTable* kernels = nullptr;
  std::string missing;
};

Target on(const std::shared_ptr<Driver>& driver, const std::string& name,
          const select::KernelTable& kernels) {
  Target out{driver, {}, &kernels, {}};
  out.options.host = std::make_shared<const cpu::Backend>();
  out.options.backend =
      std::make_shared<const Backend>(name, kernels, 1, driver->print_options().parameter_bytes);
  out.options.make_executable =
      [driver](plan::Plan plan) -> core::Result<std::shared_ptr<const runtime::Executable>> {
    const auto build = [driver](const std::string& text) { return driver->build(text); };
    MITHRIL_ASSIGN(auto made, Executable::make(driver, std::move(plan), build));
    return std::shared_ptr<const runtime::Executable>(std::move(made));
  };
  return out;
}

Target fake() {
  const auto driver = std::make_shared<FakeDriver>();
  return {driver, on_fake(driver), &fake_kernels(), {}};
}

Target fake_that_records() {
  const auto driver = std::make_shared<FakeDriver>(int64_t{1} << 30, true);
  return {driver, on_fake(driver), &fake_kernels(), {}};
}

Target opencl_target() {
  const auto device = opencl::Device::open("");
  if (!device.ok()) return {nullptr, {}, nullptr, device.error().text()};
  static const select::KernelTable kernels(opencl::kernel_families((*device)->info().is_cpu),
                                           &cpu::kernel_table());
  return on(*device, "opencl", kernels);
}

Target cuda_target() {
  if (core::env().cuda_lib.empty() || core::env().nvrtc_lib.empty()) {
    return {nullptr, {}, nullptr, "MITHRIL_CUDA_LIB and MITHRIL_NVRTC_LIB name no driver"};
  }
  const auto device = cuda::Device::open(0, {{core::env().nvrtc_lib}, {}, {}});
  if (!device.ok()) return {nullptr, {}, nullptr, device.error().text()};
  static const select::KernelTable kernels(cuda::kernel_families({}), &cpu::kernel_table());
  return on(*device, "cuda", kernels);
}

struct Case {
  const char* name;
  Target (*make)();
};

class DeviceThreads : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    target_ = GetParam().make();
    if (target_.driver == nullptr) GTEST_SKIP() << target_.missing;
  }
  Target target_;
};

/// Runs `work(number)` in threads at once; they begin together.
template <class Work>
void at_once(const Work& work) {
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      work(number);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DeviceThreads, EvaluateOneProgram) {
  const ir::Graph graph = std::move(ir::parse(kText)).or_throw();
  SpecializationOptions on_host = on_cpu();
  for (SpecializationOptions* options : {&target_.options, &on_host}) {
    options->select.exact_conv = options->select.canonical = true;
  }
  SpecializationCache cpu(std::move(passes::optimize(graph, cpu::target())).or_throw(), on_host);
  const auto native =
      select::native_target(std::string(target_.options.backend->name()), core::DType::kFloat32,
                            select::composites_of(*target_.kernels));
  SpecializationCache program(std::move(passes::optimize(graph, native)).or_throw(),
                              target_.options);
  // Of all threads, and of each alone.
  std::vector<Sizes> sizes{{{6, 4}, {4, 4}}};
  for (int64_t number = 0; number < kThreads; ++number) sizes.push_back({{number + 1, 4}, {4, 4}});
  std::vector<std::vector<Bytes>> inputs, wanted;
  for (const Sizes& one : sizes) {
    inputs.push_back(mithril::test::random_inputs(graph, one));
    const auto made = std::move(cpu.specialize(one)).or_throw();
    wanted.push_back(std::move(mithril::test::run(graph, *made, inputs.back())).or_throw());
  }
  std::atomic<int> wrong{0}, failed{0};
  at_once([&](int number) {
    for (int round = 0; round < kRounds; ++round) {
      const size_t at = round % 2 == 0 ? 0 : static_cast<size_t>(number) + 1;
      const auto made = program.specialize(sizes[at]);
      if (!made.ok()) {
        ++failed;
        continue;
      }
      const auto got = mithril::test::run(graph, **made, inputs[at]);
      if (!got.ok()) ++failed;
      if (got.ok() && *got != wanted[at]) ++wrong;
    }
  });
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(wrong, 0);
}

TEST_P(DeviceThreads, MakeAndFreeArrays) {
  constexpr int64_t kBytes = 1000;
  ASSERT_TRUE(target_.driver->release_spare().ok());  // what other tests left
  const int64_t objects = live_objects(), used = target_.driver->used_bytes();
  std::atomic<int> wrong{0};
  at_once([&](int number) {
    std::vector<std::shared_ptr<const Storage>> kept;
    for (int round = 0; round < kRounds; ++round) {
      const Bytes values(kBytes, static_cast<std::byte>(16 * number + round));
      auto made = Storage::make(target_.driver, kBytes);
      auto copy = Storage::make(target_.driver, kBytes);
      Bytes got(kBytes);
      const bool is_done =
          made.ok() && copy.ok() && (*made)->write(0, values.data(), kBytes).ok() &&
          (*copy)->copy(**made, 0, kBytes).ok() && (*copy)->read(0, got.data(), kBytes).ok();
      if (!is_done || got != values) {
        ++wrong;
        continue;
      }
      kept.push_back(*made);
      if (round % 3 == 0) kept.clear();
      if (round % 4 == 0 && !target_.driver->release_spare().ok()) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(target_.driver->wait_for_all().ok());
  EXPECT_TRUE(target_.driver->release_spare().ok());
  EXPECT_EQ(live_objects(), objects);
  EXPECT_EQ(target_.driver->used_bytes(), used);
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceThreads,
                         ::testing::Values(Case{"Fake", fake},
                                           Case{"FakeRecords", fake_that_records},
                                           Case{"OpenCl", opencl_target},
                                           Case{"Cuda", cuda_target}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace mithril::device::test

// Covers: backends/device/winograd_text.cc backends/opencl/products.cc
// Costs and memory of convolutions by tiles are counted before anything is compiled.
#include "backends/device/winograd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/kernels.h"
#include "backends/device/fake_driver.h"
#include "backends/device/plan_code.h"
#include "backends/device/select.h"
#include "backends/device/template_text.h"
#include "backends/opencl/kernel_families.h"
#include "ir/text.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "select/select.h"

namespace mithril::device {
namespace {

Winograd square(int64_t images, int64_t channels, int64_t size) {
  return {images, channels, size, size, channels, size, size, 1, 1};
}

// Few images of many channels would read more of transformed filters than they save; few channels
// have nothing to share what a patch takes.
TEST(DeviceWinograd, IsPreferredWhereItSavesTime) {
  struct Row {
    int64_t images, channels, size, tile_on_cpu, tile_on_gpu;
  };
  for (const Row& row : {Row{1, 64, 56, 4, 0}, Row{8, 64, 56, 4, 0}, Row{8, 256, 14, 4, 4},
                         Row{64, 128, 28, 4, 4}, Row{1, 512, 7, 0, 0}, Row{1, 8, 224, 0, 0}}) {
    const Winograd conv = square(row.images, row.channels, row.size);
    const std::string where = fmt::format("{} of {} {}", row.images, row.channels, row.size);
    EXPECT_EQ(winograd_tile(conv, Items::kLong), row.tile_on_cpu) << where;
    EXPECT_EQ(winograd_tile(conv, Items::kShort), row.tile_on_gpu) << where;
  }
}

// Memory that all tiles at once would take is bounded: others must not fail for the lack of it.
TEST(DeviceWinograd, TakesNoMoreThanItsWorkspace) {
  EXPECT_EQ(winograd_tile(square(8, 256, 56), Items::kShort), 4);
  EXPECT_EQ(winograd_tile(square(256, 256, 56), Items::kShort), 0);
  EXPECT_EQ(winograd_tile(square(256, 256, 56), Items::kLong), 4);
  const Winograd wide = {16, 8704, 128, 128, 8704, 128, 128, 1, 1};
  EXPECT_EQ(winograd_tile(wide, Items::kLong), 0);  // filters of 11 GB
}

TEST(DeviceWinograd, MultipliesStridesThatAreLargeInSixtyFourBits) {
  EXPECT_EQ(stride_text(1 << 20, 36), "1048576");
  EXPECT_EQ(stride_text(1 << 26, 36), "(m_i64)67108864");
  EXPECT_EQ(stride_text(-(1 << 26), 36), "(m_i64)-67108864");
  const Winograd conv = {1, 9000, 8, 8, 9000, 8, 8, 1, 1, false, 4};
  WinogradLayout layout;
  layout.share = 9000;
  layout.u_step = 81'000'016;
  EXPECT_NE(print_filters(conv, layout, "0").find("i * 6 * (m_i64)81000016"), std::string::npos);
}

// A share of filters is a whole number of vectors: of 48 there is one, for one core.
TEST(DeviceWinograd, LeavesNoCoresIdle) {
  EXPECT_EQ(winograd_tile({8, 256, 7, 7, 48, 7, 7, 1, 1}, Items::kLong), 0);
  EXPECT_EQ(winograd_tile({8, 256, 7, 7, 256, 7, 7, 1, 1}, Items::kLong), 4);
}

constexpr const char* kGraph =
    R"(graph g<f32, i64>(%x: f32[8, 64, 20, 20], %w: f32[64, 64, 3, 3]) {{
  %0 = conv2d(%x, %w, stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1) : f32[8, 64, 20, 20]
  %1 = relu(%0) : f32[8, 64, 20, 20]
  return y=%1
}})";

plan::Plan planned(bool is_cpu, int threads) {
  const select::KernelTable table(opencl::kernel_families(is_cpu), &cpu::kernel_table());
  const Backend backend("opencl", table, threads, kLeastParameterBytes);
  const ir::Graph graph = std::move(ir::parse(fmt::format(kGraph))).or_throw();
  return plan::make_plan(std::move(select::select_steps(graph, backend)).or_throw()).or_throw();
}

class Phases : public ::testing::TestWithParam<bool> {
 protected:
  Phases() { force_winograd_tile(4); }
  ~Phases() override { force_winograd_tile({}); }
};

// Kernels are given what the plan says that a run allocates.
TEST_P(Phases, AreCountedInTheMemoryOfThePlan) {
  int64_t most = 0;
  for (const int threads : {1, 2, 5}) {
    const plan::Plan plan = planned(GetParam(), threads);
    ASSERT_EQ(plan.steps.size(), 1U);
    EXPECT_EQ(plan.steps[0].step.label.rfind("opencl.conv2d.winograd+", 0), 0U)
        << plan.steps[0].step.label;
    PrintOptions options = test::FakeDriver().print_options();
    options.is_cpu = GetParam();
    options.units = threads;
    const auto source = std::move(print_plan(plan, options)).or_throw();
    const StepCode& step = source.code->steps.at(0);
    EXPECT_EQ(step.before.size(), GetParam() ? 1U : 3U);
    const plan::MemoryUse use = plan::memory_use(plan);
    constexpr int64_t kFilters = 36 * 64 * 64 * 4;
    EXPECT_GE(use.arena, kFilters);
    EXPECT_EQ(use.scratch, 0);
    EXPECT_LE(source.code->bytes, use.arena + 128);
    // Each thread has items with memory of their own, where items are long.
    EXPECT_EQ(use.arena > most, GetParam() || most == 0) << threads;
    most = use.arena;
  }
}

INSTANTIATE_TEST_SUITE_P(DeviceWinograd, Phases, ::testing::Bool(), [](const auto& one) {
  return one.param ? "OfLongItems" : "OfShortItems";
});

}  // namespace
}  // namespace mithril::device

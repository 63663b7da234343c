// Covers: select/lower.cc select/lower_kernels.cc select/copies.cc
// Covers: select/regions.cc select/report.cc
// Selection for a backend that is none: what it asks, and what becomes of a graph.
#include "select/select.h"

#include <gtest/gtest.h>

#include "passes/text_pass.h"
#include "plan/plan.h"

namespace mithril::select {
namespace {

core::Result<plan::Step> make_product(const KernelRequest& request) {
  plan::Step step;
  step.units = request.outputs[0].shape[0];
  return step;
}

const KernelDef kProducts[] = {
    {"matmul", "product", OrderClass::kCanonical, true, nullptr, make_product}};
constexpr KernelFamily kProductFamilies[] = {[] { return std::span<const KernelDef>(kProducts); }};
constexpr KernelTable kProductTable{kProductFamilies};

class FakeLoop final : public LoopKernel {
 public:
  bool can_alias(uint32_t, uint32_t) const override { return true; }
  plan::Step bind(const LoopDomain& domain, std::string& note) const override {
    note = "fake";
    plan::Step step;
    for (const int64_t size : domain.kept) step.params.push_back(size);
    return step;
  }
};

class FakeBackend final : public Backend {
 public:
  std::string_view name() const override { return "fake"; }
  const KernelTable& kernels() const override { return kProductTable; }
  core::Result<std::unique_ptr<const LoopKernel>> loop(const tile::Program&) const override {
    return std::unique_ptr<const LoopKernel>(new FakeLoop());
  }
};

std::vector<std::string> labels(const plan::Steps& steps) {
  std::vector<std::string> out;
  for (const plan::Step& step : steps.steps) out.push_back(step.label);
  return out;
}

TEST(Select, MakesLoopsKernelsAndCopiesOfTheBackend) {
  const ir::Graph graph = passes::parsed(R"(graph m<f32, i64>(%x: f32[2, 3]) {
  %0 = transpose(%x, axes=(1, 0)) : f32[3, 2]
  %1 = matmul(%0, %x) : f32[3, 3]
  %2 = exp(%1) : f32[3, 3]
  return y=%2
}
)");
  std::vector<SelectionReport> report;
  SelectOptions options;
  options.report = &report;
  const plan::Steps steps = std::move(select_steps(graph, FakeBackend(), options)).or_throw();
  EXPECT_EQ(labels(steps), (std::vector<std::string>{"copy", "product", "exp"}));
  EXPECT_EQ(steps.steps[1].units, 3);
  EXPECT_EQ(steps.steps[2].params, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(steps.steps[2].inplace.size(), 1u);
  EXPECT_EQ(report.back().notes.back(), "fake");
}

TEST(Select, NamesTheBackendThatHasNoKernel) {
  const ir::Graph graph = passes::parsed(R"(graph m<f32, i64>(%x: f32[4, 3], %i: i64[2]) {
  %0 = gather(%x, %i) : f32[2, 3]
  return y=%0
}
)");
  const auto made = select_steps(graph, FakeBackend());
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "the fake backend has no kernel for gather(f32[4, 3], i64[2])");
  EXPECT_EQ(supports(kProductTable, graph, graph.nodes[0]), ir::Support::kNone);
}

// An empty one too, as NumPy has it: sizes are multiplied before anybody asks for elements.
TEST(Select, RefusesWhatNoAddressReaches) {
  for (const char* shape : {"4294967302, 4294967302", "0, 4294967302, 4294967302"}) {
    const ir::Graph graph = passes::parsed(fmt::format(R"(graph m<f32, i64>(%x: f32[1]) {{
  %0 = broadcast_to(%x, shape=({0})) : f32[{0}]
  %1 = exp(%0) : f32[{0}]
  return y=%1
}}
)",
                                                       shape));
    const auto made = select_steps(graph, FakeBackend());
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, core::ErrorKind::kMemory);
    EXPECT_EQ(made.error().message,
              fmt::format("a value of type f32[{}] does not fit an address space", shape));
  }
}

}  // namespace
}  // namespace mithril::select

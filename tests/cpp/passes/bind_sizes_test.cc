#include "passes/bind_sizes.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

constexpr const char* kGraph = R"(graph m<f32, i64>(%x: f32[2*N, 3], %y: f32[N]) {
  %0 = reshape(%x, shape=('6*N',)) : f32[6*N]
  return z=%0
}
)";

core::Result<ir::Graph> bound(const std::vector<std::vector<int64_t>>& sizes) {
  const ir::Graph graph = parsed(kGraph);
  auto symbols = solve_symbols(graph, sizes);
  if (!symbols.ok()) return std::move(symbols).status();
  return bind_sizes(graph, *symbols);
}

TEST(BindSizes, PutsNumbersIntoTypesAndAttributes) {
  const ir::Graph graph = std::move(bound({{8, 3}, {4}})).or_throw();
  EXPECT_EQ(ir::print(graph), R"(graph m<f32, i64>(%x: f32[8, 3], %y: f32[4]) {
  %0 = reshape(%x, shape=(24,)) : f32[24]
  return z=%0
}
)");
}

TEST(BindSizes, NamesTheInputThatDoesNotFit) {
  const auto odd = bound({{7, 3}, {4}});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().message, "'x' must have shape [2*N, 3], got [7, 3]");
  const auto clash = bound({{8, 3}, {5}});
  ASSERT_FALSE(clash.ok());
  EXPECT_EQ(clash.error().message, "'y' must have shape [N], got [5]");
  EXPECT_FALSE(bound({{8, 3, 1}, {4}}).ok());
}

}  // namespace
}  // namespace mithril::passes

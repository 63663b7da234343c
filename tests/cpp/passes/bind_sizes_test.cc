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

TEST(BindSizes, ChecksSizesOfSeveralSymbols) {
  const ir::Graph graph = parsed(R"(graph m<f32, i64>(%x: f32[a], %y: f32[b], %z: f32[a + b]) {
  return z=%z
}
)");
  EXPECT_TRUE(solve_symbols(graph, std::vector<std::vector<int64_t>>{{2}, {3}, {5}}).ok());
  const auto clash = solve_symbols(graph, std::vector<std::vector<int64_t>>{{2}, {3}, {6}});
  ASSERT_FALSE(clash.ok());
  EXPECT_EQ(clash.error().message, "'z' must have shape [a+b], got [6]");
}

constexpr const char* kMask = R"(graph m<f32, i64>(%x: f32[N, 3], %m: bool[N, 3]) {
  %0 = index(%x, %m) : f32[k]
  %1 = relu(%0) : f32[k]
  return z=%1
}
)";

TEST(BindSizes, NamesTheOpWhoseSizeDependsOnData) {
  const ir::Graph graph = parsed(kMask);
  const int64_t sizes[] = {2, -1};
  const auto result = bind_sizes(graph, sizes);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, core::Code::kUnsupported);
  EXPECT_EQ(result.error().message,
            "index: the size of its result depends on the data, and this backend needs every size "
            "before it runs");
  EXPECT_TRUE(check_sizes(graph, sizes).ok());
}

constexpr const char* kDivides = R"(graph m<f32, i64>(%x: f32[N]) {
  %0 = reshape(%x, shape=(5, -1)) : f32[5, floor(N/5)]
  return z=%0
}
)";

TEST(BindSizes, RefusesSizesThatANodeDoesNotTake) {
  const ir::Graph graph = parsed(kDivides);
  const int64_t fits[] = {10}, not_divisible[] = {9};
  EXPECT_TRUE(bind_sizes(graph, fits).ok());
  EXPECT_TRUE(check_sizes(graph, fits).ok());
  for (const core::Status& status :
       {bind_sizes(graph, not_divisible).status(), check_sizes(graph, not_divisible)}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message,
              "reshape: number of elements must not change, got input: [9] and shape: (5, -1)");
  }
  const int64_t open[] = {-1};
  EXPECT_FALSE(bind_sizes(graph, open).ok());
  EXPECT_TRUE(check_sizes(graph, open).ok());
}

TEST(BindSizes, RefusesValuesWithoutAnAddress) {
  const ir::Graph graph = parsed(R"(graph m<f32, i64>(%x: f32[N]) {
  %0 = expand_dims(%x, axis=(1,)) : f32[N, 1]
  %1 = add(%0, %x) : f32[N, N]
  %2 = sum(%1) : f32[]
  return y=%2
}
)");
  for (const auto& [size, fits] :
       {std::pair{int64_t{1} << 29, true}, {int64_t{1} << 30, false}, {int64_t{1} << 40, false}}) {
    const int64_t sizes[] = {size};
    const core::Status status = check_sizes(graph, sizes);
    EXPECT_EQ(status.ok(), fits) << size;
    if (!fits) {
      EXPECT_EQ(status.error().code, core::Code::kOutOfMemory);
    }
  }
}

}  // namespace
}  // namespace mithril::passes

#include "passes/rematerialize.h"

#include <fmt/format.h>

#include "passes/liveness.h"
#include "passes/merge_common.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

Recomputed recomputed(std::string_view text, const RematerializeOptions& options) {
  return std::move(rematerialize(parsed(text), liveness, options)).or_throw();
}

TextPass within(int64_t limit) {
  return [=](const ir::Graph& graph) -> core::Result<ir::Graph> {
    MITHRIL_ASSIGN(Recomputed made, rematerialize(graph, liveness, {limit, false}));
    return std::move(made.graph);
  };
}

// All of %0 to %3 are there while %3 is made; with the output that is 2000 bytes.
constexpr std::string_view kIdle = R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = exp(%x) : f32[100]
  %1 = sin(%0) : f32[100]
  %2 = cos(%1) : f32[100]
  %3 = add(%2, %1) : f32[100]
  %4 = multiply(%3, %0) : f32[100]
  return y=%4
}
)";

constexpr std::string_view kAgain = R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = exp(%x) : f32[100]
  %1 = sin(%0) : f32[100]
  %2 = cos(%1) : f32[100]
  %3 = add(%2, %1) : f32[100]
  %4 = after(%x, %3) : f32[100]
  %5 = exp(%4) : f32[100]
  %6 = multiply(%3, %5) : f32[100]
  return y=%6
}
)";

TEST(Rematerialize, CopiesWhatLiesIdleAtThePeak) { expect_pass(kIdle, kAgain, within(1600)); }

TEST(Rematerialize, SaysWhatItDid) {
  const Recomputed made = recomputed(kIdle, {1600, false});
  EXPECT_EQ(made.nodes, 1);
  EXPECT_EQ(made.flops, 100);
  EXPECT_EQ(made.before, 2000);
  EXPECT_EQ(made.after, 1600);
}

TEST(Rematerialize, LeavesWhatFitsAsItIs) { expect_unchanged(kIdle, within(2000)); }

TEST(Rematerialize, KeepsTheBestWhereNothingFits) { expect_pass(kIdle, kAgain, within(1)); }

TEST(Rematerialize, CopiesAreNotMerged) { expect_unchanged(kAgain, merge_common); }

// The product is most of the FLOPs: only a limit is worth it.
TEST(Rematerialize, ShrinksWithinAThirdOfTheFlops) {
  constexpr std::string_view kText = R"(graph m<f32, i64>(%x: f32[10, 10]) {
  %0 = matmul(%x, %x) : f32[10, 10]
  %1 = sin(%x) : f32[10, 10]
  %2 = cos(%1) : f32[10, 10]
  %3 = add(%2, %1) : f32[10, 10]
  %4 = multiply(%3, %0) : f32[10, 10]
  return y=%4
}
)";
  EXPECT_EQ(recomputed(kText, {std::nullopt, true}).nodes, 0);
  EXPECT_EQ(recomputed(kText, {1600, false}).flops, 2000);
  const Recomputed made = recomputed(kIdle, {std::nullopt, true});
  EXPECT_EQ(ir::print(made.graph), kAgain);
  EXPECT_EQ(recomputed(kIdle, {std::nullopt, false}).nodes, 0);
}

// An exponential beside products, idle while two of their results are there, too.
TEST(Rematerialize, SparesMuchMemoryForNextToNothing) {
  const auto nodes = [](std::string_view size, std::string_view op) {
    std::string text = R"(graph m<f32, i64>(%x: f32[N, N]) {
  %0 = exp(%x) : f32[N, N]
  %1 = OP(%0, %x) : f32[N, N]
  %2 = OP(%1, %x) : f32[N, N]
  %3 = OP(%2, %x) : f32[N, N]
  %4 = multiply(%3, %0) : f32[N, N]
  return y=%4
}
)";
    for (size_t at; (at = text.find("OP")) != std::string::npos;) text.replace(at, 2, op);
    for (size_t at; (at = text.find('N')) != std::string::npos;) text.replace(at, 1, size);
    RematerializeOptions options;
    options.unasked = true;
    return recomputed(text, options).nodes;
  };
  EXPECT_EQ(nodes("2500", "matmul"), 1);
  EXPECT_EQ(nodes("500", "matmul"), 0);  // little memory
  EXPECT_EQ(nodes("2500", "add"), 0);    // a fifth of the FLOPs
}

TEST(Rematerialize, CopiesAllThatAChainNeeds) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = exp(%x) : f32[100]
  %1 = sin(%0) : f32[100]
  %2 = cos(%1) : f32[100]
  %3 = log(%2) : f32[100]
  %4 = add(%3, %2) : f32[100]
  %5 = multiply(%4, %1) : f32[100]
  return y=%5
}
)",
              R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = exp(%x) : f32[100]
  %1 = sin(%0) : f32[100]
  %2 = cos(%1) : f32[100]
  %3 = log(%2) : f32[100]
  %4 = add(%3, %2) : f32[100]
  %5 = after(%x, %4) : f32[100]
  %6 = exp(%5) : f32[100]
  %7 = sin(%6) : f32[100]
  %8 = multiply(%4, %7) : f32[100]
  return y=%8
}
)",
              within(1600));
}

TEST(Rematerialize, KeepsWhatIsSmallInsteadOfItsChain) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = sum(%x, axis=0, keepdim=true) : f32[1]
  %1 = exp(%0) : f32[1]
  %2 = add(%x, %1) : f32[100]
  %3 = cos(%2) : f32[100]
  %4 = log(%3) : f32[100]
  %5 = add(%4, %3) : f32[100]
  %6 = multiply(%5, %2) : f32[100]
  return y=%6
}
)",
              R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = sum(%x, axis=0, keepdim=true) : f32[1]
  %1 = exp(%0) : f32[1]
  %2 = add(%x, %1) : f32[100]
  %3 = cos(%2) : f32[100]
  %4 = log(%3) : f32[100]
  %5 = add(%4, %3) : f32[100]
  %6 = after(%x, %5) : f32[100]
  %7 = add(%6, %1) : f32[100]
  %8 = multiply(%5, %7) : f32[100]
  return y=%8
}
)",
              within(1700));
}

TEST(Rematerialize, LaterReadersShareACopyAndViewsFollowIt) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[4, 25]) {
  %0 = exp(%x) : f32[4, 25]
  %1 = transpose(%0, axes=(1, 0)) : f32[25, 4]
  %2 = sin(%0) : f32[4, 25]
  %3 = cos(%2) : f32[4, 25]
  %4 = add(%3, %2) : f32[4, 25]
  %5 = multiply(%4, %0) : f32[4, 25]
  %6 = matmul(%5, %1) : f32[4, 4]
  return y=%6
}
)",
              R"(graph m<f32, i64>(%x: f32[4, 25]) {
  %0 = exp(%x) : f32[4, 25]
  %1 = sin(%0) : f32[4, 25]
  %2 = cos(%1) : f32[4, 25]
  %3 = add(%2, %1) : f32[4, 25]
  %4 = after(%x, %3) : f32[4, 25]
  %5 = exp(%4) : f32[4, 25]
  %6 = multiply(%3, %5) : f32[4, 25]
  %7 = after(%5, %6) : f32[4, 25]
  %8 = transpose(%7, axes=(1, 0)) : f32[25, 4]
  %9 = matmul(%6, %8) : f32[4, 4]
  return y=%9
}
)",
              within(1300));
}

// Of two values that free as much: the second one needs no product.
TEST(Rematerialize, TakesTheMostBytesForAFlop) {
  const Recomputed made = recomputed(R"(graph m<f32, i64>(%x: f32[10, 10]) {
  %0 = matmul(%x, %x) : f32[10, 10]
  %1 = exp(%0) : f32[10, 10]
  %2 = tanh(%x) : f32[10, 10]
  %3 = sin(%x) : f32[10, 10]
  %4 = cos(%3) : f32[10, 10]
  %5 = add(%4, %3) : f32[10, 10]
  %6 = multiply(%5, %2) : f32[10, 10]
  %7 = multiply(%6, %1) : f32[10, 10]
  return y=%7
}
)",
                                     {2000, false});
  EXPECT_EQ(made.after, 2000);
  EXPECT_EQ(made.flops, 100);
}

// Both sums are as high: one of them alone is no gain.
TEST(Rematerialize, LeavesWhatGetsNoLower) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[100], %z: f32[2, 100]) {
  %0 = exp(%x) : f32[100]
  %1 = sin(%0) : f32[100]
  %2 = cos(%1) : f32[100]
  %3 = add(%2, %1) : f32[100]
  %4 = multiply(%3, %0) : f32[100]
  %5 = add(%z, %4) : f32[2, 100]
  %6 = exp(%5) : f32[2, 100]
  %7 = sum(%6, axis=0) : f32[100]
  return y=%7
}
)",
                   within(1));
}

TEST(Rematerialize, LeavesLoopsOutputsAndWhatIsReadAtThePeak) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[100]) {
  %0 = exp(%x) : f32[100]
  %1 = sin(%0) : f32[100]
  %2 = add(%1, %0) : f32[100]
  return a=%0, y=%2
}
)",
                   within(1));
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[3, 100], %h: f32[100]) {
  %0, %1 = scan(%h, %x, carries=1, xs=1, length=3) : f32[100], f32[3, 100] {
    graph body<f32, i64>(%c0: f32[100], %x0: f32[100]) {
      %0 = add(%c0, %x0) : f32[100]
      return c0=%0, y0=%0
    }
  }
  %2 = sin(%1) : f32[3, 100]
  %3 = cos(%2) : f32[3, 100]
  %4 = add(%3, %2) : f32[3, 100]
  %5 = multiply(%4, %1) : f32[3, 100]
  return y=%5
}
)",
                   within(1));
}

TEST(Rematerialize, WantsSizes) {
  const ir::Graph graph = parsed(R"(graph m<f32, i64>(%x: f32[n]) {
  %0 = exp(%x) : f32[n]
  return y=%0
}
)");
  const core::Status status = rematerialize(graph, liveness, {std::nullopt, true}).status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "gradient_checkpointing: the sizes of f32[n] are not known when its program is made");
}

}  // namespace
}  // namespace mithril::passes

#include "passes/watch_values.h"

#include <gmock/gmock.h>

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

constexpr std::string_view kLog = R"(graph f<f32, i64>(%x: f32[b], %n: i64[b]) {
  %0 = log(%x) : f32[b]
  %1 = cast(%n, dtype=f32) : f32[b]
  %2 = add(%0, %1) : f32[b]
  return y=%2
}
)";

Watched watched(std::string_view text, bool infinities = false) {
  const std::vector<std::string> forward{"y"};
  return std::move(watch_values(parsed(text), forward, infinities)).or_throw();
}

TEST(WatchValues, CountsEachFloatBehindTheNodeThatMakesIt) {
  const Watched out = watched(R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = log(%x) : f32[b]
  return y=%0
}
)");
  EXPECT_EQ(ir::print(out.graph), R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = isnan(%x) : bool[b]
  %1 = cast(%0, dtype=i64) : i64[b]
  %2 = sum(%1) : i64[]
  %3 = reshape(%2, shape=(1,)) : i64[1]
  %4 = log(%x) : f32[b]
  %5 = isnan(%4) : bool[b]
  %6 = cast(%5, dtype=i64) : i64[b]
  %7 = sum(%6) : i64[]
  %8 = reshape(%7, shape=(1,)) : i64[1]
  %9 = concat(_, %3, %8) : i64[2]
  return y=%4, $watch=%9
}
)");
  EXPECT_TRUE(ir::verify(out.graph).ok());
}

TEST(WatchValues, SaysWhatEachValueIsMadeOf) {
  const Watched out = watched(kLog);
  ASSERT_EQ(out.watches.size(), 4u);  // x, log, cast, add; not the integers
  EXPECT_EQ(out.watches[0].source, Watch::Source::kInput);
  EXPECT_EQ(out.watches[0].name, "x");
  EXPECT_EQ(out.watches[1].name, "log");
  EXPECT_THAT(out.watches[1].reads, testing::ElementsAre(0));
  EXPECT_THAT(out.watches[2].reads, testing::IsEmpty());
  EXPECT_THAT(out.watches[3].reads, testing::ElementsAre(1, 2));
  EXPECT_THAT(out.ends, testing::ElementsAre(3));
}

TEST(WatchValues, TellsGradientsFromTheForwardPart) {
  const Watched out = watched(R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = exp(%x) : f32[b]
  %1 = negate(%0) : f32[b]
  return y=%0, grad.x=%1
}
)");
  EXPECT_EQ(out.watches[1].source, Watch::Source::kForward);
  EXPECT_EQ(out.watches[2].source, Watch::Source::kGradient);
}

TEST(WatchValues, FindsInfinitiesByTheirDifference) {
  const Watched out = watched(kLog, true);
  EXPECT_THAT(ir::print(out.graph), testing::HasSubstr("subtract(%x, %x)"));
}

TEST(WatchValues, TakesGraphsWithoutFloats) {
  const Watched out = watched(R"(graph f<f32, i64>(%n: i64[b]) {
  %0 = add(%n, %n) : i64[b]
  return y=%0
}
)");
  EXPECT_TRUE(out.watches.empty());
  EXPECT_EQ(out.graph.outputs.back().name, kWatchOutput);
}

}  // namespace
}  // namespace mithril::passes

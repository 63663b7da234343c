#include "ir/region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril::ir {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kCond = R"(graph m<f32, i64>(%x: f32[b], %p: bool[]) {
  %0 = cond(%x, %p) : f32[b] {
    graph taken<f32, i64>(%k0: f32[b]) {
      %0 = exp(%k0) : f32[b]
      return y0=%0
    }
  } {
    graph other<f32, i64>(%k0: f32[b]) {
      return y0=%k0
    }
  }  # model.cond
  return y=%0
}
)";

constexpr std::string_view kWhile = R"(graph m<f32, i64>(%x: f32[], %limit: f32[]) {
  %0 = while_loop(%x, %limit, carries=1) : f32[] {
    graph condition<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = less(%c0, %k0) : bool[]
      return go=%0
    }
  } {
    graph step<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = exp(%c0) : f32[]
      return c0=%0
    }
  }
  return y=%0
}
)";

std::string refusal(std::string_view text, const std::string& what, const std::string& with) {
  std::string changed(text);
  changed.replace(changed.find(what), what.size(), with);
  const auto graph = parse(changed);
  return graph.ok() ? "" : graph.error().message;
}

TEST(Region, TextReadsBack) {
  for (const std::string_view text : {kCond, kWhile}) {
    const Graph graph = std::move(parse(text)).or_throw();
    EXPECT_EQ(print(graph), text);
    EXPECT_TRUE(verify(graph).ok());
  }
}

TEST(Region, PartsFollowFromCounts) {
  const Graph cond = std::move(parse(kCond)).or_throw();
  EXPECT_TRUE(is_cond(cond.nodes[0]));
  EXPECT_EQ(region_parts(cond.nodes[0]).constants, 1U);
  EXPECT_EQ(region_parts(cond.nodes[0]).ys, 1U);
  EXPECT_TRUE(gives_results(cond.nodes[0], 0));
  const Graph loop = std::move(parse(kWhile)).or_throw();
  EXPECT_TRUE(is_while(loop.nodes[0]));
  EXPECT_EQ(region_parts(loop.nodes[0]).carries, 1U);
  EXPECT_EQ(region_parts(loop.nodes[0]).constants, 1U);
  EXPECT_FALSE(gives_results(loop.nodes[0], 0));
  EXPECT_TRUE(gives_results(loop.nodes[0], 1));
}

TEST(Region, RefusesWhatDoesNotFit) {
  EXPECT_THAT(refusal(kCond, "%p: bool[]", "%p: f32[]"), HasSubstr("predicate must be bool[]"));
  EXPECT_THAT(refusal(kCond, "%p: bool[]", "%p: bool[2]"), HasSubstr("predicate must be bool[]"));
  EXPECT_THAT(refusal(kCond, "cond(%x, %p)", "cond(%p)"), HasSubstr("0 operands for a body of 1"));
  EXPECT_THAT(refusal(kCond, "cond(%x, %p)", "cond()"), HasSubstr("more carries and xs"));
  EXPECT_THAT(refusal(kCond, "cond(%x, %p)", "cond(_, %p)"), HasSubstr("operand is absent"));
  EXPECT_THAT(refusal(kCond, "return y0=%k0", "return y0=%k0, y1=%k0"),
              HasSubstr("1 results of a body of 2 outputs"));
  EXPECT_THAT(refusal(kWhile, "carries=1", "carries=0"), HasSubstr("1 results of 0 carries"));
  EXPECT_THAT(refusal(kWhile, "return go=%0", "return go=%c0"),
              HasSubstr("condition must be bool[]"));
  EXPECT_THAT(refusal(kWhile, "return c0=%0", "return c0=%0, y0=%0"),
              HasSubstr("1 results of a body of 2 outputs"));
}

}  // namespace
}  // namespace mithril::ir

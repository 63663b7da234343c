#include "ir/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril::ir {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kSum = R"(graph m<f32, i64>(%h: f32[b], %x: f32[T, b], %w: f32[b]) {
  %0, %1 = scan(%h, %x, %w, carries=1, xs=1, length='T') : f32[b], f32[T, b] {
    graph step<f32, i64>(%c0: f32[b], %x0: f32[b], %k0: f32[b]) {
      %0 = multiply(%x0, %k0) : f32[b]
      %1 = add(%c0, %0) : f32[b]
      return c0=%1, y0=%0
    }
  }  # model.loop
  return last=%0, products=%1
}
)";

std::string replaced(std::string_view text, const std::string& what, const std::string& with) {
  std::string out(text);
  out.replace(out.find(what), what.size(), with);
  return out;
}

std::string refusal(const std::string& text) {
  const auto graph = parse(text);
  return graph.ok() ? "" : graph.error().message;
}

TEST(Scan, TextReadsBack) {
  const Graph graph = std::move(parse(kSum)).or_throw();
  EXPECT_EQ(print(graph), kSum);
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Scan, PartsFollowFromCounts) {
  const Graph graph = std::move(parse(kSum)).or_throw();
  const ScanParts parts = scan_parts(graph.nodes[0]);
  EXPECT_EQ(parts.carries, 1U);
  EXPECT_EQ(parts.xs, 1U);
  EXPECT_EQ(parts.constants, 1U);
  EXPECT_EQ(parts.ys, 1U);
  EXPECT_FALSE(parts.reverse);
  EXPECT_EQ(graph.dims.print(length_of(parts)), "T");
}

TEST(Scan, LoopsInLoopsReadBack) {
  constexpr std::string_view kNested = R"(graph m<f32, i64>(%h: f32[]) {
  %0 = scan(%h, carries=1, length=2) : f32[] {
    graph step<f32, i64>(%c0: f32[]) {
      %0 = scan(%c0, carries=1, reverse=true, length=3) : f32[] {
        graph step<f32, i64>(%c0: f32[]) {
          %0 = exp(%c0) : f32[]
          return c0=%0
        }
      }
      return c0=%0
    }
  }
  return last=%0
}
)";
  const Graph graph = std::move(parse(kNested)).or_throw();
  EXPECT_EQ(print(graph), kNested);
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Scan, RefusesBodiesThatDoNotFit) {
  EXPECT_THAT(refusal(replaced(kSum, "xs=1", "xs=3")),
              HasSubstr("more carries and xs than operands"));
  EXPECT_THAT(refusal(replaced(kSum, "xs=1", "xs=2")), HasSubstr("operand 2 is"));
  EXPECT_THAT(refusal(replaced(kSum, ", y0=%0", "")),
              HasSubstr("2 results of a body of 1 outputs"));
  EXPECT_THAT(refusal(replaced(kSum, "length='T'", "length=-1")),
              HasSubstr("length must be a size"));
  EXPECT_THAT(refusal(replaced(kSum, "f32[T, b] {", "f32[T] {")), HasSubstr("result 1 is"));
}

TEST(Scan, RefusesNestsThatAreTooDeep) {
  std::string text = "graph m(%h: float[]) {\n";
  for (int i = 0; i < 40; ++i) {
    text += "%0 = scan(%h, carries=1, length=1) : float[] {\ngraph m(%h: float[]) {\n";
  }
  EXPECT_THAT(refusal(text), HasSubstr("nested too deeply"));
}

TEST(Scan, VerifyLooksInside) {
  Graph graph = std::move(parse(kSum)).or_throw();
  Graph body = *graph.nodes[0].regions[0];
  std::swap(body.nodes[0], body.nodes[1]);
  graph.nodes[0].regions[0] = std::make_shared<const Graph>(std::move(body));
  EXPECT_FALSE(verify(graph).ok());
}

}  // namespace
}  // namespace mithril::ir

#include "passes/regions.h"

#include "passes/canonicalize.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

constexpr std::string_view kNested = R"(graph m<f32, i64>(%h: f32[]) {
  %0 = scan(%h, carries=1, length=2) : f32[] {
    graph step<f32, i64>(%c0: f32[]) {
      %0 = scan(%c0, carries=1, length=3) : f32[] {
        graph step<f32, i64>(%c0: f32[]) {
          %0 = negate(%c0) : f32[]
          %1 = negate(%0) : f32[]
          return c0=%1
        }
      }
      return c0=%0
    }
  }
  return last=%0
}
)";

TEST(Regions, PassesReachInnerLoops) {
  int calls = 0;
  const GraphPass count = [&](const ir::Graph& graph) -> core::Result<ir::Graph> {
    ++calls;
    return graph;
  };
  expect_pass(kNested, kNested, everywhere(count));
  EXPECT_EQ(calls, 3);
}

TEST(Regions, FailuresComeOut) {
  const GraphPass fail = [](const ir::Graph& graph) -> core::Result<ir::Graph> {
    if (!graph.nodes.empty() && graph.nodes[0].regions.empty()) {
      return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "inside");
    }
    return graph;
  };
  EXPECT_EQ(everywhere(fail)(parsed(kNested)).error().message, "inside");
}

TEST(Regions, AnywhereLooksInside) {
  const auto has_two = [](const ir::Graph& graph) { return graph.nodes.size() == 2; };
  EXPECT_TRUE(anywhere(parsed(kNested), has_two));
  const auto has_three = [](const ir::Graph& graph) { return graph.nodes.size() == 3; };
  EXPECT_FALSE(anywhere(parsed(kNested), has_three));
}

}  // namespace
}  // namespace mithril::passes

#include "passes/mentions.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

std::string names(const ir::Graph& graph, const Mentions& mentions) {
  std::string out;
  for (const infer::Dim symbol : mentions.symbols()) out += graph.dims.name_of(symbol) + " ";
  return out;
}

TEST(Mentions, AreInTypesAttributesAndSlices) {
  const ir::Graph graph = parsed(R"(graph m<f32, i64>(%x: f32[N, 3], %y: f32[M]) {
  %0 = reshape(%x, shape=('3*N',)) : f32[3*N]
  %1 = full(shape=('M+K', 2), value=1.0) : f32[M+K, 2]
  return a=%0, b=%1
}
)");
  Mentions mentions(graph);
  mentions.add(graph.nodes[0]);
  EXPECT_EQ(names(graph, mentions), "N ");
  mentions.add(graph.nodes[1]);
  EXPECT_EQ(mentions.symbols().size(), 3U);
  mentions.add(graph.inputs[1]);
  EXPECT_EQ(mentions.symbols().size(), 3U);
  EXPECT_TRUE(mentions.has(*graph.dims.find_symbol("K")));
}

}  // namespace
}  // namespace mithril::passes

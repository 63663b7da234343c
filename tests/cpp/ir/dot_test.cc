#include <algorithm>

#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril::ir {
namespace {

TEST(Dot, HasANodeForEachInputOpAndOutputAndAnEdgeForEachRead) {
  const Graph graph = std::move(parse(R"(graph m(%x: f32[b, 4]) {
  %0 = relu(%x) : f32[b, 4]
  %1 = add(%0, %0) : f32[b, 4]
  return y=%1
}
)"))
                          .or_throw();
  EXPECT_EQ(dot(graph), R"(digraph mithril {
  node [shape=box, fontname="sans-serif"];
  v0 [label="x\nf32[b, 4]", shape=ellipse];
  n0 [label="relu"];
  v0 -> n0 [label="f32[b, 4]"];
  n1 [label="add"];
  n0 -> n1 [label="f32[b, 4]"];
  n0 -> n1 [label="f32[b, 4]"];
  o0 [label="y", shape=ellipse];
  n1 -> o0 [label="f32[b, 4]"];
}
)");
}

TEST(Dot, NamesCannotLeaveTheirLabels) {
  Graph graph;
  const std::string hostile = "a\"];\n evil [label=\"\\";
  const ValueId x = graph.add_input(hostile, Type{}, Role::kData);
  graph.outputs.push_back({hostile, x});
  graph.locations.push_back({"f.py", 1, hostile});
  const std::string text = dot(graph);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
}

}  // namespace
}  // namespace mithril::ir

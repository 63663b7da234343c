// Graphs as text in, splits out.
#include "emit/python_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril::emit {
namespace {

using testing::ElementsAre;

// The rest of two lines "%k = index(%x, index=…" after "index=".
std::vector<Split> splits(std::string_view first, std::string_view second) {
  auto graph = ir::parse(fmt::format(R"(graph m<f32, i64>(%x: f32[6, 4]) {{
  %0 = index(%x, index={}
  %1 = index(%x, index={}
  return y=%0, z=%1
}})",
                                     first, second));
  EXPECT_TRUE(graph.ok()) << graph.error().text();
  return graph.ok() ? find_splits(*graph) : std::vector<Split>();
}

TEST(PythonSplit, FindsPiecesInTheOrderOfTheirPlaces) {
  const auto found = splits("(2:6:, ::)) : f32[4, 4]", "(0:2:, ::)) : f32[2, 4]");
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].axis, 0);
  EXPECT_THAT(found[0].nodes, ElementsAre(1, 0));
  EXPECT_THAT(found[0].sizes, ElementsAre(2, 4));
  EXPECT_EQ(found[0].first_node(), 0);
}

TEST(PythonSplit, LeavesOtherSlices) {
  const std::pair<const char*, const char*> others[] = {
      {"(0:3:, ::)) : f32[3, 4]", "(3:5:, ::)) : f32[2, 4]"},           // not to the end
      {"(1:3:, ::)) : f32[2, 4]", "(3:6:, ::)) : f32[3, 4]"},           // nor from 0
      {"(0:3:, ::)) : f32[3, 4]", "(4:6:, ::)) : f32[2, 4]"},           // a gap
      {"(0:4:, ::)) : f32[4, 4]", "(3:6:, ::)) : f32[3, 4]"},           // a place in both
      {"(0:3:, ::)) : f32[3, 4]", "(::, 3:6:)) : f32[6, 1]"},           // two axes
      {"(0:3:, 0:2:)) : f32[3, 2]", "(3:6:, 0:2:)) : f32[3, 2]"},       // of both axes
      {"(0:3:2, ::)) : f32[2, 4]", "(3:6:2, ::)) : f32[2, 4]"},         // steps
      {"(-6:3:, ::)) : f32[3, 4]", "(3:6:, ::)) : f32[3, 4]"},          // from behind
      {"(0:6:, ::)) : f32[6, 4]", "0) : f32[4]"},                       // one piece
      {"(0:3:, ::)) : f32[3, 4]  # a", "(3:6:, ::)) : f32[3, 4]  # b"}  // two parts of a model
  };
  EXPECT_EQ(splits("(0:3:, ::)) : f32[3, 4]", "(3:6:, ::)) : f32[3, 4]").size(), 1);
  for (const auto& [first, second] : others) {
    EXPECT_TRUE(splits(first, second).empty()) << first << " " << second;
  }
}

}  // namespace
}  // namespace mithril::emit

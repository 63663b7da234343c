#include "select/selection_report.h"

#include "passes/text_pass.h"

namespace mithril::select {
namespace {

// "loop: note | note" of the last group.
std::vector<std::string> last_notes(std::string_view text, bool enabled = true) {
  const ir::Graph graph = passes::parsed(text);
  const Fusion fusion = fuse(graph, enabled);
  const std::vector<bool> steps(fusion.groups.size(), true);
  return report_of(graph, fusion, static_cast<int32_t>(fusion.groups.size()) - 1, steps).notes;
}

using Notes = std::vector<std::string>;

TEST(SelectionReport, HasTheNodesOfALoopAndItsDomain) {
  const ir::Graph graph = passes::parsed(R"(graph m<f32, i64>(%x: f32[2, 8]) {
  %0 = exp(%x) : f32[2, 8]
  %1 = sum(%0, axis=(1,)) : f32[2]
  return y=%1
}
)");
  const Fusion fusion = fuse(graph);
  const SelectionReport report = report_of(graph, fusion, 0, {true});
  ASSERT_EQ(report.members.size(), 2u);
  EXPECT_EQ(report.members[0].op, "exp");
  EXPECT_EQ(report.members[1].op, "sum");
  EXPECT_EQ(report.shape, (std::vector<int64_t>{2, 8}));
  EXPECT_TRUE(report.notes.empty());
}

TEST(SelectionReport, TellsOfKernelsThatNothingJoins) {
  const char* text = R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = exp(%x) : f32[4, 4]
  %1 = matmul(%0, %x) : f32[4, 4]
  %2 = tanh(%1) : f32[4, 4]
  return y=%2
}
)";
  EXPECT_EQ(last_notes(text),
            Notes{"tanh is not fused with matmul: that is no loop, and only loops are joined"});
  const ir::Graph graph = passes::parsed(text);
  EXPECT_EQ(report_of(graph, fuse(graph), 1, {true, true, true}).notes,
            Notes{"matmul is not fused: it is no pointwise op and no reduction"});
  EXPECT_TRUE(report_of(graph, fuse(graph), 2, {true, false, true}).notes.empty());
  EXPECT_EQ(last_notes(text, false),
            Notes{"tanh is not fused with matmul: fusion is switched off"});
}

TEST(SelectionReport, TellsOfOtherShapesAxesAndRows) {
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[4], %y: f32[3, 4]) {
  %0 = exp(%x) : f32[4]
  %1 = add(%0, %y) : f32[3, 4]
  return a=%1
}
)"),
            Notes{"add is not fused with exp: its elements are not those of that loop"});
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[3, 4]) {
  %0 = exp(%x) : f32[3, 4]
  %1 = sum(%0, axis=(0,)) : f32[4]
  %2 = sum(%0, axis=(1,)) : f32[3]
  return a=%1, b=%2
}
)"),
            Notes{"sum is not fused with sum: it reduces other axes than that loop"});
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[1000000]) {
  %0 = sum(%x, keepdim=true) : f32[1]
  %1 = divide(%x, %0) : f32[1000000]
  return y=%1
}
)"),
            Notes{"divide is not fused with sum: rows are so long that a loop of its own, shared "
                  "by threads, reads them faster"});
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = sum(%x, axis=(1,)) : f32[4]
  %1 = subtract(%x, %0) : f32[4, 4]
  return y=%1
}
)"),
            Notes{"subtract is not fused with sum: it reads reduced values that have lost their "
                  "axes (keepdim)"});
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = sum(%x, axis=(1,)) : f32[4]
  %1 = sum(%0, axis=(0,)) : f32[]
  return y=%1
}
)"),
            Notes{"sum is not fused with sum: it reduces what that loop has reduced already"});
}

TEST(SelectionReport, TellsWhyAnEarlierLoopDoesNotMove) {
  EXPECT_EQ(
      last_notes(R"(graph m<f32, i64>(%x: f32[4], %y: f32[3]) {
  %0 = exp(%x) : f32[4]
  %1 = sum(%0, axis=(0,), keepdim=true) : f32[1]
  %2 = tanh(%y) : f32[3]
  %3 = add(%2, %1) : f32[3]
  return a=%3
}
)"),
      Notes{"add is not fused with sum: that loop reduces, and only pointwise loops move to a "
            "later one"});
}

TEST(SelectionReport, TellsOfPlacesAndOfRowsOfOneElement) {
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%key: i64[], %x: f32[4, 3]) {
  %0 = threefry_uniform(%key, %key, shape=(4, 3)) : f32[4, 3]
  %1 = sum(%x, axis=(0,), keepdim=true) : f32[1, 3]
  %2 = multiply(%1, %0) : f32[4, 3]
  return y=%2
}
)"),
            Notes{"multiply is not fused with threefry_uniform: places are counted in row-major "
                  "order, in which that loop does not run"});
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[4, 1], %y: f32[4, 1]) {
  %0 = exp(%x) : f32[4, 1]
  %1 = sum(%y, axis=(1,), keepdim=true) : f32[4, 1]
  %2 = multiply(%1, %0) : f32[4, 1]
  return y=%2
}
)"),
            Notes{"multiply is not fused with exp: it reduces rows of one element"});
}

TEST(SelectionReport, EachNeighbourHasItsOwnReason) {
  EXPECT_EQ(last_notes(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = sum(%x, axis=(1,)) : f32[4]
  %1 = sum(%x, axis=(0,)) : f32[4]
  %2 = subtract(%1, %0) : f32[4]
  return y=%2
}
)"),
            (Notes{"subtract is not fused with sum: its elements are not those of that loop",
                   "subtract is not fused with sum: that loop reduces, and only pointwise loops "
                   "move to a later one"}));
}

}  // namespace
}  // namespace mithril::select

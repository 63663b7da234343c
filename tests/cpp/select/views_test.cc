#include "select/views.h"

#include <numeric>

#include <gtest/gtest.h>

#include "passes/text_pass.h"

namespace mithril::select {
namespace {

using Ints = std::vector<int64_t>;

// Elements of a view of 0, 1, 2 … in row-major order; empty when the op needs a copy.
Ints elements(std::string_view text) {
  const ir::Graph graph = passes::parsed(text);
  View view{graph.inputs[0], 0,
            contiguous_strides(ir::static_dims(graph.type(graph.inputs[0]).shape))};
  for (const ir::Node& node : graph.nodes) {
    auto next = view_of(graph, node, view);
    if (!next) return {};
    view = *next;
  }
  const Ints shape = ir::static_dims(graph.type(graph.outputs[0].value).shape);
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
  Ints out;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = view.offset;
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0;) {
      at += rest % shape[axis] * view.strides[axis];
      rest /= shape[axis];
    }
    out.push_back(at);
  }
  return out;
}

TEST(Views, TransposeAndSwap) {
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[2, 3]) {
  %0 = transpose(%x) : f32[3, 2]
  return y=%0
})"),
            (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[2, 1, 3]) {
  %0 = swapaxes(%x, axis1=0, axis2=-1) : f32[3, 1, 2]
  return y=%0
})"),
            (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[2, 1, 3]) {
  %0 = transpose(%x, axes=(-1, -3, -2)) : f32[3, 2, 1]
  return y=%0
})"),
            (Ints{0, 3, 1, 4, 2, 5}));
}

TEST(Views, BroadcastRepeats) {
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[3, 1]) {
  %0 = broadcast_to(%x, shape=(2, 3, 2)) : f32[2, 3, 2]
  return y=%0
})"),
            (Ints{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
}

TEST(Views, IndexTakesWindows) {
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[4, 5]) {
  %0 = index(%x, index=(1:3, ::-2)) : f32[2, 3]
  return y=%0
})"),
            (Ints{9, 7, 5, 14, 12, 10}));
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[4, 5]) {
  %0 = index(%x, index=(-1, none, ..., 3)) : f32[1]
  return y=%0
})"),
            (Ints{18}));
}

TEST(Views, ReshapeOfRowMajorNeedsNoCopy) {
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[2, 3]) {
  %0 = reshape(%x, shape=(1, 3, 2, 1)) : f32[1, 3, 2, 1]
  return y=%0
})"),
            (Ints{0, 1, 2, 3, 4, 5}));
}

TEST(Views, ReshapeSplitsAndKeepsStrides) {
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[4, 3]) {
  %0 = transpose(%x) : f32[3, 4]
  %1 = reshape(%0, shape=(3, 2, 2)) : f32[3, 2, 2]
  return y=%1
})"),
            (Ints{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
}

TEST(Views, ReshapeOfATransposeNeedsACopy) {
  EXPECT_EQ(elements(R"(graph m<f32, i64>(%x: f32[4, 3]) {
  %0 = transpose(%x) : f32[3, 4]
  %1 = reshape(%0, shape=(12,)) : f32[12]
  return y=%1
})"),
            Ints{});
}

TEST(Views, KnowsWhatIsContiguous) {
  EXPECT_TRUE(is_contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(is_contiguous({2, 1, 3}, {3, 77, 1}));
  EXPECT_TRUE(is_contiguous({0, 3}, {7, 7}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(is_contiguous({2, 3}, {0, 1}));
}

}  // namespace
}  // namespace mithril::select

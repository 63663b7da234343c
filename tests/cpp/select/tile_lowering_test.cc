#include "select/tile_lowering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "passes/text_pass.h"

namespace mithril::select {
namespace {

// "(f32, f32 row) -> (f32) over [64 | 3136]": what the first loop reads and writes, kept and inner
// sizes of its domain.
std::string first_loop(std::string_view text) {
  const ir::Graph graph = passes::parsed(text);
  const Fusion fusion = fuse(graph);
  for (const Group& group : fusion.groups) {
    if (!group.is_loop) continue;
    const LoopProgram loop = lower_group(graph, fusion, group).or_throw();
    const std::string program = print(loop.program);
    const size_t begin = program.find('('), end = program.find(" {");
    return fmt::format("{} over [{} | {}]", program.substr(begin, end - begin),
                       fmt::join(loop.kept, ", "), fmt::join(loop.reduced, ", "));
  }
  return "no loop";
}

TEST(TileLowering, ReadsOneElementOnce) {
  EXPECT_EQ(first_loop(R"(graph m<f32, i64>(%x: f32[5, 4], %rate: f32[], %one: f32[1, 1]) {
  %0 = multiply(%x, %rate) : f32[5, 4]
  %1 = add(%0, %one) : f32[5, 4]
  return y=%1
}
)"),
            "(f32, f32 uniform, f32 uniform) -> (f32) over [5, 4 | ]");
  // Of a single point all are lanes.
  EXPECT_EQ(first_loop(R"(graph m<f32, i64>(%x: f32[], %rate: f32[]) {
  %0 = multiply(%x, %rate) : f32[]
  return y=%0
}
)"),
            "(f32, f32) -> (f32) over [ | ]");
}

// Numbers of channels beside images; the mask of rows is a lane then.
TEST(TileLowering, ReadsWhatARowSharesOnce) {
  constexpr const char* kText =
      R"(graph m<f32, i64>(%x: f32[2, 8, {0}, 10], %scale: f32[8, 1, 1], %mask: f32[{0}, 1]) {{
  %0 = multiply(%x, %scale) : f32[2, 8, {0}, 10]
  %1 = multiply(%0, %mask) : f32[2, 8, {0}, 10]
  return y=%1
}}
)";
  EXPECT_EQ(first_loop(fmt::format(kText, 9)), "(f32, f32 row, f32) -> (f32) over [2, 8 | 9, 10]");
  // Rows of 40 elements and fewer are not worth their beginning.
  EXPECT_EQ(first_loop(fmt::format(kText, 4)), "(f32, f32, f32) -> (f32) over [2, 8, 4, 10 | ]");
}

TEST(TileLowering, TakesTheShortestOfLongRows) {
  EXPECT_EQ(first_loop(R"(graph m<f32, i64>(%x: f32[4, 6, 50], %a: f32[4, 1, 1], %b: f32[6, 1]) {
  %0 = multiply(%x, %a) : f32[4, 6, 50]
  %1 = add(%0, %b) : f32[4, 6, 50]
  return y=%1
}
)"),
            "(f32, f32 row, f32 row) -> (f32) over [4, 6 | 50]");
}

// Their rows are what they reduce, wherever it lies.
TEST(TileLowering, LeavesReductionsTheirRows) {
  EXPECT_EQ(first_loop(R"(graph m<f32, i64>(%x: f32[3, 200], %a: f32[3, 1]) {
  %0 = multiply(%x, %a) : f32[3, 200]
  %1 = sum(%0, axis=(0,), keepdim=true) : f32[1, 200]
  return y=%1
}
)"),
            "(f32, f32) -> (f32 row) over [200 | 3]");
}

}  // namespace
}  // namespace mithril::select

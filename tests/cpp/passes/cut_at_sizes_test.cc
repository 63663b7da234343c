#include "passes/cut_at_sizes.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

std::string cut(const char* text) {
  const ir::Graph graph = parsed(text);
  std::string out;
  for (const Segment& segment : std::move(cut_at_sizes(graph)).or_throw()) {
    EXPECT_TRUE(ir::verify(segment.graph).ok());
    out += ir::print(segment.graph);
    for (const Segment::Source& source : segment.inputs) {
      out += fmt::format("({} {})", source.segment, source.index);
    }
    for (const int32_t count : segment.counts) out += fmt::format(" {}", count);
    out += "\n";
  }
  return out;
}

TEST(CutAtSizes, NothingIsCutWhereNoSizeFollowsFromData) {
  EXPECT_EQ(cut(R"(graph m<f32, i64>(%x: f32[N]) {
  %0 = exp(%x) : f32[N]
  return y=%0
}
)"),
            "");
}

TEST(CutAtSizes, ASegmentEndsWhereASizeMustBeKnown) {
  // The first segment has what the mask needs and no more; exp is in the second one, once.
  EXPECT_EQ(cut(R"(graph m<f32, i64>(%x: f32[N], %w: f32[N]) {
  %0 = exp(%w) : f32[N]
  %1 = isnan(%x) : bool[N]
  %2 = true_places(%1) : i64[k]
  %3 = gather(%0, %2) : f32[k]
  %4 = full(shape=('k',), value=1.0) : f32[k]
  %5 = add(%3, %4) : f32[k]
  return y=%5
}
)"),
            R"(graph m<f32, i64>(%x: f32[N]) {
  %0 = isnan(%x) : bool[N]
  %1, %2 = bounded_places(%0) : i64[N], i64[]
  return $0=%1, $1=%2
}
(-1 0) 1 -1
graph m<f32, i64>(%$4: i64[k], %w: f32[N]) {
  %0 = exp(%w) : f32[N]
  %1 = gather(%0, %$4) : f32[k]
  %2 = full(shape=('k',), value=1.0) : f32[k]
  %3 = add(%1, %2) : f32[k]
  return y=%3
}
(0 0)(-1 1) -1
)");
}

TEST(CutAtSizes, WhatSeveralSegmentsReadIsHandedOn) {
  EXPECT_EQ(cut(R"(graph m<f32, i64>(%x: f32[N]) {
  %0 = exp(%x) : f32[N]
  %1 = isnan(%0) : bool[N]
  %2 = true_places(%1) : i64[k]
  %3 = gather(%0, %2) : f32[k]
  %4 = isnan(%3) : bool[k]
  %5 = true_places(%4) : i64[l]
  %6 = gather(%3, %5) : f32[l]
  return y=%6
}
)"),
            R"(graph m<f32, i64>(%x: f32[N]) {
  %0 = exp(%x) : f32[N]
  %1 = isnan(%0) : bool[N]
  %2, %3 = bounded_places(%1) : i64[N], i64[]
  return $0=%2, $1=%3, $2=%0
}
(-1 0) 1 -1 -1
graph m<f32, i64>(%$3: i64[k], %$1: f32[N]) {
  %0 = gather(%$1, %$3) : f32[k]
  %1 = isnan(%0) : bool[k]
  %2, %3 = bounded_places(%1) : i64[k], i64[]
  return $0=%2, $1=%3, $2=%0
}
(0 0)(0 2) 1 -1 -1
graph m<f32, i64>(%$6: i64[l], %$4: f32[k]) {
  %0 = gather(%$4, %$6) : f32[l]
  return y=%0
}
(1 0)(1 2) -1
)");
}

TEST(CutAtSizes, SizesOfOneMaskAreCountedOnce) {
  EXPECT_EQ(cut(R"(graph m<f32, i64>(%x: f32[N], %m: bool[N]) {
  %0 = true_places(%m) : i64[k]
  %1 = true_places(%m) : i64[l]
  %2 = gather(%x, %0) : f32[k]
  %3 = gather(%x, %1) : f32[l]
  return y=%2, z=%3
}
)"),
            R"(graph m<f32, i64>(%m: bool[N]) {
  %0, %1 = bounded_places(%m) : i64[N], i64[]
  return $0=%0, $1=%1
}
(-1 1) 1 -1
graph m<f32, i64>(%$2: i64[k], %$3: i64[l], %x: f32[N]) {
  %0 = gather(%x, %$2) : f32[k]
  %1 = gather(%x, %$3) : f32[l]
  return y=%0, z=%1
}
(0 0)(0 0)(-1 0) -1 -1
)");
}

}  // namespace
}  // namespace mithril::passes

#include "passes/push_down_slices.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

// One token of a sequence after a layer that looks at each token by itself.
TEST(Narrow, RowsThatNobodyReadsAreNotMultiplied) {
  expect_pass(R"(graph g<f32, i64>(%x: f32[2, 9, 4], %w: f32[4, 6], %b: f32[6]) {
  %0 = matmul(%x, %w) : f32[2, 9, 6]
  %1 = add(%0, %b) : f32[2, 9, 6]
  %2 = sum(%1, axis=-1, keepdim=true) : f32[2, 9, 1]
  %3 = subtract(%1, %2) : f32[2, 9, 6]
  %4 = index(%3, index=(:, -2)) : f32[2, 6]
  return y=%4
}
)",
              R"(graph g<f32, i64>(%x: f32[2, 9, 4], %w: f32[4, 6], %b: f32[6]) {
  %0 = index(%x, index=(0:2, 7:8, 0:4)) : f32[2, 1, 4]
  %1 = matmul(%0, %w) : f32[2, 1, 6]
  %2 = add(%1, %b) : f32[2, 1, 6]
  %3 = sum(%2, axis=-1, keepdim=true) : f32[2, 1, 1]
  %4 = subtract(%2, %3) : f32[2, 1, 6]
  %5 = reshape(%4, shape=(2, 6)) : f32[2, 6]
  return y=%5
}
)",
              push_down_slices);
}

// Of the axes that stay, a reduction computes what is read.
TEST(Narrow, EveryReductionPassesSlices) {
  const std::pair<const char*, const char*> reductions[] = {
      {"sum", "f32"}, {"mean", "f32"}, {"prod", "f32"}, {"variance", "f32"},
      {"max", "f32"}, {"min", "f32"},  {"any", "bool"}, {"all", "bool"}};
  for (const auto& [op, type] : reductions) {
    const bool is_variance = std::string_view(op) == "variance";
    const std::string attrs =
        fmt::format("axis=-1, keepdim=true{}", is_variance ? ", correction=1.0" : "");
    expect_pass(fmt::format(R"(graph g<f32, i64>(%x: f32[2, 9, 4], %w: f32[4, 6]) {{
  %0 = matmul(%x, %w) : f32[2, 9, 6]
  %1 = {0}(%0, {2}) : {1}[2, 9, 1]
  %2 = index(%1, index=(:, -2)) : {1}[2, 1]
  return y=%2
}}
)",
                            op, type, attrs),
                fmt::format(R"(graph g<f32, i64>(%x: f32[2, 9, 4], %w: f32[4, 6]) {{
  %0 = index(%x, index=(0:2, 7:8, 0:4)) : f32[2, 1, 4]
  %1 = matmul(%0, %w) : f32[2, 1, 6]
  %2 = {0}(%1, {2}) : {1}[2, 1, 1]
  %3 = reshape(%2, shape=(2, 1)) : {1}[2, 1]
  return y=%3
}}
)",
                            op, type, attrs),
                push_down_slices);
  }
}

// Keys and values of all places, the query of one: two products instead of one.
TEST(Narrow, PartsThatLieApartAreComputedApart) {
  expect_pass(R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 12]) {
  %0 = matmul(%x, %w) : f32[9, 12]
  %1 = index(%0, index=(:, 0:4)) : f32[9, 4]
  %2 = index(%0, index=(:, 4:8)) : f32[9, 4]
  %3 = index(%0, index=(:, 8:12)) : f32[9, 4]
  %4 = plain_attention(%1, %2, %3) : f32[9, 4]
  %5 = index(%4, index=0) : f32[4]
  return y=%5
}
)",
              R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 12]) {
  %0 = index(%w, index=(0:4, 4:12)) : f32[4, 8]
  %1 = matmul(%x, %0) : f32[9, 8]
  %2 = index(%x, index=(0:1, 0:4)) : f32[1, 4]
  %3 = index(%w, index=(0:4, 0:4)) : f32[4, 4]
  %4 = matmul(%2, %3) : f32[1, 4]
  %5 = reshape(%4, shape=(1, 4)) : f32[1, 4]
  %6 = index(%1, index=(0:9, 0:4)) : f32[9, 4]
  %7 = reshape(%6, shape=(9, 4)) : f32[9, 4]
  %8 = index(%1, index=(0:9, 4:8)) : f32[9, 4]
  %9 = reshape(%8, shape=(9, 4)) : f32[9, 4]
  %10 = plain_attention(%5, %7, %9) : f32[1, 4]
  %11 = reshape(%10, shape=(4,)) : f32[4]
  return y=%11
}
)",
              push_down_slices);
}

TEST(Narrow, SlicesPassAxesThatMove) {
  expect_pass(R"(graph g<f32, i64>(%x: f32[1, 6, 8], %w: f32[8, 8]) {
  %0 = matmul(%x, %w) : f32[1, 6, 8]
  %1 = reshape(%0, shape=(6, 1, 4, 2)) : f32[6, 1, 4, 2]
  %2 = transpose(%1, axes=(2, 0, 3, 1)) : f32[4, 6, 2, 1]
  %3 = swapaxes(%2, axis1=0, axis2=1) : f32[6, 4, 2, 1]
  %4 = index(%3, index=(1:3, ..., none)) : f32[2, 4, 2, 1, 1]
  return y=%4
}
)",
              R"(graph g<f32, i64>(%x: f32[1, 6, 8], %w: f32[8, 8]) {
  %0 = index(%x, index=(0:1, 1:3, 0:8)) : f32[1, 2, 8]
  %1 = matmul(%0, %w) : f32[1, 2, 8]
  %2 = reshape(%1, shape=(2, 1, 4, 2)) : f32[2, 1, 4, 2]
  %3 = transpose(%2, axes=(2, 0, 3, 1)) : f32[4, 2, 2, 1]
  %4 = swapaxes(%3, axis1=0, axis2=1) : f32[2, 4, 2, 1]
  %5 = reshape(%4, shape=(2, 4, 2, 1, 1)) : f32[2, 4, 2, 1, 1]
  return y=%5
}
)",
              push_down_slices);
}

TEST(Narrow, AxesThatAReshapeCutsAreComputedWhole) {
  expect_pass(R"(graph g<f32, i64>(%x: f32[6, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[6, 4]
  %1 = reshape(%0, shape=(2, 3, 4)) : f32[2, 3, 4]
  %2 = matmul(%1, %w) : f32[2, 3, 4]
  %3 = index(%2, index=0) : f32[3, 4]
  return y=%3
}
)",
              R"(graph g<f32, i64>(%x: f32[6, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[6, 4]
  %1 = reshape(%0, shape=(2, 3, 4)) : f32[2, 3, 4]
  %2 = index(%1, index=(0:1, 0:3, 0:4)) : f32[1, 3, 4]
  %3 = matmul(%2, %w) : f32[1, 3, 4]
  %4 = reshape(%3, shape=(3, 4)) : f32[3, 4]
  return y=%4
}
)",
              push_down_slices);
}

// Axes in front of the rows come from the right operand.
TEST(Narrow, RowsOfOneMatrixBesideManyAreFoundFromTheEnd) {
  expect_pass(R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[5, 4, 6]) {
  %0 = matmul(%x, %w) : f32[5, 9, 6]
  %1 = index(%0, index=(:, 7)) : f32[5, 6]
  return y=%1
}
)",
              R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[5, 4, 6]) {
  %0 = index(%x, index=(7:8, 0:4)) : f32[1, 4]
  %1 = matmul(%0, %w) : f32[5, 1, 6]
  %2 = reshape(%1, shape=(5, 6)) : f32[5, 6]
  return y=%2
}
)",
              push_down_slices);
}

// Two readers of neighbouring rows: the rows of both.
TEST(Narrow, ReadersTogetherSayWhatIsComputed) {
  expect_pass(R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[9, 4]
  %1 = index(%0, index=2) : f32[4]
  %2 = index(%0, index=(2:5)) : f32[3, 4]
  return a=%1, b=%2
}
)",
              R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 4]) {
  %0 = index(%x, index=(2:5, 0:4)) : f32[3, 4]
  %1 = matmul(%0, %w) : f32[3, 4]
  %2 = index(%1, index=(0:1, 0:4)) : f32[1, 4]
  %3 = reshape(%2, shape=(4,)) : f32[4]
  %4 = reshape(%1, shape=(3, 4)) : f32[3, 4]
  return a=%3, b=%4
}
)",
              push_down_slices);
}

TEST(Narrow, LeavesWhatIsReadWhole) {
  expect_unchanged(R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 12]) {
  %0 = matmul(%x, %w) : f32[9, 12]
  %1 = index(%0, index=(:, 0:4)) : f32[9, 4]
  %2 = index(%0, index=(:, 4:12)) : f32[9, 8]
  return a=%1, b=%2
}
)",
                   push_down_slices);
}

// A causal query knows its place by its number; steps are read as a whole, and axes that a
// reshape cuts.
TEST(Narrow, LeavesWhatCannotBeComputedInParts) {
  expect_unchanged(R"(graph g<f32, i64>(%q: f32[9, 4], %k: f32[9, 4], %v: f32[9, 4]) {
  %0 = plain_attention(%q, %k, %v, is_causal=true) : f32[9, 4]
  %1 = index(%0, index=8) : f32[4]
  return y=%1
}
)",
                   push_down_slices);
  expect_unchanged(R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[9, 4]
  %1 = index(%0, index=(::2,)) : f32[5, 4]
  return y=%1
}
)",
                   push_down_slices);
  expect_unchanged(R"(graph g<f32, i64>(%x: f32[6, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[6, 4]
  %1 = reshape(%0, shape=(2, 3, 4)) : f32[2, 3, 4]
  %2 = index(%1, index=0) : f32[3, 4]
  return y=%2
}
)",
                   push_down_slices);
  expect_unchanged(R"(graph g<f32, i64>(%x: f32[9, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[9, 4]
  %1 = cumsum(%0, axis=0) : f32[9, 4]
  %2 = index(%1, index=0) : f32[4]
  return y=%2
}
)",
                   push_down_slices);
}

TEST(Narrow, SparesNoLessThanAHundredthOfTheProducts) {
  expect_unchanged(R"(graph g<f32, i64>(%x: f32[200, 4], %w: f32[4, 4]) {
  %0 = matmul(%x, %w) : f32[200, 4]
  %1 = index(%0, index=(1:200,)) : f32[199, 4]
  return y=%1
}
)",
                   push_down_slices);
  expect_unchanged(R"(graph g<f32, i64>(%x: f32[9, 4]) {
  %0 = exp(%x) : f32[9, 4]
  %1 = index(%0, index=0) : f32[4]
  return y=%1
}
)",
                   push_down_slices);
}

}  // namespace
}  // namespace mithril::passes

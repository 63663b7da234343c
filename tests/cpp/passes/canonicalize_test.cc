// Covers: passes/rewriter.cc
#include "passes/canonicalize.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

TEST(Canonicalize, DropsIdentities) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[b, 3]) {
  %0 = buffer(%x) : f32[b, 3]
  %1 = cast(%0, dtype=f32) : f32[b, 3]
  %2 = transpose(%1, axes=(0, 1)) : f32[b, 3]
  %3 = negate(%2) : f32[b, 3]
  %4 = negate(%3) : f32[b, 3]
  %5 = constant(value=1.0, dtype=f32) : f32[]
  %6 = multiply(%4, %5) : f32[b, 3]
  return y=%6
}
)",
              R"(graph m<f32, i64>(%x: f32[b, 3]) {
  %0 = negate(%x) : f32[b, 3]
  %1 = constant(value=1.0, dtype=f32) : f32[]
  return y=%x
}
)",
              [](const ir::Graph& g) { return canonicalize(g); });
}

TEST(Canonicalize, JoinsTransposesAndReshapes) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[2, 3, 4]) {
  %0 = transpose(%x, axes=(1, 2, 0)) : f32[3, 4, 2]
  %1 = transpose(%0, axes=(2, 1, 0)) : f32[2, 4, 3]
  %2 = reshape(%x, shape=(6, 4)) : f32[6, 4]
  %3 = reshape(%2, shape=(24,)) : f32[24]
  %4 = reshape(%2, shape=(2, 3, 4)) : f32[2, 3, 4]
  return a=%1, b=%3, c=%4
}
)",
              R"(graph m<f32, i64>(%x: f32[2, 3, 4]) {
  %0 = transpose(%x, axes=(1, 2, 0)) : f32[3, 4, 2]
  %1 = transpose(%x, axes=(0, 2, 1)) : f32[2, 4, 3]
  %2 = reshape(%x, shape=(6, 4)) : f32[6, 4]
  %3 = reshape(%x, shape=(24,)) : f32[24]
  return a=%1, b=%3, c=%x
}
)",
              [](const ir::Graph& g) { return canonicalize(g); });
}

TEST(Canonicalize, SumsToAShapeThatIsKnown) {
  expect_pass(R"(graph m<f32, i64>(%g: f32[b, 3, 4], %w: f32[3, 1]) {
  %0 = sum_to(%g, %w) : f32[3, 1]
  return y=%0
}
)",
              R"(graph m<f32, i64>(%g: f32[b, 3, 4], %w: f32[3, 1]) {
  %0 = sum(%g, axis=(0, 2)) : f32[3]
  %1 = reshape(%0, shape=(3, 1)) : f32[3, 1]
  return y=%1
}
)",
              [](const ir::Graph& g) { return canonicalize(g); });
}

// n may be 1: which axes are summed is not known before the sizes are.
TEST(Canonicalize, LeavesASumToWhoseSizesAreOpen) {
  expect_unchanged(R"(graph m<f32, i64>(%g: f32[b, 4], %w: f32[n]) {
  %0 = add(%g, %w) : f32[b, 4]
  %1 = sum_to(%0, %w) : f32[n]
  return y=%1
}
)",
                   [](const ir::Graph& g) { return canonicalize(g); });
}

TEST(Canonicalize, KeepsKnownValuesOfInputs) {
  ir::Graph graph = parsed("graph m<f32, i64>(%n: i64[]) {\n  return y=%n\n}\n");
  graph.value(graph.inputs[0]).host = core::HostValue(3);
  const ir::Graph out = std::move(canonicalize(graph)).or_throw();
  EXPECT_EQ(out.value(out.inputs[0]).host, core::HostValue(3));
}

// n / 1 is a float.
TEST(Canonicalize, LeavesQuotientsOfIntegers) {
  expect_unchanged(R"(graph m(%n: int[3]) {
  %0 = constant(value=1) : int[]
  %1 = divide(%n, %0) : float[3]
  return y=%1
}
)",
                   [](const ir::Graph& g) { return canonicalize(g); });
}

// x + 0 changes -0; x * 1 with a broadcast is no identity.
TEST(Canonicalize, LeavesWhatIsNotExactlyTheIdentity) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[3], %one: f32[1]) {
  %0 = constant(value=0.0, dtype=f32) : f32[]
  %1 = add(%x, %0) : f32[3]
  %2 = constant(value=1.0, dtype=f32) : f32[]
  %3 = constant(value=-0.0, dtype=f32) : f32[]
  %4 = subtract(%1, %3) : f32[3]
  return y=%4
}
)",
                   [](const ir::Graph& g) { return canonicalize(g); });
}

}  // namespace
}  // namespace mithril::passes

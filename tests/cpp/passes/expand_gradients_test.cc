// Covers: passes/backward.cc
#include "passes/expand_gradients.h"

#include <algorithm>

#include "ir/registry.h"
#include "passes/autodiff.h"
#include "passes/canonicalize.h"
#include "passes/merge_common.h"
#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> expanded(const ir::Graph& graph) {
  MITHRIL_ASSIGN(const ir::Graph full, expand_gradients(graph));
  MITHRIL_ASSIGN(const ir::Graph plain, canonicalize(full));
  MITHRIL_ASSIGN(const ir::Graph merged, merge_common(plain));
  return remove_dead(merged);
}

TEST(ExpandGradients, PutsTheProgramInPlaceOfTheNode) {
  expect_pass(R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = exp(%x) : f32[b]
  %1 = gradient(%0, %x) : f32[b]
  return g=%1
}
)",
              R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = exp(%x) : f32[b]
  %1 = ones_like(%0) : f32[b]
  %2 = multiply(%1, %0) : f32[b]
  return g=%2
}
)",
              expanded);
}

TEST(ExpandGradients, StopsAtAWireBetween) {
  expect_pass(R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = sin(%x) : f32[b]
  %1 = exp(%0) : f32[b]
  %2 = gradient(%1, %0) : f32[b]
  return g=%2
}
)",
              R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = sin(%x) : f32[b]
  %1 = exp(%0) : f32[b]
  %2 = ones_like(%1) : f32[b]
  %3 = multiply(%2, %1) : f32[b]
  return g=%3
}
)",
              expanded);
}

TEST(ExpandGradients, GivesZerosWhereNothingDepends) {
  const ir::Graph out = std::move(expand_gradients(parsed(
                                      R"(graph f<f32, i64>(%x: f32[3], %w: f32[2]) {
  %0 = exp(%x) : f32[3]
  %1 = gradient(%0, %w) : f32[2]
  return g=%1
}
)")))
                            .or_throw();
  EXPECT_EQ(ir::Registry::global().get(out.producer(out.outputs[0].value)->op).name, "zeros_like");
}

TEST(ExpandGradients, ExpandsGradientsOfGradients) {
  const ir::Graph out = std::move(expand_gradients(parsed(R"(graph f<f32, i64>(%x: f32[3]) {
  %0 = multiply(%x, %x) : f32[3]
  %1 = multiply(%0, %x) : f32[3]
  %2 = gradient(%1, %x) : f32[3]
  %3 = gradient(%2, %x) : f32[3]
  %4 = gradient(%3, %x) : f32[3]
  return g=%4
}
)")))
                            .or_throw();
  EXPECT_FALSE(has_gradients(out));
  EXPECT_TRUE(ir::verify(out).ok());
}

TEST(ExpandGradients, TakesOneSweepForGradientsOfOneValue) {
  const ir::Graph both = std::move(expand_gradients(parsed(
                                       R"(graph f<f32, i64>(%x: f32[3], %w: f32[3]) {
  %0 = multiply(%x, %w) : f32[3]
  %1 = gradient(%0, %x) : f32[3]
  %2 = gradient(%0, %w) : f32[3]
  return g=%1, h=%2
}
)")))
                             .or_throw();
  const auto seeds = std::count_if(both.nodes.begin(), both.nodes.end(), [](const ir::Node& node) {
    return ir::Registry::global().get(node.op).name == "ones_like";
  });
  EXPECT_EQ(seeds, 1);
}

TEST(ExpandGradients, GivesZerosThroughIntegers) {
  auto out = expand_gradients(parsed(R"(graph f<f32, i64>(%x: f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = argmax(%0) : i64[]
  %2 = cast(%1, dtype=f32) : f32[]
  %3 = gradient(%2, %x) : f32[3]
  return g=%3
}
)"));
  // What comes of integers depends on nothing.
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
}

TEST(ExpandGradients, IsDoneBeforeDifferentiation) {
  DifferentiateOptions options;
  options.outputs = {"g"};
  options.wrt = {"x"};
  options.keep_outputs = false;
  expect_pass(R"(graph f<f32, i64>(%x: f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = gradient(%0, %x) : f32[3]
  return g=%1
}
)",
              R"(graph f<f32, i64>(%x: f32[3], %cotangent.g: f32[3] cotangent) {
  %0 = exp(%x) : f32[3]
  %1 = ones_like(%0) : f32[3]
  %2 = multiply(%cotangent.g, %1) : f32[3]
  %3 = multiply(%2, %0) : f32[3]
  return grad.x=%3
}
)",
              [&](const ir::Graph& graph) -> core::Result<ir::Graph> {
                MITHRIL_ASSIGN(const ir::Graph full, differentiate(graph, options));
                MITHRIL_ASSIGN(const ir::Graph plain, canonicalize(full));
                MITHRIL_ASSIGN(const ir::Graph merged, merge_common(plain));
                return remove_dead(merged);
              });
}

}  // namespace
}  // namespace mithril::passes

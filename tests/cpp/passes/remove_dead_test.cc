#include "passes/remove_dead.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

TEST(RemoveDead, DropsWhatNoOutputReads) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[3], %unused: f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = tanh(%0) : f32[3]
  %2 = sigmoid(%x) : f32[3]
  return y=%2
}
)",
              R"(graph m<f32, i64>(%x: f32[3], %unused: f32[3]) {
  %0 = sigmoid(%x) : f32[3]
  return y=%0
}
)",
              remove_dead);
}

TEST(RemoveDead, KeepsWhatAStateNeeds) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[3], %s: f32[3] state) {
  %0 = add(%x, %s) : f32[3]
  state %s <- %0 = 0.0
  return y=%x
}
)",
                   remove_dead);
}

// The count is no output, but says how often the step is taken.
TEST(RemoveDead, KeepsWhatOnlyAConditionReads) {
  expect_unchanged(R"(graph m<f32, i64>(%n: f32[], %x: f32[], %limit: f32[]) {
  %0, %1 = while_loop(%n, %x, %limit, carries=2) : f32[], f32[] {
    graph condition<f32, i64>(%c0: f32[], %c1: f32[], %k0: f32[]) {
      %0 = less(%c0, %k0) : bool[]
      return go=%0
    }
  } {
    graph step<f32, i64>(%c0: f32[], %c1: f32[], %k0: f32[]) {
      %0 = exp(%c0) : f32[]
      %1 = tanh(%c1) : f32[]
      return c0=%0, c1=%1
    }
  }
  return y=%1
}
)",
                   remove_dead);
}

}  // namespace
}  // namespace mithril::passes

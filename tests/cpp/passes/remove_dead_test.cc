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

}  // namespace
}  // namespace mithril::passes

#include "passes/merge_common.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

TEST(MergeCommon, ComputesEqualNodesOnce) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[3], %y: f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = exp(%x) : f32[3]
  %2 = add(%0, %y) : f32[3]
  %3 = add(%y, %1) : f32[3]
  %4 = multiply(%2, %3) : f32[3]
  return z=%4
}
)",
              R"(graph m<f32, i64>(%x: f32[3], %y: f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = add(%0, %y) : f32[3]
  %2 = multiply(%1, %1) : f32[3]
  return z=%2
}
)",
              merge_common);
}

TEST(MergeCommon, KeepsOperandsApartWhereOrderCounts) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[3], %y: f32[3]) {
  %0 = subtract(%x, %y) : f32[3]
  %1 = subtract(%y, %x) : f32[3]
  %2 = sum(%x, axis=0) : f32[]
  %3 = sum(%x, axis=0, keepdim=true) : f32[1]
  return a=%0, b=%1, c=%2, d=%3
}
)",
                   merge_common);
}

}  // namespace
}  // namespace mithril::passes

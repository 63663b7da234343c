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

TEST(MergeCommon, LeavesBranchesThatDoSomethingElse) {
  const auto cond = [](const char* result, const char* taken) {
    return fmt::format(R"(  {} = cond(%x, %p) : f32[b] {{
    graph taken<f32, i64>(%k0: f32[b]) {{
      %0 = {}(%k0) : f32[b]
      return y0=%0
    }}
  }} {{
    graph other<f32, i64>(%k0: f32[b]) {{
      return y0=%k0
    }}
  }}
)",
                       result, taken);
  };
  expect_unchanged("graph m<f32, i64>(%x: f32[b], %p: bool[]) {\n" + cond("%0", "exp") +
                       cond("%1", "tanh") + "  return y=%0, z=%1\n}\n",
                   merge_common);
}

}  // namespace
}  // namespace mithril::passes

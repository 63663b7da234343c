#include "passes/fold_hosts.h"

#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> folded(const ir::Graph& graph) {
  MITHRIL_ASSIGN(const ir::Graph out, fold_hosts(graph));
  return remove_dead(out);
}

TEST(FoldHosts, NumbersBecomeConstantsOfTheirReaders) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[4]) {
  %0 = power(base=4, exponent=0.5) : float
  %1 = subtract(%0, right=1) : float
  %2 = divide(%x, %1) : f32[4]
  return y=%2
}
)",
              R"(graph m<f32, i64>(%x: f32[4]) {
  %0 = constant(value=1.0, dtype=f32) : f32[]
  %1 = divide(%x, %0) : f32[4]
  return y=%1
}
)",
              folded);
}

TEST(FoldHosts, LeavesGraphsOfTensors) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[4]) {
  %0 = exp(%x) : f32[4]
  return y=%0
}
)",
                   folded);
}

}  // namespace
}  // namespace mithril::passes

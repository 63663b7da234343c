// Covers: ir/target.cc
#include "passes/decompose.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

constexpr const char* kBefore = R"(graph m<f32, i64>(%x: f32[b, 3], %w: f32[2, 3]) {
  %0 = linear(%w, %x, use_bias=false) : f32[b, 2]  # head
  return y=%0
}
)";

TEST(Decompose, ReplacesACompositeByItsBody) {
  expect_pass(kBefore,
              R"(graph m<f32, i64>(%x: f32[b, 3], %w: f32[2, 3]) {
  %0 = swapaxes(%w, axis1=0, axis2=1) : f32[3, 2]  # head
  %1 = matmul(%x, %0) : f32[b, 2]  # head
  return y=%1
}
)",
              [](const ir::Graph& g) { return decompose(g, ir::Target{}); });
}

TEST(Decompose, LeavesWhatTheTargetKeeps) {
  ir::Target target;
  target.keeps_whole = {"linear"};
  expect_unchanged(kBefore, [&](const ir::Graph& g) { return decompose(g, target); });
  target.decompose_all = true;
  const ir::Graph out = std::move(decompose(parsed(kBefore), target)).or_throw();
  EXPECT_EQ(out.nodes.size(), 2U);
}

}  // namespace
}  // namespace mithril::passes

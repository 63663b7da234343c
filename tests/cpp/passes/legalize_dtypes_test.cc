#include "passes/legalize_dtypes.h"

#include "ir/registry.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

// Products run in wide types only, all else as it is.
ir::Support wide_products(const ir::Graph&, const ir::Node& node) {
  const bool product = ir::Registry::global().get(node.op).name == "matmul";
  return product ? ir::Support::kWidened : ir::Support::kAsIs;
}

core::Result<ir::Graph> widened(const ir::Graph& graph) {
  return legalize_dtypes(graph, wide_products);
}

TEST(Widen, CastsAroundKernelsOfWiderTypes) {
  expect_pass(R"(graph m<f32, i64>(%x: f16[2, 3], %y: i8[3, 3], %z: f16[3, 3]) {
  %0 = exp(%x) : f16[2, 3]
  %1 = matmul(%y, %y) : i8[3, 3]
  %2 = matmul(%0, %z) : f16[2, 3]
  return a=%1, b=%2
}
)",
              R"(graph m<f32, i64>(%x: f16[2, 3], %y: i8[3, 3], %z: f16[3, 3]) {
  %0 = exp(%x) : f16[2, 3]
  %1 = cast(%y, dtype=i32) : i32[3, 3]
  %2 = cast(%y, dtype=i32) : i32[3, 3]
  %3 = matmul(%1, %2) : i32[3, 3]
  %4 = cast(%3, dtype=i8) : i8[3, 3]
  %5 = cast(%0, dtype=f32) : f32[2, 3]
  %6 = cast(%z, dtype=f32) : f32[3, 3]
  %7 = matmul(%5, %6) : f32[2, 3]
  %8 = cast(%7, dtype=f16) : f16[2, 3]
  return a=%4, b=%8
}
)",
              widened);
}

TEST(Widen, LeavesWhatRunsAsItIs) {
  const std::string text = R"(graph m<f32, i64>(%x: bf16[2, 3]) {
  %0 = exp(%x) : bf16[2, 3]
  return y=%0
}
)";
  expect_unchanged(text, widened);
  EXPECT_TRUE(has_narrow(parsed(text)));
}

}  // namespace
}  // namespace mithril::passes

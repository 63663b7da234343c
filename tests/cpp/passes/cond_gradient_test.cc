#include "passes/cond_gradient.h"

#include <gtest/gtest.h>

#include "passes/autodiff.h"
#include "passes/canonicalize.h"
#include "passes/regions.h"
#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> gradient(const ir::Graph& graph) {
  DifferentiateOptions options;
  options.outputs = {"y"};
  options.wrt = {"x", "w"};
  options.keep_outputs = false;
  MITHRIL_ASSIGN(const ir::Graph full, differentiate(graph, options));
  MITHRIL_ASSIGN(const ir::Graph plain,
                 everywhere([](const ir::Graph& g) { return canonicalize(g); })(full));
  return remove_dead(plain);
}

// Each branch has the gradients of all operands; those that it does not read are zero.
TEST(CondGradient, IsACondOfGradients) {
  expect_pass(
      R"(graph m<f32, i64>(%x: f32[2], %w: f32[2], %p: bool[]) {
  %0 = cond(%x, %w, %p) : f32[2] {
    graph taken<f32, i64>(%k0: f32[2], %k1: f32[2]) {
      %0 = multiply(%k0, %k1) : f32[2]
      return y0=%0
    }
  } {
    graph other<f32, i64>(%k0: f32[2], %k1: f32[2]) {
      return y0=%k0
    }
  }
  return y=%0
}
)",
      R"(graph m<f32, i64>(%x: f32[2], %w: f32[2], %p: bool[], %cotangent.y: f32[2] cotangent) {
  %0, %1 = cond(%x, %w, %cotangent.y, %p) : f32[2], f32[2] {
    graph taken<f32, i64>(%k0: f32[2], %k1: f32[2], %k2: f32[2]) {
      %0 = multiply(%k2, %k1) : f32[2]
      %1 = multiply(%k2, %k0) : f32[2]
      return y0=%0, y1=%1
    }
  } {
    graph other<f32, i64>(%k0: f32[2], %k1: f32[2], %k2: f32[2]) {
      %0 = zeros_like(%k1) : f32[2]
      return y0=%k2, y1=%0
    }
  }
  return grad.x=%0, grad.w=%1
}
)",
      gradient);
}

}  // namespace
}  // namespace mithril::passes

#include "passes/scan_gradient.h"

#include "passes/autodiff.h"
#include "passes/canonicalize.h"
#include "passes/regions.h"
#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

constexpr std::string_view kProducts = R"(graph m<f32, i64>(%h: f32[], %w: f32[]) {
  %0 = scan(%h, %w, carries=1, length=5) : f32[] {
    graph step<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = multiply(%c0, %k0) : f32[]
      return c0=%0
    }
  }
  return last=%0
}
)";

core::Result<ir::Graph> gradient(const ir::Graph& graph) {
  DifferentiateOptions options;
  options.outputs = {"last"};
  options.wrt = {"w"};
  options.keep_outputs = false;
  MITHRIL_ASSIGN(const ir::Graph full, differentiate(graph, options));
  MITHRIL_ASSIGN(const ir::Graph plain,
                 everywhere([](const ir::Graph& g) { return canonicalize(g); })(full));
  return remove_dead(plain);
}

TEST(ScanGradient, TellsWhatStepsStartedFrom) {
  expect_pass(kProducts, R"(graph m<f32, i64>(%h: f32[], %w: f32[]) {
  %0, %1 = scan(%h, %w, carries=1, length=5) : f32[], f32[5] {
    graph step<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = multiply(%c0, %k0) : f32[]
      return c0=%0, y0=%c0
    }
  }
  return last=%0
}
)",
              stack_carries);
}

TEST(ScanGradient, IsALoopTheOtherWay) {
  expect_pass(kProducts,
              R"(graph m<f32, i64>(%h: f32[], %w: f32[], %cotangent.last: f32[] cotangent) {
  %0 = scan(%h, %w, carries=1, length=5) : f32[5] {
    graph step<f32, i64>(%c0: f32[], %k0: f32[]) {
      %0 = multiply(%c0, %k0) : f32[]
      return c0=%0, y0=%c0
    }
  }
  return grad.w=%0
}
)",
              gradient);
}

}  // namespace
}  // namespace mithril::passes

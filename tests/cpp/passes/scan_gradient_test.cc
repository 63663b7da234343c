#include "passes/scan_gradient.h"

#include "ir/scan.h"
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

// The cotangent of the carry and the sum of the constant's are carries, what steps started from is
// read place by place.
TEST(ScanGradient, IsALoopTheOtherWay) {
  const ir::Graph out = std::move(gradient(parsed(kProducts))).or_throw();
  const core::Status status = ir::verify(out);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  const ir::Node& last = *out.producer(out.find_output("grad.w"));
  ASSERT_TRUE(ir::is_scan(last));
  const ir::ScanParts parts = ir::scan_parts(last);
  EXPECT_TRUE(parts.reverse);
  EXPECT_EQ(parts.carries, 2U);
  EXPECT_EQ(parts.xs, 1U);
  EXPECT_EQ(parts.constants, 1U);
  EXPECT_EQ(parts.ys, 0U);
}

TEST(ScanGradient, HasAGradient) {
  const ir::Graph once = std::move(gradient(parsed(kProducts))).or_throw();
  DifferentiateOptions options;
  options.outputs = {"grad.w"};
  options.wrt = {"w", "h"};
  const ir::Graph twice = std::move(differentiate(once, options)).or_throw();
  const core::Status status = ir::verify(twice);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

}  // namespace
}  // namespace mithril::passes

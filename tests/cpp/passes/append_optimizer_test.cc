#include "passes/append_optimizer.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

TEST(AppendOptimizer, CountsStepsAndGivesEachStateItsNewValue) {
  const std::vector<std::string> params = {"w"};
  const Optimizer adam{"adam", {{"beta1", 0.5}, {"beta2", 0.75}}};
  expect_pass(
      R"(graph f<f32, i64>(%w: f32[3] param) {
  %0 = multiply(%w, %w) : f32[3]
  %1 = sum(%0) : f32[]
  return y=%1, grad.w=%0
}
)",
      R"(graph f<f32, i64>(%w: f32[3] param, %$opt.lr: f32[], %$opt.t: i64[] state, %$opt.m.w: f32[3] state, %$opt.v.w: f32[3] state) {
  %0 = multiply(%w, %w) : f32[3]
  %1 = sum(%0) : f32[]
  %2 = constant(value=1, dtype=i64) : i64[]
  %3 = add(%$opt.t, %2) : i64[]
  %4, %5, %6 = adam(%w, %0, %$opt.m.w, %$opt.v.w, %3, %$opt.lr, beta1=0.5, beta2=0.75) : f32[3], f32[3], f32[3]
  return y=%1, $new.$opt.t=%3, $new.w=%4, $new.$opt.m.w=%5, $new.$opt.v.w=%6
}
)",
      [&](const ir::Graph& g) { return append_optimizer(g, adam, params); });
  EXPECT_EQ(std::move(optimizer_slots(adam)).or_throw(), (std::vector<std::string>{"m", "v"}));
}

}  // namespace
}  // namespace mithril::passes

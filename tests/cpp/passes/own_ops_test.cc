// Covers: ir/vjp_op.cc
#include "passes/own_ops.h"

#include "passes/autodiff.h"
#include "passes/decompose.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

constexpr const char* kTanh = R"(graph m<f32, i64>(%x: f32[3]) {
  %0 = tanh(%x) : f32[3]  # act
  return y=%0
}
)";

std::string own(std::string_view op, bool has_function, bool has_gradient) {
  return std::move(define_own_op(op, has_function, has_gradient)).or_throw();
}

TEST(OwnOps, StandForTheOpsThatABackendBrings) {
  ir::Target target;
  target.own_functions = {{"tanh", own("tanh", true, false)}};
  expect_pass(kTanh,
              R"(graph m<f32, i64>(%x: f32[3]) {
  %0 = own_f_tanh(%x) : f32[3]  # act
  return y=%0
}
)",
              [&](const ir::Graph& g) { return call_own_functions(g, target); });
}

TEST(OwnOps, OfElementsBroadcast) {
  ir::Target target;
  target.own_functions = {{"add", own("add", true, false)}};
  expect_pass(R"(graph m<f32, i64>(%x: f32[2, 1], %z: f32[3]) {
  %0 = add(%x, %z) : f32[2, 3]
  return y=%0
}
)",
              R"(graph m<f32, i64>(%x: f32[2, 1], %z: f32[3]) {
  %0 = own_f_add(%x, %z) : f32[2, 3]
  return y=%0
}
)",
              [&](const ir::Graph& g) { return call_own_functions(g, target); });
}

TEST(OwnOps, GradientsAreOpsOfTheirOwn) {
  ir::Target target;
  target.own_gradients = {{"tanh", own("tanh", false, true)}};
  const ir::Graph graph = std::move(take_own_gradients(parsed(kTanh), target)).or_throw();
  DifferentiateOptions request;
  request.outputs = {"y"};
  request.wrt = {"x"};
  const ir::Graph gradient = std::move(differentiate(graph, request)).or_throw();
  EXPECT_NE(ir::print(gradient).find("own_g_tanh_vjp0("), std::string::npos);
  // The function is the op's; a second derivative is refused.
  const ir::Graph plain = std::move(decompose(graph, target)).or_throw();
  EXPECT_EQ(ir::print(plain), kTanh);
  request.outputs = {"grad.x"};
  EXPECT_FALSE(differentiate(gradient, request).ok());
}

TEST(OwnOps, AreDefinedOnce) {
  EXPECT_EQ(own("tanh", true, true), own("tanh", true, true));
  EXPECT_EQ(own("reduce_sum", true, false), "own_f_sum");
}

TEST(OwnOps, RefuseGradientsOfLists) {
  EXPECT_FALSE(define_own_op("concat", false, true).ok());
  EXPECT_TRUE(define_own_op("concat", true, false).ok());
  EXPECT_FALSE(define_own_op("nothing", true, false).ok());
}

}  // namespace
}  // namespace mithril::passes

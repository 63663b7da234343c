#include "passes/multiply_halves.h"

#include <algorithm>

#include "ir/registry.h"
#include "passes/decompose.h"
#include "passes/pipeline.h"
#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

bool is_product(const ir::Node& node) {
  const std::string& name = ir::Registry::global().get(node.op).name;
  return name == "widening_matmul" || name == "biased_matmul";
}

// A target that multiplies halves of any types as they lie.
ir::Support as_they_lie(const ir::Graph& graph, const ir::Node& node) {
  EXPECT_TRUE(is_product(node));
  EXPECT_NE(graph.type(node.operands[0]).dtype, core::DType::kFloat32);
  return ir::Support::kAsIs;
}

core::Result<ir::Graph> multiplied(const ir::Graph& graph) {
  MITHRIL_ASSIGN(const ir::Graph out, multiply_halves(graph, as_they_lie));
  return remove_dead(out);
}

constexpr const char* kLayer = R"(graph m<f16, i64>(%w: f16[4, 3], %x: f16[2, 3], %b: f16[4]) {
  %0 = cast(%w, dtype=f32) : f32[4, 3]
  %1 = cast(%x, dtype=f32) : f32[2, 3]
  %2 = cast(%b, dtype=f32) : f32[4]
  %3 = swapaxes(%0, axis1=0, axis2=1) : f32[3, 4]
  %4 = matmul(%1, %3) : f32[2, 4]
  %5 = add(%4, %2) : f32[2, 4]
  %6 = cast(%5, dtype=f16) : f16[2, 4]
  return y=%6
}
)";

TEST(MultiplyHalves, TakesFactorsAsTheyLie) {
  expect_pass(kLayer,
              R"(graph m<f16, i64>(%w: f16[4, 3], %x: f16[2, 3], %b: f16[4]) {
  %0 = swapaxes(%w, axis1=0, axis2=1) : f16[3, 4]
  %1 = biased_matmul(%x, %0, %b) : f16[2, 4]
  return y=%1
}
)",
              multiplied);
}

TEST(MultiplyHalves, LeavesOthersTheirCastsAndShapes) {
  expect_pass(R"(graph m<bf16, i64>(%w: bf16[2, 2], %x: bf16[2, 2]) {
  %0 = cast(%w, dtype=f32) : f32[2, 2]
  %1 = cast(%x, dtype=f32) : f32[2, 2]
  %2 = transpose(%0) : f32[2, 2]
  %3 = matmul(%1, %2) : f32[2, 2]
  %4 = add(%1, %2) : f32[2, 2]
  %5 = matmul(%1, %1) : f32[2, 2]
  return y=%3, z=%4, s=%5
}
)",
              R"(graph m<bf16, i64>(%w: bf16[2, 2], %x: bf16[2, 2]) {
  %0 = cast(%w, dtype=f32) : f32[2, 2]
  %1 = cast(%x, dtype=f32) : f32[2, 2]
  %2 = transpose(%0) : f32[2, 2]
  %3 = transpose(%w) : bf16[2, 2]
  %4 = widening_matmul(%x, %3) : f32[2, 2]
  %5 = add(%1, %2) : f32[2, 2]
  %6 = widening_matmul(%x, %x) : f32[2, 2]
  return y=%4, z=%5, s=%6
}
)",
              multiplied);
}

// Every sum here has something that a layer's has not: another shape, reader or type, or no cast.
TEST(MultiplyHalves, LeavesOtherSums) {
  expect_pass(
      R"(graph m<bf16, i64>(%x: bf16[2, 2], %b: bf16[2], %c: bf16[2, 1], %h: f16[2], %s: f32[2], %v: bf16[2]) {
  %0 = cast(%x, dtype=f32) : f32[2, 2]
  %1 = cast(%b, dtype=f32) : f32[2]
  %2 = cast(%c, dtype=f32) : f32[2, 1]
  %3 = cast(%h, dtype=f32) : f32[2]
  %4 = cast(%v, dtype=f32) : f32[2]
  %5 = matmul(%0, %0) : f32[2, 2]
  %6 = add(%5, %1) : f32[2, 2]
  %7 = matmul(%0, %0) : f32[2, 2]
  %8 = add(%7, %2) : f32[2, 2]
  %9 = cast(%8, dtype=bf16) : bf16[2, 2]
  %10 = matmul(%0, %0) : f32[2, 2]
  %11 = add(%10, %3) : f32[2, 2]
  %12 = cast(%11, dtype=bf16) : bf16[2, 2]
  %13 = matmul(%0, %0) : f32[2, 2]
  %14 = add(%13, %s) : f32[2, 2]
  %15 = cast(%14, dtype=bf16) : bf16[2, 2]
  %16 = matmul(%0, %0) : f32[2, 2]
  %17 = add(%1, %16) : f32[2, 2]
  %18 = cast(%17, dtype=f16) : f16[2, 2]
  %19 = matmul(%0, %0) : f32[2, 2]
  %20 = add(%19, %1) : f32[2, 2]
  %21 = cast(%20, dtype=bf16) : bf16[2, 2]
  %22 = exp(%20) : f32[2, 2]
  %23 = matmul(%0, %0) : f32[2, 2]
  %24 = add(%23, %1) : f32[2, 2]
  %25 = cast(%24, dtype=bf16) : bf16[2, 2]
  %26 = matmul(%0, %4) : f32[2]
  %27 = add(%26, %1) : f32[2]
  %28 = cast(%27, dtype=bf16) : bf16[2]
  return a=%6, b=%9, c=%12, d=%15, e=%18, f=%21, g=%22, h=%23, i=%25, j=%28
}
)",
      R"(graph m<bf16, i64>(%x: bf16[2, 2], %b: bf16[2], %c: bf16[2, 1], %h: f16[2], %s: f32[2], %v: bf16[2]) {
  %0 = cast(%b, dtype=f32) : f32[2]
  %1 = cast(%c, dtype=f32) : f32[2, 1]
  %2 = cast(%h, dtype=f32) : f32[2]
  %3 = widening_matmul(%x, %x) : f32[2, 2]
  %4 = add(%3, %0) : f32[2, 2]
  %5 = widening_matmul(%x, %x) : f32[2, 2]
  %6 = add(%5, %1) : f32[2, 2]
  %7 = cast(%6, dtype=bf16) : bf16[2, 2]
  %8 = widening_matmul(%x, %x) : f32[2, 2]
  %9 = add(%8, %2) : f32[2, 2]
  %10 = cast(%9, dtype=bf16) : bf16[2, 2]
  %11 = widening_matmul(%x, %x) : f32[2, 2]
  %12 = add(%11, %s) : f32[2, 2]
  %13 = cast(%12, dtype=bf16) : bf16[2, 2]
  %14 = widening_matmul(%x, %x) : f32[2, 2]
  %15 = add(%0, %14) : f32[2, 2]
  %16 = cast(%15, dtype=f16) : f16[2, 2]
  %17 = widening_matmul(%x, %x) : f32[2, 2]
  %18 = add(%17, %0) : f32[2, 2]
  %19 = cast(%18, dtype=bf16) : bf16[2, 2]
  %20 = exp(%18) : f32[2, 2]
  %21 = widening_matmul(%x, %x) : f32[2, 2]
  %22 = add(%21, %0) : f32[2, 2]
  %23 = cast(%22, dtype=bf16) : bf16[2, 2]
  %24 = widening_matmul(%x, %v) : f32[2]
  %25 = add(%24, %0) : f32[2]
  %26 = cast(%25, dtype=bf16) : bf16[2]
  return a=%4, b=%7, c=%10, d=%13, e=%16, f=%19, g=%20, h=%21, i=%23, j=%26
}
)",
      multiplied);
}

TEST(MultiplyHalves, LooksThroughShapes) {
  expect_pass(R"(graph m<f16, i64>(%x: f16[6, 4], %k: f16[2, 1, 2, 5]) {
  %0 = cast(%x, dtype=f32) : f32[6, 4]
  %1 = index(%0, index=(1:5,)) : f32[4, 4]
  %2 = reshape(%1, shape=(2, 2, 2, 2)) : f32[2, 2, 2, 2]
  %3 = transpose(%2, axes=(0, 2, 1, 3)) : f32[2, 2, 2, 2]
  %4 = cast(%k, dtype=f32) : f32[2, 1, 2, 5]
  %5 = broadcast_to(%4, shape=(2, 2, 2, 5)) : f32[2, 2, 2, 5]
  %6 = matmul(%3, %5) : f32[2, 2, 2, 5]
  %7 = squeeze(%4, axis=1) : f32[2, 2, 5]
  %8 = matmul(%1, %1) : f32[4, 4]
  return y=%6, k=%7, s=%8
}
)",
              R"(graph m<f16, i64>(%x: f16[6, 4], %k: f16[2, 1, 2, 5]) {
  %0 = cast(%k, dtype=f32) : f32[2, 1, 2, 5]
  %1 = index(%x, index=(1:5,)) : f16[4, 4]
  %2 = reshape(%1, shape=(2, 2, 2, 2)) : f16[2, 2, 2, 2]
  %3 = transpose(%2, axes=(0, 2, 1, 3)) : f16[2, 2, 2, 2]
  %4 = broadcast_to(%k, shape=(2, 2, 2, 5)) : f16[2, 2, 2, 5]
  %5 = widening_matmul(%3, %4) : f32[2, 2, 2, 5]
  %6 = squeeze(%0, axis=1) : f32[2, 2, 5]
  %7 = widening_matmul(%1, %1) : f32[4, 4]
  return y=%5, k=%6, s=%7
}
)",
              multiplied);
}

TEST(MultiplyHalves, LeavesProductsOfOtherTypes) {
  expect_unchanged(
      R"(graph m<f32, i64>(%h: f16[2, 2], %b: bf16[2, 2], %x: f32[2, 2], %n: i8[2, 2], %d: f64[2, 2]) {
  %0 = cast(%h, dtype=f32) : f32[2, 2]
  %1 = cast(%b, dtype=f32) : f32[2, 2]
  %2 = cast(%n, dtype=f32) : f32[2, 2]
  %3 = cast(%h, dtype=f64) : f64[2, 2]
  %4 = negate(%0) : f32[2, 2]
  %5 = matmul(%0, %1) : f32[2, 2]
  %6 = matmul(%0, %x) : f32[2, 2]
  %7 = matmul(%x, %0) : f32[2, 2]
  %8 = matmul(%2, %2) : f32[2, 2]
  %9 = matmul(%3, %3) : f64[2, 2]
  %10 = matmul(%4, %4) : f32[2, 2]
  %11 = matmul(%h, %h) : f16[2, 2]
  return a=%5, b=%6, c=%7, d=%8, e=%9, f=%10, g=%11
}
)",
      multiplied);
}

TEST(MultiplyHalves, LeavesWhatNoKernelTakesAsItIs) {
  for (const ir::Support support : {ir::Support::kNone, ir::Support::kWidened}) {
    expect_unchanged(kLayer, [&](const ir::Graph& graph) {
      return multiply_halves(graph, [&](const ir::Graph&, const ir::Node&) { return support; });
    });
  }
}

TEST(MultiplyHalves, LeavesProductsOfConstantsToThoseWhoComputeThem) {
  const char* const text = R"(graph m<f16, i64>(%x: f16[2, 2]) {
  %0 = constant(value=tensor<f16[2, 2]>(1.0, 2.0, 3.0, 4.0)) : f16[2, 2]
  %1 = cast(%0, dtype=f32) : f32[2, 2]
  %2 = transpose(%1) : f32[2, 2]
  %3 = matmul(%1, %2) : f32[2, 2]
  %4 = cast(%x, dtype=f32) : f32[2, 2]
  %5 = matmul(%4, %2) : f32[2, 2]
  return a=%3, b=%5
}
)";
  expect_pass(text,
              R"(graph m<f16, i64>(%x: f16[2, 2]) {
  %0 = constant(value=tensor<f16[2, 2]>(1.0, 2.0, 3.0, 4.0)) : f16[2, 2]
  %1 = cast(%0, dtype=f32) : f32[2, 2]
  %2 = transpose(%1) : f32[2, 2]
  %3 = matmul(%1, %2) : f32[2, 2]
  %4 = transpose(%0) : f16[2, 2]
  %5 = widening_matmul(%x, %4) : f32[2, 2]
  return a=%3, b=%5
}
)",
              multiplied);
}

TEST(MultiplyHalves, IsPartOfWhatSizesAreKnownFor) {
  const auto specialized = [](const ir::Graph& graph, std::vector<std::string> off) {
    const SupportQuery how = [](const ir::Graph&, const ir::Node& node) {
      return is_product(node) ? ir::Support::kAsIs : ir::Support::kNone;
    };
    PipelineOptions options;
    options.off = std::move(off);
    const ir::Graph out = std::move(specialize(graph, {}, nullptr, options, how)).or_throw();
    return std::count_if(out.nodes.begin(), out.nodes.end(), is_product);
  };
  EXPECT_EQ(specialized(parsed(kLayer), {}), 1);
  EXPECT_EQ(specialized(parsed(kLayer), {"multiply_halves"}), 0);
}

TEST(BiasedMatmul, IsItsBody) {
  expect_pass(R"(graph m<f16, i64>(%x: bf16[2, 3], %w: bf16[3, 4], %b: bf16[4]) {
  %0 = biased_matmul(%x, %w, %b) : bf16[2, 4]
  return y=%0
}
)",
              R"(graph m<f16, i64>(%x: bf16[2, 3], %w: bf16[3, 4], %b: bf16[4]) {
  %0 = cast(%x, dtype=f32) : f32[2, 3]
  %1 = cast(%w, dtype=f32) : f32[3, 4]
  %2 = matmul(%0, %1) : f32[2, 4]
  %3 = cast(%b, dtype=f32) : f32[4]
  %4 = add(%2, %3) : f32[2, 4]
  %5 = cast(%4, dtype=bf16) : bf16[2, 4]
  return y=%5
}
)",
              [](const ir::Graph& graph) { return decompose(graph, ir::Target()); });
}

TEST(WideningMatmul, IsItsBodyAndHasItsType) {
  expect_pass(R"(graph m<f16, i64>(%x: bf16[2, 3], %w: bf16[3, 4], %d: f64[3, 4]) {
  %0 = widening_matmul(%x, %w) : f32[2, 4]
  return y=%0
}
)",
              R"(graph m<f16, i64>(%x: bf16[2, 3], %w: bf16[3, 4], %d: f64[3, 4]) {
  %0 = cast(%x, dtype=f32) : f32[2, 3]
  %1 = cast(%w, dtype=f32) : f32[3, 4]
  %2 = matmul(%0, %1) : f32[2, 4]
  return y=%2
}
)",
              [](const ir::Graph& graph) { return decompose(graph, ir::Target()); });
  ir::Graph wrong = parsed(R"(graph m<f16, i64>(%x: f16[2, 3], %w: f16[3, 4]) {
  %0 = widening_matmul(%x, %w) : f32[2, 4]
  return y=%0
}
)");
  EXPECT_TRUE(ir::verify(wrong).ok());
  wrong.value(wrong.nodes[0].results[0]).type.dtype = core::DType::kFloat16;
  EXPECT_NE(ir::verify(wrong).error().message.find("result 0 is f16[2, 4]"), std::string::npos);
}

}  // namespace
}  // namespace mithril::passes

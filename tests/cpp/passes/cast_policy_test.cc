#include "passes/cast_policy.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> in_bfloat16(const ir::Graph& graph) {
  return cast_policy(graph, core::DType::kBFloat16);
}
core::Result<ir::Graph> in_float32(const ir::Graph& graph) {
  return cast_policy(graph, core::DType::kFloat32);
}

TEST(CastPolicy, ProductsComputeInHalvesAndSoftmaxDoesNot) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[2, 3], %w: f32[3, 4], %b: f32[4]) {
  %0 = matmul(%x, %w) : f32[2, 4]
  %1 = relu(%0) : f32[2, 4]
  %2 = softmax(%1) : f32[2, 4]
  %3 = add(%1, %b) : f32[2, 4]
  return y=%1, p=%2, s=%3
}
)",
              R"(graph m<f32, i64>(%x: f32[2, 3], %w: f32[3, 4], %b: f32[4]) {
  %0 = cast(%x, dtype=bf16) : bf16[2, 3]
  %1 = cast(%w, dtype=bf16) : bf16[3, 4]
  %2 = matmul(%0, %1) : bf16[2, 4]
  %3 = relu(%2) : bf16[2, 4]
  %4 = cast(%3, dtype=f32) : f32[2, 4]
  %5 = softmax(%4) : f32[2, 4]
  %6 = cast(%3, dtype=f32) : f32[2, 4]
  %7 = add(%6, %b) : f32[2, 4]
  %8 = cast(%3, dtype=f32) : f32[2, 4]
  return y=%8, p=%5, s=%7
}
)",
              in_bfloat16);
}

TEST(CastPolicy, LeavesOtherTypesAlone) {
  expect_unchanged(
      R"(graph m<f32, i64>(%x: f64[2, 3], %w: f64[3, 4], %n: i32[2, 2], %h: f16[2, 3]) {
  %0 = matmul(%x, %w) : f64[2, 4]
  %1 = matmul(%n, %n) : i32[2, 2]
  %2 = exp(%h) : f16[2, 3]
  return y=%0, n=%1, h=%2
}
)",
      in_bfloat16);
}

TEST(CastPolicy, WidensHalvesOnceWhereAllIsComputedInFloat32) {
  expect_pass(R"(graph m<f16, i64>(%x: f16[2, 3], %w: f16[3, 4]) {
  %0 = matmul(%x, %w) : f16[2, 4]
  %1 = constant(value=2.0, dtype=f16) : f16[]
  %2 = multiply(%0, %1) : f16[2, 4]
  return y=%2
}
)",
              R"(graph m<f16, i64>(%x: f16[2, 3], %w: f16[3, 4]) {
  %0 = cast(%x, dtype=f32) : f32[2, 3]
  %1 = cast(%w, dtype=f32) : f32[3, 4]
  %2 = matmul(%0, %1) : f32[2, 4]
  %3 = constant(value=2.0, dtype=f16) : f16[]
  %4 = cast(%3, dtype=f32) : f32[]
  %5 = multiply(%2, %4) : f32[2, 4]
  %6 = cast(%5, dtype=f16) : f16[2, 4]
  return y=%6
}
)",
              in_float32);
}

}  // namespace
}  // namespace mithril::passes

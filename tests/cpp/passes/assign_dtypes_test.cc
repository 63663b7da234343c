#include "passes/assign_dtypes.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

using core::DType;

TextPass to(DType real, DType integer) {
  return [=](const ir::Graph& g) { return assign_dtypes(g, real, integer); };
}

TEST(AssignDTypes, WeakScalarsAndIntegersFollowTheFloatOperand) {
  expect_pass(R"(graph m(%x: float[b, 4], %n: int[b, 4]) {
  %0 = multiply(%x, right=2.0) : float[b, 4]  # mlp.scale
  %1 = add(%0, %n) : float[b, 4]
  return y=%1
}
)",
              R"(graph m<f32, i64>(%x: f32[b, 4], %n: i64[b, 4]) {
  %0 = constant(value=2.0, dtype=f32) : f32[]  # mlp.scale
  %1 = multiply(%x, %0) : f32[b, 4]  # mlp.scale
  %2 = cast(%n, dtype=f32) : f32[b, 4]
  %3 = add(%1, %2) : f32[b, 4]
  return y=%3
}
)",
              to(DType::kFloat32, DType::kInt64));
}

TEST(AssignDTypes, IntegersHaveTheWidthOfTheTarget) {
  expect_pass(R"(graph m(%n: int[b, 4]) {
  %0 = multiply(%n, %n) : int[b, 4]
  return y=%0
}
)",
              R"(graph m<f32, i32>(%n: i32[b, 4]) {
  %0 = multiply(%n, %n) : i32[b, 4]
  return y=%0
}
)",
              to(DType::kFloat32, DType::kInt32));
}

TEST(AssignDTypes, KeepsGivenDTypesAndWidensByTheTable) {
  expect_pass(R"(graph m(%a: f16[3], %b: bf16[3], %c: u8[3], %d: i8[3]) {
  %0 = add(%a, %b) : f32[3]
  %1 = add(%c, %d) : i16[3]
  %2 = exp(%c) : float[3]
  %3 = multiply(%a, right=2.0) : f16[3]
  return p=%0, q=%1, r=%2, s=%3
}
)",
              R"(graph m<f64, i32>(%a: f16[3], %b: bf16[3], %c: u8[3], %d: i8[3]) {
  %0 = cast(%a, dtype=f32) : f32[3]
  %1 = cast(%b, dtype=f32) : f32[3]
  %2 = add(%0, %1) : f32[3]
  %3 = cast(%c, dtype=i16) : i16[3]
  %4 = cast(%d, dtype=i16) : i16[3]
  %5 = add(%3, %4) : i16[3]
  %6 = cast(%c, dtype=f64) : f64[3]
  %7 = exp(%6) : f64[3]
  %8 = constant(value=2.0, dtype=f16) : f16[]
  %9 = multiply(%a, %8) : f16[3]
  return p=%2, q=%5, r=%7, s=%9
}
)",
              to(DType::kFloat64, DType::kInt32));
}

TEST(AssignDTypes, ResultsOfBranchesHaveWhatBothPromoteTo) {
  expect_pass(R"(graph m(%x: f32[2], %w: f64[2], %p: bool[]) {
  %0 = cond(%x, %w, %p) : f32[2] {
    graph taken(%k0: f32[2], %k1: f64[2]) {
      return y0=%k0
    }
  } {
    graph other(%k0: f32[2], %k1: f64[2]) {
      return y0=%k1
    }
  }
  return y=%0
}
)",
              R"(graph m<f32, i64>(%x: f32[2], %w: f64[2], %p: bool[]) {
  %0 = cond(%x, %w, %p) : f64[2] {
    graph taken<f32, i64>(%k0: f32[2], %k1: f64[2]) {
      %0 = cast(%k0, dtype=f64) : f64[2]
      return y0=%0
    }
  } {
    graph other<f32, i64>(%k0: f32[2], %k1: f64[2]) {
      return y0=%k1
    }
  }
  return y=%0
}
)",
              to(DType::kFloat32, DType::kInt64));
}

TEST(AssignDTypes, IsIdempotent) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[3]) {
  %0 = exp(%x) : f32[3]
  return y=%0
}
)",
                   to(DType::kFloat32, DType::kInt64));
}

}  // namespace
}  // namespace mithril::passes

// Covers: ir/builder.cc
#include "ir/halves.h"

#include "passes/autodiff.h"
#include "passes/decompose.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> decomposed(const ir::Graph& graph) {
  return decompose(graph, ir::Target{});
}

core::Result<ir::Graph> differentiated(const ir::Graph& graph) {
  DifferentiateOptions options;
  options.keep_outputs = false;
  options.wrt = {"x"};
  options.outputs = {"y"};
  return differentiate(graph, options);
}

TEST(Halves, ABodyComputesInFloat32AndRoundsOnce) {
  expect_pass(R"(graph m<f16, i64>(%x: f16[2, 3]) {
  %0 = rms_norm(%x, eps=1e-12, use_scale=false) : f16[2, 3]
  return y=%0
}
)",
              R"(graph m<f16, i64>(%x: f16[2, 3]) {
  %0 = cast(%x, dtype=f32) : f32[2, 3]
  %1 = square(%0) : f32[2, 3]
  %2 = sum(%1, axis=-1, keepdim=true) : f32[2, 1]
  %3 = constant(value=3, dtype=f32) : f32[]
  %4 = divide(%2, %3) : f32[2, 1]
  %5 = constant(value=1e-12, dtype=f32) : f32[]
  %6 = add(%4, %5) : f32[2, 1]
  %7 = rsqrt(%6) : f32[2, 1]
  %8 = multiply(%0, %7) : f32[2, 3]
  %9 = cast(%8, dtype=f16) : f16[2, 3]
  return y=%9
}
)",
              decomposed);
}

TEST(Halves, ABodyThatRoundsOnceAnywayStays) {
  expect_pass(R"(graph m<bf16, i64>(%x: bf16[b, 3], %w: bf16[2, 3]) {
  %0 = linear(%w, %x, use_bias=false) : bf16[b, 2]
  return y=%0
}
)",
              R"(graph m<bf16, i64>(%x: bf16[b, 3], %w: bf16[2, 3]) {
  %0 = swapaxes(%w, axis1=0, axis2=1) : bf16[3, 2]
  %1 = matmul(%x, %0) : bf16[b, 2]
  return y=%1
}
)",
              decomposed);
}

TEST(Halves, CountsAreNoHalves) {
  expect_pass(R"(graph m<f16, i64>(%x: f16[70000]) {
  %0 = mean(%x, axis=none, keepdim=false) : f16[]
  return y=%0
}
)",
              R"(graph m<f16, i64>(%x: f16[70000], %cotangent.y: f16[] cotangent) {
  %0 = mean(%x) : f16[]
  %1 = cast(%x, dtype=f32) : f32[70000]
  %2 = cast(%cotangent.y, dtype=f32) : f32[]
  %3 = constant(value=70000, dtype=f32) : f32[]
  %4 = reshape(%2, shape=(1,)) : f32[1]
  %5 = divide(%4, %3) : f32[1]
  %6 = broadcast_like(%5, %1) : f32[70000]
  %7 = cast(%6, dtype=f16) : f16[70000]
  return grad.x=%7
}
)",
              differentiated);
}

TEST(Halves, ARuleReadsTheResultBeforeItWasRounded) {
  expect_pass(R"(graph m<f16, i64>(%x: f16[4]) {
  %0 = tanh(%x) : f16[4]
  return y=%0
}
)",
              R"(graph m<f16, i64>(%x: f16[4], %cotangent.y: f16[4] cotangent) {
  %0 = tanh(%x) : f16[4]
  %1 = cast(%x, dtype=f32) : f32[4]
  %2 = cast(%cotangent.y, dtype=f32) : f32[4]
  %3 = tanh(%1) : f32[4]
  %4 = square(%3) : f32[4]
  %5 = constant(value=1.0, dtype=f32) : f32[]
  %6 = subtract(%5, %4) : f32[4]
  %7 = multiply(%2, %6) : f32[4]
  %8 = cast(%7, dtype=f16) : f16[4]
  return grad.x=%8
}
)",
              differentiated);
}

TEST(Halves, CotangentsAreAddedInFloat32) {
  expect_pass(
      R"(graph m<bf16, i64>(%x: bf16[4], %a: bf16[4], %b: bf16[4]) {
  %0 = multiply(%x, %a) : bf16[4]
  %1 = multiply(%x, %b) : bf16[4]
  %2 = add(%0, %1) : bf16[4]
  return y=%2
}
)",
      R"(graph m<bf16, i64>(%x: bf16[4], %a: bf16[4], %b: bf16[4], %cotangent.y: bf16[4] cotangent) {
  %0 = multiply(%x, %a) : bf16[4]
  %1 = multiply(%x, %b) : bf16[4]
  %2 = add(%0, %1) : bf16[4]
  %3 = multiply(%cotangent.y, %b) : bf16[4]
  %4 = multiply(%cotangent.y, %a) : bf16[4]
  %5 = cast(%3, dtype=f32) : f32[4]
  %6 = cast(%4, dtype=f32) : f32[4]
  %7 = add(%5, %6) : f32[4]
  %8 = cast(%7, dtype=bf16) : bf16[4]
  return grad.x=%8
}
)",
      differentiated);
}

TEST(Halves, WhatAttentionKeepsForItsGradientsIsFloat32) {
  expect_pass(
      R"(graph m<bf16, i64>(%x: bf16[9, 4], %k: bf16[12, 4]) {
  %0 = plain_attention(%x, %k, %k) : bf16[9, 4]
  return y=%0
}
)",
      R"(graph m<bf16, i64>(%x: bf16[9, 4], %k: bf16[12, 4], %cotangent.y: bf16[9, 4] cotangent) {
  %0 = plain_attention(%x, %k, %k) : bf16[9, 4]
  %1, %2 = attention_with_logsumexp(%x, %k, %k) : f32[9, 4], f32[9]
  %3, %4, %5 = attention_grad(%x, %k, %k, _, _, _, %1, %2, %cotangent.y) : f32[9, 4], f32[12, 4], f32[12, 4]
  %6 = cast(%3, dtype=bf16) : bf16[9, 4]
  return grad.x=%6
}
)",
      differentiated);
}

TEST(Halves, SingleRoundingsHaveRulesInHalves) {
  expect_pass(
      R"(graph m<f16, i64>(%x: f16[2, 4], %k: f16[4, 3]) {
  %0 = matmul(%x, %k) : f16[2, 3]
  return y=%0
}
)",
      R"(graph m<f16, i64>(%x: f16[2, 4], %k: f16[4, 3], %cotangent.y: f16[2, 3] cotangent) {
  %0 = matmul(%x, %k) : f16[2, 3]
  %1 = swapaxes(%k, axis1=-1, axis2=-2) : f16[3, 4]
  %2 = matmul(%cotangent.y, %1) : f16[2, 4]
  return grad.x=%2
}
)",
      differentiated);
}

// Values that are rounded side by side give each other's gradients something to add up.
TEST(Halves, ABodyOfSeveralRoundingsSideBySideIsInFloat32) {
  const ir::Graph graph = std::move(ir::parse(R"(graph m<f16, i64>(%x: f16[4, 2]) {
  %0 = polynomial_features(%x, degree=2) : f16[4, 5]
  return y=%0
})"))
                              .or_throw();
  const std::string text = ir::print(std::move(decomposed(graph)).or_throw());
  EXPECT_NE(text.find("cast(%x, dtype=f32)"), std::string::npos) << text;
}

// 70,000 is infinite in float16, and the sum need not be.
TEST(Halves, ANumberBeyondAHalfIsTakenInFloat32) {
  ir::Graph graph =
      std::move(ir::parse("graph m<f16, i64>(%x: f16[4]) {\n  return y=%x\n}\n")).or_throw();
  ir::Builder b(graph);
  const ir::Value sum = b.call("add", std::vector<ir::Operand>{b.value(0), 70000.0});
  const ir::Value near = b.call("add", std::vector<ir::Operand>{b.value(0), 65504.0});
  ASSERT_TRUE(b.status().ok());
  EXPECT_EQ(sum.dtype(), core::DType::kFloat16);
  EXPECT_EQ(near.dtype(), core::DType::kFloat16);
  graph.outputs = {{"y", sum.id}, {"z", near.id}};
  EXPECT_EQ(ir::print(graph), R"(graph m<f16, i64>(%x: f16[4]) {
  %0 = cast(%x, dtype=f32) : f32[4]
  %1 = constant(value=70000.0, dtype=f32) : f32[]
  %2 = add(%0, %1) : f32[4]
  %3 = cast(%2, dtype=f16) : f16[4]
  %4 = constant(value=65504.0, dtype=f16) : f16[]
  %5 = add(%x, %4) : f16[4]
  return y=%3, z=%5
}
)");
}

tile::Program body_of(const char* op, core::DType dtype) {
  tile::Builder t;
  const std::vector<tile::Reg> operands{t.load(dtype)};
  t.store(ir::pointwise(t, *ir::Registry::global().find(op), {operands, {}, dtype}));
  return t.finish();
}

// All of it between a cast from the half and one to it.
TEST(Halves, ATileBodyOfSeveralRoundingsIsInFloat32) {
  for (const char* op : {"asinh", "sinh", "acosh", "tan", "mish"}) {
    for (const core::DType dtype : {core::DType::kFloat16, core::DType::kBFloat16}) {
      const tile::Program program = body_of(op, dtype);
      int halves = 0;
      for (const tile::Instruction& i : program.code) halves += i.dtype == dtype ? 1 : 0;
      EXPECT_EQ(halves, 3) << op;  // the load, the last cast, the store
    }
  }
}

TEST(Halves, ATileBodyOfOneRoundingIsAsItWas) {
  for (const char* op : {"exp", "sqrt", "negate", "abs", "relu", "silu"}) {
    for (const tile::Instruction& i : body_of(op, core::DType::kFloat16).code) {
      EXPECT_NE(i.dtype, core::DType::kFloat32) << op;
    }
  }
}

}  // namespace
}  // namespace mithril::passes

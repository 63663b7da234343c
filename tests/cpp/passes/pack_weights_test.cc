#include "passes/pack_weights.h"

#include "ir/registry.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

using core::WeightFormat;

std::string zeros(int64_t rows, int64_t columns) {
  std::string out = fmt::format("constant(value=tensor<f32[{}, {}]>(", rows, columns);
  for (int64_t i = 0; i < rows * columns; ++i) out += i == 0 ? "0.0" : ", 0.0";
  return fmt::format("{})) : f32[{}, {}]", out, rows, columns);
}

// Printed packed literals cannot be read back: texts are compared alone.
void expect_packed(const std::string& before, std::string_view after,
                   WeightFormat format = WeightFormat::kInt8) {
  const ir::Graph out = std::move(pack_weights(parsed(before), format)).or_throw();
  EXPECT_EQ(ir::print(out), after);
  EXPECT_TRUE(ir::verify(out).ok());
}

TEST(PackWeights, PacksWhatProductsMultiplyBy) {
  expect_packed("graph m<f32, i64>(%x: f32[4, 32]) {\n  %0 = " + zeros(32, 16) + R"(
  %1 = matmul(%x, %0) : f32[4, 16]
  return y=%1
}
)",
                R"(graph m<f32, i64>(%x: f32[4, 32]) {
  %0 = constant(value=tensor<f32[32, 16]>(int8)) : f32[32, 16]
  %1 = matmul(%x, %0) : f32[4, 16]
  return y=%1
}
)");
}

TEST(PackWeights, TransposesGo) {
  for (const char* turn : {"swapaxes(%0, axis1=0, axis2=1)", "swapaxes(%0, axis1=-1, axis2=0)",
                           "transpose(%0, axes=(1, 0))"}) {
    expect_packed("graph m<f32, i64>(%x: f32[4, 32]) {\n  %0 = " + zeros(64, 32) + R"(
  %1 = )" + turn + R"( : f32[32, 64]
  %2 = matmul(%x, %1) : f32[4, 64]
  return y=%2
}
)",
                  R"(graph m<f32, i64>(%x: f32[4, 32]) {
  %0 = constant(value=tensor<f32[32, 64]>(int4)) : f32[32, 64]
  %1 = matmul(%x, %0) : f32[4, 64]
  return y=%1
}
)",
                  WeightFormat::kInt4);
  }
}

TEST(PackWeights, ParametersBecomeInputsOfTheirOwn) {
  const auto [graph, weights] =
      std::move(separate_weights(parsed(
                    R"(graph m<f32, i64>(%x: f32[4, 32], %w: f32[64, 32] param) {
  %0 = swapaxes(%w, axis1=0, axis2=1) : f32[32, 64]
  %1 = matmul(%x, %0) : f32[4, 64]
  %2 = sum(%w) : f32[]
  return y=%1, s=%2
}
)")))
          .or_throw();
  ASSERT_EQ(weights.size(), 1U);
  EXPECT_EQ(weights[0].input, 1);
  EXPECT_TRUE(weights[0].transposed);
  EXPECT_EQ(ir::print(graph),
            R"(graph m<f32, i64>(%x: f32[4, 32], %w: f32[64, 32] param, %$w.T: f32[32, 64]) {
  %0 = matmul(%x, %$w.T) : f32[4, 64]
  %1 = sum(%w) : f32[]
  return y=%0, s=%1
}
)");
}

TEST(PackWeights, OtherReadersKeepTheirs) {
  const std::string kept = zeros(32, 32);
  expect_packed("graph m<f32, i64>(%x: f32[4, 32]) {\n  %0 = " + kept + R"(
  %1 = matmul(%x, %0) : f32[4, 32]
  %2 = swapaxes(%0, axis1=0, axis2=1) : f32[32, 32]
  %3 = matmul(%1, %2) : f32[4, 32]
  %4 = matmul(%3, %0) : f32[4, 32]
  %5 = matmul(%0, %0) : f32[32, 32]
  return y=%4, z=%5
}
)",
                "graph m<f32, i64>(%x: f32[4, 32]) {\n  %0 = " + kept + R"(
  %1 = constant(value=tensor<f32[32, 32]>(bfloat16)) : f32[32, 32]
  %2 = matmul(%x, %1) : f32[4, 32]
  %3 = constant(value=tensor<f32[32, 32]>(bfloat16)) : f32[32, 32]
  %4 = matmul(%2, %3) : f32[4, 32]
  %5 = matmul(%4, %1) : f32[4, 32]
  %6 = matmul(%0, %0) : f32[32, 32]
  return y=%5, z=%6
}
)",
                WeightFormat::kBFloat16);
}

// Panels of 16 columns and blocks of 32 rows are filled up: small matrices would grow.
TEST(PackWeights, WhatWouldGainNothingStays) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{32, 2}, {3, 16}, {0, 16}}) {
    const std::string text = fmt::format(
        "graph m<f32, i64>(%x: f32[4, {}]) {{\n  %0 = {}\n"
        "  %1 = matmul(%x, %0) : f32[4, {}]\n  return y=%1\n}}\n",
        k, zeros(k, n), n);
    expect_unchanged(
        text, [](const ir::Graph& graph) { return pack_weights(graph, WeightFormat::kInt8); });
  }
}

TEST(PackLiterals, GivesWhatOneOrientationOfProductsReadsAlone) {
  const std::string matrix = zeros(32, 32);
  const std::string begin = "graph m<f32, i64>(%x: f32[4, 32]) {\n  %0 = " + matrix + "\n";
  const auto literal_of = [](const ir::Graph& graph) {
    return graph.nodes[0].attrs.find("value")->as_tensor();
  };
  const auto packed = [&](const std::string& rest) {
    const ir::Graph graph = parsed(begin + rest);
    const std::vector<std::shared_ptr<const core::TensorData>> literals = {literal_of(graph)};
    return pack_literals(graph, literals, WeightFormat::kInt8).or_throw()[0];
  };
  const auto plain = packed("  %1 = matmul(%x, %0) : f32[4, 32]\n  return y=%1\n}\n");
  ASSERT_NE(plain, nullptr);
  EXPECT_FALSE(plain->packed.transposed);
  const auto turned = packed(
      "  %1 = swapaxes(%0, axis1=0, axis2=1) : f32[32, 32]\n"
      "  %2 = matmul(%x, %1) : f32[4, 32]\n  return y=%2\n}\n");
  ASSERT_NE(turned, nullptr);
  EXPECT_TRUE(turned->packed.transposed);
  EXPECT_EQ(packed("  %1 = swapaxes(%0, axis1=0, axis2=1) : f32[32, 32]\n"
                   "  %2 = matmul(%x, %1) : f32[4, 32]\n"
                   "  %3 = matmul(%2, %0) : f32[4, 32]\n  return y=%3\n}\n"),
            nullptr);
  EXPECT_EQ(packed("  %1 = matmul(%x, %0) : f32[4, 32]\n"
                   "  %2 = add(%0, %0) : f32[32, 32]\n  return y=%1, z=%2\n}\n"),
            nullptr);
  EXPECT_EQ(packed("  %1 = matmul(%x, %0) : f32[4, 32]\n  return y=%1, z=%0\n}\n"), nullptr);
}

// What is packed already is shared by every program that reads it.
TEST(PackWeights, PacksNothingTwice) {
  const ir::Graph graph = parsed("graph m<f32, i64>(%x: f32[4, 32]) {\n  %0 = " + zeros(32, 16) +
                                 "\n  %1 = matmul(%x, %0) : f32[4, 16]\n  return y=%1\n}\n");
  const ir::Graph once = pack_weights(graph, WeightFormat::kInt8).or_throw();
  const ir::Graph twice = pack_weights(once, WeightFormat::kInt8).or_throw();
  const auto matrix = [](const ir::Graph& g) {
    return g.nodes[0].attrs.find("value")->as_tensor()->packed.matrix;
  };
  EXPECT_NE(matrix(once), nullptr);
  EXPECT_EQ(matrix(once), matrix(twice));
}

}  // namespace
}  // namespace mithril::passes

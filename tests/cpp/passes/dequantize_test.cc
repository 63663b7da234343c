#include "passes/dequantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/registry.h"
#include "ir/text.h"

namespace mithril::passes {
namespace {

using core::PackedMatrix;
using core::WeightFormat;

// The graph of a matrix whose element (i, j) is i - 20 j.
ir::Graph graph_of(WeightFormat format, int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(static_cast<float>(i / columns - 20 * (i % columns)));
  }
  const core::MatrixView view = {values.data(), rows, columns, columns, 1};
  const auto matrix = std::move(PackedMatrix::pack(format, view)).or_throw();
  ir::Graph graph;
  ir::Builder builder(graph);
  builder.output("w", dequantized(builder, *matrix));
  EXPECT_TRUE(builder.status().ok());
  EXPECT_TRUE(ir::verify(graph).ok());
  return graph;
}

std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> out;
  for (const ir::Node& node : graph.nodes) {
    out.emplace_back(ir::Registry::global().get(node.op).name);
  }
  return out;
}

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Dequantize, IntegersAreScaledByBlocks) {
  const ir::Graph graph = graph_of(WeightFormat::kInt8, 64, 2);
  EXPECT_THAT(ops_of(graph),
              ElementsAre("constant", "cast", "constant", "cast", "multiply", "reshape"));
  const std::string text = ir::print(graph);
  EXPECT_THAT(text, HasSubstr("i8[2, 32, 2]"));
  EXPECT_THAT(text, HasSubstr("bf16[2, 1, 2]"));
  EXPECT_THAT(text, HasSubstr(": f32[64, 2]"));
}

TEST(Dequantize, TwoOfFourBitsAreOneByte) {
  const std::string text = ir::print(graph_of(WeightFormat::kInt4, 32, 3));
  EXPECT_THAT(text, HasSubstr("i8[1, 16, 3]"));
  EXPECT_THAT(text, HasSubstr("floor_divide"));
  EXPECT_THAT(text, HasSubstr(": f32[32, 3]"));
}

TEST(Dequantize, RowsBehindTheLastBlockFollow) {
  for (const int64_t rows : {33, 5}) {
    for (const WeightFormat format :
         {WeightFormat::kInt4, WeightFormat::kInt8, WeightFormat::kInt16}) {
      const std::string text = ir::print(graph_of(format, rows, 2));
      EXPECT_THAT(text, HasSubstr(fmt::format(": f32[{}, 2]", rows)));
    }
  }
}

TEST(Dequantize, BFloat16IsCast) {
  const ir::Graph graph = graph_of(WeightFormat::kBFloat16, 40, 2);
  EXPECT_THAT(ops_of(graph), ElementsAre("constant", "cast", "reshape"));
}

}  // namespace
}  // namespace mithril::passes

#include "passes/fold_constants.h"

#include "core/tensor_data.h"
#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

// Stands for a backend: every output is filled with 7.
core::Result<std::vector<std::shared_ptr<const core::TensorData>>> sevens(const ir::Graph& graph) {
  EXPECT_TRUE(graph.inputs.empty());
  std::vector<std::shared_ptr<const core::TensorData>> out;
  for (const ir::Output& output : graph.outputs) {
    auto data = std::make_shared<core::TensorData>();
    data->dtype = graph.type(output.value).dtype;
    data->shape = ir::static_dims(graph.type(output.value).shape);
    int64_t count = 1;
    for (const int64_t size : data->shape) count *= size;
    for (int64_t i = 0; i < count; ++i) core::append_element(*data, core::HostValue(7.0));
    out.push_back(std::move(data));
  }
  return out;
}

core::Result<ir::Graph> folded(const ir::Graph& graph) {
  MITHRIL_ASSIGN(const ir::Graph out, fold_constants(graph, sevens));
  return remove_dead(out);
}

TEST(FoldConstants, NarrowIntegersStay) {
  std::string numbers = "1";
  for (int i = 1; i < 300; ++i) numbers += ", 1";
  expect_unchanged("graph m<f32, i64>(%x: f32[300]) {\n  %0 = constant(value=tensor<i8[300]>(" +
                       numbers + R"()) : i8[300]
  %1 = cast(%0, dtype=f32) : f32[300]
  %2 = multiply(%x, %1) : f32[300]
  return y=%2
}
)",
                   folded);
}

TEST(FoldConstants, ComputesWhatDependsOnConstantsOnly) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[2]) {
  %0 = constant(value=tensor<f32[2]>(1.0, 2.0)) : f32[2]
  %1 = exp(%0) : f32[2]
  %2 = sum(%1) : f32[]
  %3 = multiply(%x, %1) : f32[2]
  %4 = add(%3, %2) : f32[2]
  return y=%4
}
)",
              R"(graph m<f32, i64>(%x: f32[2]) {
  %0 = constant(value=tensor<f32[2]>(7.0, 7.0)) : f32[2]
  %1 = constant(value=7.0, dtype=f32) : f32[]
  %2 = multiply(%x, %0) : f32[2]
  %3 = add(%2, %1) : f32[2]
  return y=%3
}
)",
              folded);
}

// A product reads a transposed matrix where it lies; others would copy it in every run.
TEST(FoldConstants, LeavesTransposesThatOnlyProductsRead) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[4, 3]) {
  %0 = constant(value=tensor<f32[2, 3]>(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)) : f32[2, 3]
  %1 = exp(%0) : f32[2, 3]
  %2 = swapaxes(%1, axis1=0, axis2=1) : f32[3, 2]
  %3 = matmul(%x, %2) : f32[4, 2]
  return y=%3
}
)",
              R"(graph m<f32, i64>(%x: f32[4, 3]) {
  %0 = constant(value=tensor<f32[2, 3]>(7.0, 7.0, 7.0, 7.0, 7.0, 7.0)) : f32[2, 3]
  %1 = swapaxes(%0, axis1=0, axis2=1) : f32[3, 2]
  %2 = matmul(%x, %1) : f32[4, 2]
  return y=%2
}
)",
              folded);
  expect_pass(R"(graph m<f32, i64>(%x: f32[4, 3]) {
  %0 = constant(value=tensor<f32[2, 3]>(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)) : f32[2, 3]
  %1 = swapaxes(%0, axis1=0, axis2=1) : f32[3, 2]
  %2 = matmul(%x, %1) : f32[4, 2]
  return y=%2, t=%1
}
)",
              R"(graph m<f32, i64>(%x: f32[4, 3]) {
  %0 = constant(value=tensor<f32[3, 2]>(7.0, 7.0, 7.0, 7.0, 7.0, 7.0)) : f32[3, 2]
  %1 = matmul(%x, %0) : f32[4, 2]
  return y=%1, t=%0
}
)",
              folded);
}

TEST(FoldConstants, LeavesTransposesOfHalves) {
  expect_pass(R"(graph m<f32, i64>(%x: f16[4, 3]) {
  %0 = constant(value=tensor<f16[2, 3]>(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)) : f16[2, 3]
  %1 = exp(%0) : f16[2, 3]
  %2 = transpose(%1) : f16[3, 2]
  %3 = widening_matmul(%x, %2) : f32[4, 2]
  return y=%3
}
)",
              R"(graph m<f32, i64>(%x: f16[4, 3]) {
  %0 = constant(value=tensor<f16[2, 3]>(7.0, 7.0, 7.0, 7.0, 7.0, 7.0)) : f16[2, 3]
  %1 = transpose(%0) : f16[3, 2]
  %2 = widening_matmul(%x, %1) : f32[4, 2]
  return y=%2
}
)",
              folded);
}

TEST(FoldConstants, LeavesWhatOnlyRepeats) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[2, 3]) {
  %0 = constant(value=2.0, dtype=f32) : f32[]
  %1 = broadcast_to(%0, shape=(2, 3)) : f32[2, 3]
  %2 = add(%x, %1) : f32[2, 3]
  return y=%2
}
)",
                   folded);
}

TEST(FoldConstants, ComputesAFewElementsOfNothing) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[3]) {
  %0 = full(shape=(), value=2.0, dtype=f32) : f32[]
  %1 = arange(stop=3, dtype=f32) : f32[3]
  %2 = multiply(%0, %1) : f32[3]
  %3 = add(%x, %2) : f32[3]
  return y=%3
}
)",
              R"(graph m<f32, i64>(%x: f32[3]) {
  %0 = constant(value=tensor<f32[3]>(7.0, 7.0, 7.0)) : f32[3]
  %1 = add(%x, %0) : f32[3]
  return y=%1
}
)",
              folded);
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[1, 257]) {
  %0 = full(shape=(2, 1), value=2.0, dtype=f32) : f32[2, 1]
  %1 = arange(stop=257, dtype=f32) : f32[257]
  %2 = add(%x, %0) : f32[2, 257]
  %3 = add(%2, %1) : f32[2, 257]
  return y=%3
}
)",
                   folded);
}

TEST(FoldConstants, LeavesTheGraphWhenTheTargetCannotRunIt) {
  const ir::Graph graph = parsed(R"(graph m<f32, i64>(%x: f32[]) {
  %0 = constant(value=2.0, dtype=f32) : f32[]
  %1 = exp(%0) : f32[]
  %2 = add(%x, %1) : f32[]
  return y=%2
}
)");
  const Evaluate refuse = [](const ir::Graph&) {
    return core::Result<std::vector<std::shared_ptr<const core::TensorData>>>(
        core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported, "no"));
  };
  EXPECT_EQ(ir::print(std::move(fold_constants(graph, refuse)).or_throw()), ir::print(graph));
}

}  // namespace
}  // namespace mithril::passes

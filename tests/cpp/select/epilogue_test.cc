#include "select/epilogue.h"

#include "ir/registry.h"
#include "passes/text_pass.h"
#include "select/selection_report.h"

namespace mithril::select {
namespace {

Fusion attached(const ir::Graph& graph, size_t most_operands = kAnyOperands) {
  Fusion fusion = fuse(graph);
  const auto support = [](const ir::Node& node) {
    const std::string& op = ir::Registry::global().get(node.op).name;
    return op == "matmul"           ? EpilogueSupport::kBlocks
           : op == "embedding_grad" ? EpilogueSupport::kRows
                                    : EpilogueSupport::kNothing;
  };
  attach_epilogues(graph, fusion, support, most_operands);
  return fusion;
}

// "matmul+add+relu | sum": the steps; "*" where the product is kept.
std::string attached_groups(std::string_view text) {
  const ir::Graph graph = passes::parsed(text);
  std::string out;
  for (const Group& group : attached(graph).groups) {
    if (!out.empty()) out += " | ";
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      out += (i == 0 ? "" : "+") + ir::Registry::global().get(graph.node(group.nodes[i]).op).name;
      if (group.nodes[i] == group.product && group.keeps_product) out += "*";
    }
  }
  return out;
}

std::vector<std::string> last_attached_notes(std::string_view text) {
  const ir::Graph graph = passes::parsed(text);
  const Fusion fusion = attached(graph);
  const std::vector<bool> steps(fusion.groups.size(), true);
  return report_of(graph, fusion, static_cast<int32_t>(fusion.groups.size()) - 1, steps).notes;
}

using AttachedNotes = std::vector<std::string>;

TEST(Epilogue, IsTheLoopThatReadsAProduct) {
  const char* text = R"(graph m<f32, i64>(%x: f32[4, 5], %w: f32[5, 6], %b: f32[6]) {
  %0 = matmul(%x, %w) : f32[4, 6]
  %1 = add(%0, %b) : f32[4, 6]
  %2 = relu(%1) : f32[4, 6]
  return y=%2
}
)";
  EXPECT_EQ(attached_groups(text), "matmul+add+relu");
  EXPECT_EQ(last_attached_notes(text),
            AttachedNotes{"matmul is finished block by block with what follows it"});
  const ir::Graph graph = passes::parsed(text);
  const Fusion fusion = attached(graph);
  EXPECT_EQ(fusion.groups[0].product, 0);
  EXPECT_FALSE(fusion.groups[0].keeps_product);
  EXPECT_EQ(fusion.groups[0].outputs, std::vector<ir::ValueId>{graph.nodes[2].results[0]});
  EXPECT_EQ(fusion.group_of, (std::vector<int32_t>{0, 0, 0}));
}

TEST(Epilogue, OfTwoProductsTheLastOneTakesIt) {
  EXPECT_EQ(attached_groups(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = matmul(%0, %x) : f32[4, 4]
  %2 = add(%0, %1) : f32[4, 4]
  return y=%2
}
)"),
            "matmul | matmul+add");
}

TEST(Epilogue, WaitsForItsOtherOperands) {
  EXPECT_EQ(attached_groups(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = sum(%x, axis=(0,)) : f32[4]
  %2 = add(%0, %1) : f32[4, 4]
  return y=%2
}
)"),
            "sum | matmul+add");
}

// Both factors, the product, a bias and the result.
TEST(Epilogue, HasNoMoreOperandsThanAKernelTakes) {
  const ir::Graph graph =
      passes::parsed(R"(graph m<f32, i64>(%x: f32[4, 5], %w: f32[5, 6], %b: f32[6]) {
  %0 = matmul(%x, %w) : f32[4, 6]
  %1 = add(%0, %b) : f32[4, 6]
  return y=%1
}
)");
  EXPECT_EQ(attached(graph, 5).groups.size(), 1U);
  const Fusion apart = attached(graph, 4);
  ASSERT_EQ(apart.groups.size(), 2U);
  EXPECT_EQ(apart.groups[1].blocker, FusionBlocker::kManyOperands);
}

TEST(Epilogue, IsNothingThatKernelsDoNotTake) {
  const ir::Graph graph = passes::parsed(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = relu(%0) : f32[4, 4]
  return y=%1
}
)");
  Fusion fusion = fuse(graph);
  attach_epilogues(
      graph, fusion, [](const ir::Node&) { return EpilogueSupport::kBlocks; }, kAnyOperands,
      [](const Group& loop) { return loop.nodes.size() > 1; });
  ASSERT_EQ(fusion.groups.size(), 2U);
  EXPECT_EQ(fusion.groups[1].blocker, FusionBlocker::kNotOfKernels);
}

TEST(Epilogue, KeepsAProductThatOthersRead) {
  EXPECT_EQ(attached_groups(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = relu(%0) : f32[4, 4]
  return y=%1, z=%0
}
)"),
            "matmul*+relu");
  EXPECT_EQ(attached_groups(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = relu(%0) : f32[4, 4]
  %2 = matmul(%0, %1) : f32[4, 4]
  return y=%2
}
)"),
            "matmul*+relu | matmul");
}

TEST(Epilogue, SaysWhyALoopIsNone) {
  EXPECT_EQ(last_attached_notes(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = sum(%0, axis=(1,)) : f32[4]
  return y=%1
}
)"),
            AttachedNotes{
                "sum is not fused with matmul: it reduces, and that kernel finishes a block at a "
                "time"});
  EXPECT_EQ(last_attached_notes(R"(graph m<f32, i64>(%x: f32[4, 4], %y: f32[2, 4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = add(%0, %y) : f32[2, 4, 4]
  return y=%1
}
)"),
            AttachedNotes{"add is not fused with matmul: it does not read those results element by "
                          "element"});
  EXPECT_EQ(last_attached_notes(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = matmul(%x, %x) : f32[4, 4]
  %1 = matmul(%0, %x) : f32[4, 4]
  %2 = relu(%0) : f32[4, 4]
  return y=%2, z=%1
}
)"),
            AttachedNotes{"relu is not fused with matmul: those results are read before"});
  EXPECT_EQ(
      last_attached_notes(R"(graph m<f32, i64>(%x: f32[4]) {
  %0 = matmul(%x, %x) : f32[]
  %1 = relu(%0) : f32[]
  return y=%1
}
)"),
      AttachedNotes{"relu is not fused with matmul: it depends on places, or is a single number"});
  EXPECT_EQ(last_attached_notes(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = sort(%x, axis=1) : f32[4, 4]
  %1 = relu(%0) : f32[4, 4]
  return y=%1
}
)"),
            AttachedNotes{"relu is not fused with sort: that kernel gives its results as a whole"});
}

// Rows are in one sweep anyhow, however many arrays there are, but nowhere for others to read.
TEST(Epilogue, FinishesRowsThatNobodyElseReads) {
  const auto update = [](std::string_view outputs) {
    return fmt::format(R"(graph m<f32, i64>(%v: f32[9, 1024], %i: i64[9], %p: f32[2048, 1024],
  %m: f32[2048, 1024]) {{
  %0 = embedding_grad(%v, %i, shape=(2048, 1024)) : f32[2048, 1024]
  %1 = add(%0, %m) : f32[2048, 1024]
  %2 = subtract(%p, %1) : f32[2048, 1024]
  return m=%1, p=%2{}
}}
)",
                       outputs);
  };
  EXPECT_EQ(attached_groups(update("")), "embedding_grad+add+subtract");
  EXPECT_EQ(attached_groups(update(", g=%0")), "embedding_grad | add+subtract");
}

// An update of a parameter by its gradient, which memory bounds: small ones only.
TEST(Epilogue, ManyLargeArraysAreReadInOneSweep) {
  const auto update = [](std::string_view size) {
    std::string text = R"(graph m<f32, i64>(%x: f32[N, 1], %y: f32[1, N], %p: f32[N, N],
  %m: f32[N, N]) {
  %0 = matmul(%x, %y) : f32[N, N]
  %1 = add(%0, %m) : f32[N, N]
  %2 = subtract(%p, %1) : f32[N, N]
  return m=%1, p=%2
}
)";
    for (size_t at; (at = text.find('N')) != std::string::npos;) text.replace(at, 1, size);
    return text;
  };
  EXPECT_EQ(attached_groups(update("16")), "matmul+add+subtract");
  EXPECT_EQ(attached_groups(update("1024")), "matmul | add+subtract");
  EXPECT_EQ(last_attached_notes(update("1024")),
            AttachedNotes{
                "add is not fused with matmul: it reads and writes so many large arrays that it "
                "is faster in one sweep"});
}

}  // namespace
}  // namespace mithril::select

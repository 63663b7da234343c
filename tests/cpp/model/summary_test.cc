#include "model/summary.h"

#include <gtest/gtest.h>

#include "build.h"

namespace mithril::model {
namespace {

using test::at;
using test::leaf;
using test::linear;

Model two_layers() {
  Model model("mlp");
  model.extend(linear(8), at({{"input", "x"}}));
  model.extend(leaf("add"), {{"right", Argument::of(HostValue(2.0))}}, Chain::kCanonical);
  model.extend(leaf("softmax"), at({{"output", "y"}}), Chain::kCanonical);
  model.set_shapes({{"x", {infer::TemplateItem::symbol("N"), infer::TemplateItem::of(4)}}});
  return model;
}

TEST(Summary, Text) {
  const SummaryOptions options{.types = true, .symbolic = true};
  EXPECT_EQ("\n" + print_summary(summarize(two_layers(), options), options), R"(
                              mlp
----------------------------------------------------------------
Model Name  Keys      Shapes  Types                Connections
----------------------------------------------------------------
Linear      Inputs:
              weight  [8, 4]  Tensor[float]        '$weight'
              input   [N, 4]  Tensor[int | float]  'x'
              bias    [8]     Tensor[float]        '$bias'
            Outputs:
              output  [N, 8]  Tensor[float]        Add.left
----------------------------------------------------------------
Add         Inputs:
              left    [N, 8]  Tensor[float]        Linear.output
              right   --      float                2.0
            Outputs:
              output  [N, 8]  Tensor[float]        Softmax.input
----------------------------------------------------------------
Softmax     Inputs:
              input   [N, 8]  Tensor[float]        Add.output
              axis    --      int                  -1
            Outputs:
              output  [N, 8]  Tensor[float]        'y'
----------------------------------------------------------------
)");
}

TEST(Summary, SizesThatAreNotShown) {
  const auto tables = summarize(two_layers());
  EXPECT_EQ(tables[0].blocks[0].rows[1].shapes[0], (test::Strings{"None", "4"}));
  EXPECT_EQ(tables[0].blocks[0].rows[1].connections, test::Strings{"'x'"});
}

TEST(Summary, Depth) {
  Model outer;
  outer.extend(two_layers(), at({{"x", "a"}}));
  EXPECT_EQ(summarize(outer).size(), 1u);
  const auto tables = summarize(outer, {.depth = 2});
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[1].title, "mlp");
  EXPECT_EQ(tables[1].blocks.size(), 3u);
}

}  // namespace
}  // namespace mithril::model

#include "model/summary.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "model/build.h"

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

/// "key shape type connections" of each row, under the name of its submodel.
std::string text_of(const SummaryTable& table) {
  std::string out = table.title + "\n";
  for (const SummaryBlock& block : table.blocks) {
    out += block.name + "\n";
    for (const SummaryRow& row : block.rows) {
      const std::string shape = row.shape ? fmt::format("[{}]", fmt::join(*row.shape, ", ")) : "--";
      out += fmt::format("  {}{}: {} {}, {}\n", row.is_output ? "-> " : "", row.key, shape,
                         row.type, fmt::join(row.connections, ", "));
    }
  }
  return out;
}

TEST(Summary, Rows) {
  EXPECT_EQ(text_of(summarize(two_layers(), {.symbolic = true})[0]), R"(mlp
Linear
  weight: [8, 4] Tensor[float], '$weight'
  input: [N, 4] Tensor[int | float], 'x'
  bias: [8] Tensor[float], '$bias'
  -> output: [N, 8] Tensor[float], Add.left
Add
  left: [N, 8] Tensor[float], Linear.output
  right: -- float, 2.0
  -> output: [N, 8] Tensor[float], Softmax.input
Softmax
  input: [N, 8] Tensor[float], Add.output
  axis: -- int, -1
  -> output: [N, 8] Tensor[float], 'y'
)");
}

TEST(Summary, SizesThatAreNotShown) {
  const auto tables = summarize(two_layers());
  EXPECT_EQ(tables[0].blocks[0].rows[1].shape, (test::Strings{"None", "4"}));
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

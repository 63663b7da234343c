// The rules of blocks in the solver: what follows for a model's wires, in both directions. The
// cases are those of the logical reference, section 3.7, and some with the output given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/registry.h"
#include "model/model.h"

namespace mithril::model {
namespace {

using core::HostValue;

/// One op; shapes of its keys are set and read as text.
class Op {
 public:
  explicit Op(const std::string& name, LeafSpec spec = {})
      : model_(Model::leaf(**ir::Registry::global().lookup(name), std::move(spec))) {}

  /// Sizes, and names of sizes.
  Op& set(const std::string& key, const std::vector<std::string>& shape) {
    ShapeTemplate items;
    for (const std::string& item : shape) {
      const bool number = item.find_first_not_of("0123456789") == std::string::npos;
      items.push_back(number ? infer::TemplateItem::of(std::stoll(item))
                             : infer::TemplateItem::symbol(item));
    }
    model_.set_shapes({{key, items}});
    return *this;
  }
  std::string shape(const std::string& key) {
    infer::ShapeNames names;
    return model_.print_shape(key, names);
  }
  std::string value(const std::string& key) { return model_.print_value(key); }
  std::string kind(const std::string& key) { return to_string(model_.kinds(key)); }

 private:
  Model model_;
};

KeySpec valued(HostValue value) {
  KeySpec out;
  out.value = std::move(value);
  return out;
}

LeafSpec keys(std::vector<std::pair<std::string, HostValue>> values) {
  LeafSpec out;
  for (auto& [name, value] : values) out.keys.emplace_back(name, valued(std::move(value)));
  return out;
}

LeafSpec attrs(std::vector<std::pair<std::string, HostValue>> values) {
  LeafSpec out;
  out.attrs = std::move(values);
  return out;
}

TEST(OpRules, LinearFindsItsParameters) {
  Op linear("linear", attrs({{"dimension", 3}}));
  linear.set("input", {"2", "7", "5"});
  EXPECT_EQ(linear.shape("weight"), "[3, 5]");
  EXPECT_EQ(linear.shape("bias"), "[3]");
  EXPECT_EQ(linear.shape("output"), "[2, 7, 3]");
}

TEST(OpRules, LinearFromItsOutput) {
  Op linear("linear");
  linear.set("output", {"b", "4"}).set("weight", {"4", "6"});
  EXPECT_EQ(linear.shape("input"), "[b, 6]");
}

TEST(OpRules, ConvolutionFindsItsParameters) {
  LeafSpec spec = keys({{"stride", 2}, {"padding", 1}});
  spec.attrs = {{"kernel_size", 3}, {"out_channels", 8}};
  Op conv("convolution2d", std::move(spec));
  conv.set("input", {"2", "3", "32", "32"});
  EXPECT_EQ(conv.shape("weight"), "[8, 3, 3, 3]");
  EXPECT_EQ(conv.shape("bias"), "[1, 8, 1, 1]");
  EXPECT_EQ(conv.shape("output"), "[2, 8, 16, 16]");
}

TEST(OpRules, ConvolutionKeepsSizesWithSamePadding) {
  LeafSpec spec = keys({{"padding", "same"}});
  spec.attrs = {{"kernel_size", 3}, {"out_channels", 8}};
  Op conv("convolution2d", std::move(spec));
  conv.set("input", {"n", "3", "h", "9"});
  EXPECT_EQ(conv.shape("output"), "[n, 8, h, 9]");
}

TEST(OpRules, PoolsTakeTheKernelAsStride) {
  Op pool("max_pooling2d", keys({{"kernel_size", 2}}));
  pool.set("input", {"2", "3", "32", "32"});
  EXPECT_EQ(pool.shape("output"), "[2, 3, 16, 16]");
}

TEST(OpRules, FlattenKeepsTheBatch) {
  Op flatten("flatten");
  flatten.set("input", {"n", "3", "4", "5"});
  EXPECT_EQ(flatten.shape("output"), "[n, 60]");
}

TEST(OpRules, TransposeFromItsOutput) {
  Op transpose("transpose");
  transpose.set("output", {"2", "3", "4"});
  EXPECT_EQ(transpose.shape("input"), "[4, 3, 2]");
}

TEST(OpRules, PadFromItsOutput) {
  const HostValue width = HostValue::tuple({HostValue::ints({1, 1}), HostValue::ints({0, 2})});
  Op pad("pad", keys({{"pad_width", width}}));
  pad.set("output", {"5", "6"});
  EXPECT_EQ(pad.shape("input"), "[3, 4]");
}

TEST(OpRules, OnePairPadsTheLastAxis) {
  Op pad("constantpad", attrs({{"pad_width", HostValue::ints({1, 2})}}));
  pad.set("output", {"n", "6"});
  EXPECT_EQ(pad.shape("input"), "[n, 3]");
}

TEST(OpRules, ReshapeSolvesTheOpenSize) {
  Op reshape("reshape", keys({{"shape", HostValue::ints({2, -1})}}));
  reshape.set("input", {"3", "4"});
  EXPECT_EQ(reshape.shape("output"), "[2, 6]");
}

TEST(OpRules, ReductionsDropTheirAxes) {
  Op mean("mean", keys({{"axis", 1}}));
  mean.set("input", {"n", "4", "5"});
  EXPECT_EQ(mean.shape("output"), "[n, 5]");
  EXPECT_EQ(mean.kind("output"), "float tensor");
}

TEST(OpRules, MatmulFromItsOutput) {
  Op matmul("matmul");
  matmul.set("left", {"b", "3", "4"}).set("output", {"7", "3", "5"});
  EXPECT_EQ(matmul.shape("right"), "[(V1, ...), 4, 5]");
}

TEST(OpRules, CrossEntropyFindsItsTarget) {
  Op loss("cross_entropy");
  loss.set("input", {"8", "10"});
  EXPECT_EQ(loss.shape("target"), "[8]");
  EXPECT_EQ(loss.shape("output"), "[8]");
  EXPECT_EQ(loss.kind("target"), "int tensor");
}

TEST(OpRules, CrossEntropyOfSharesHasTheInputsShape) {
  Op loss("cross_entropy", keys({{"categorical", false}}));
  loss.set("input", {"8", "10"});
  EXPECT_EQ(loss.shape("target"), "[8, 10]");
}

TEST(OpRules, NormsTieTheirParameters) {
  Op layer("layer_norm");
  layer.set("input", {"n", "t", "16"});
  EXPECT_EQ(layer.shape("weight"), "[16]");
  EXPECT_EQ(layer.shape("output"), "[n, t, 16]");
  Op batch("batch_norm2d", attrs({{"num_features", 6}}));
  EXPECT_EQ(batch.shape("running_mean"), "[6]");
  EXPECT_EQ(batch.shape("weight"), "[1, 6, 1, 1]");
}

TEST(OpRules, EmbeddingAppendsItsWidth) {
  Op embedding("embedding", attrs({{"num_embeddings", 100}, {"dim", 8}}));
  embedding.set("input", {"n", "t"});
  EXPECT_EQ(embedding.shape("weight"), "[100, 8]");
  EXPECT_EQ(embedding.shape("output"), "[n, t, 8]");
}

TEST(OpRules, AttentionTiesItsOperands) {
  Op attention("scaled_dot_product_attention");
  attention.set("query", {"n", "h", "l", "e"}).set("value", {"n", "h", "s", "9"});
  EXPECT_EQ(attention.shape("key"), "[n, h, s, e]");
  EXPECT_EQ(attention.shape("output"), "[n, h, l, 9]");
}

TEST(OpRules, HostArithmeticFolds) {
  Op add("add", keys({{"left", 2}, {"right", 3}}));
  EXPECT_EQ(add.value("output"), "5");
  Op divide("divide", keys({{"numerator", 7}, {"denominator", 2}}));
  EXPECT_EQ(divide.value("output"), "3.5");
  Op power("power", keys({{"base", 2}, {"exponent", 10}}));
  EXPECT_EQ(power.value("output"), "1024");
}

TEST(OpRules, ShapesAndSizesAreValues) {
  Op shape("shape");
  shape.set("input", {"2", "3"});
  EXPECT_EQ(shape.value("output"), "(2, 3)");
  Op size("size");
  size.set("input", {"5", "3"});
  EXPECT_EQ(size.value("output"), "15");
  Op range("arange", keys({{"stop", 10}, {"step", 3}}));
  EXPECT_EQ(range.shape("output"), "[4]");
}

}  // namespace
}  // namespace mithril::model

#include "emit/python_tile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tile/builder.h"

namespace mithril::emit {
namespace {

using core::DType;
using testing::ElementsAre;
using testing::IsEmpty;
using tile::Reg;

TileText print(tile::Builder& builder, TileContext context,
               std::vector<TileOperand> operands = {{"v0"}, {"v1"}}) {
  context.operands = operands;
  auto text = python_tile(builder.finish(), context);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : TileText();
}

TEST(PythonTile, NestsCalls) {
  tile::Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(t.log1p(t.exp(-x)));
  const TileText text = print(t, {});
  EXPECT_THAT(text.temporaries, IsEmpty());
  EXPECT_EQ(text.expression, "ops.log1p(ops.exp(ops.negate(v0)))");
}

TEST(PythonTile, NamesWhatIsUsedTwice) {
  tile::Builder t;
  const Reg e = t.exp(t.load(DType::kFloat32));
  t.store(e / (e + 1.0));
  const TileText text = print(t, {});
  EXPECT_THAT(text.temporaries, ElementsAre("t0 = ops.exp(v0)"));
  EXPECT_EQ(text.expression, "ops.divide(t0, ops.add(t0, 1.0))");
}

TEST(PythonTile, CutsDeepExpressions) {
  tile::Builder t;
  Reg x = t.load(DType::kFloat32);
  for (int i = 0; i < 30; ++i) x = t.tanh(x);
  t.store(x);
  const TileText text = print(t, {});
  EXPECT_EQ(text.temporaries.size(), 2U);
}

TEST(PythonTile, NumbersAreWeakBesideAnArrayOfTheirType) {
  tile::Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(t.select(t.less(x, 0.1), t.constant(DType::kFloat32, 1), t.constant(DType::kFloat32, 2)));
  EXPECT_EQ(print(t, {}).expression,
            "ops.where(ops.less(v0, 0.1), ops.scalar(1.0, ops.float32), "
            "ops.scalar(2.0, ops.float32))");
}

TEST(PythonTile, NumbersBesideBfloat16HaveTheirType) {
  tile::Builder t;
  t.store(t.load(DType::kBFloat16) * 2.0);
  EXPECT_EQ(print(t, {}).expression, "ops.multiply(v0, ops.scalar(2.0, ops.bfloat16))");
}

TEST(PythonTile, CastsSayTheirType) {
  tile::Builder t;
  t.store(t.cast(t.load(DType::kFloat32), DType::kInt64));
  EXPECT_EQ(print(t, {}).expression, "ops.astype(v0, ops.int64)");
}

TEST(PythonTile, ReductionsTakeTheAxesOfTheirNode) {
  tile::Builder t;
  t.store(t.reduce(tile::Opcode::kReduceSum, t.load(DType::kFloat32)));
  EXPECT_EQ(print(t, {.axis = "(1,)", .keepdim = "True"}).expression,
            "ops.reduce_sum(v0, (1,), True)");
}

TEST(PythonTile, RowValuesThatMeetLanesKeepTheirAxes) {
  tile::Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(x - t.reduce(tile::Opcode::kReduceMax, x));
  EXPECT_EQ(print(t, {.axis = "1"}).expression, "ops.subtract(v0, ops.reduce_max(v0, 1, True))");
}

TEST(PythonTile, FunctionsOfRowValuesDropTheAxesLast) {
  tile::Builder t;
  t.store(t.sqrt(t.reduce(tile::Opcode::kReduceSum, t.load(DType::kFloat32))));
  EXPECT_EQ(print(t, {.axis = "1"}).expression,
            "ops.drop_axes(ops.sqrt(ops.reduce_sum(v0, 1, True)), 1)");
}

TEST(PythonTile, PositionsTakeTheShape) {
  tile::Builder t;
  t.store(t.cast(t.position(), DType::kFloat32));
  EXPECT_EQ(print(t, {.shape = "(n0, 4)"}).expression,
            "ops.astype(ops.position((n0, 4)), ops.float32)");
}

TEST(PythonTile, RefusesWhatNoFrameworkHas) {
  tile::Builder t;
  t.store(t.emit(tile::Opcode::kTrigRest, {t.load(DType::kFloat32)}));
  const TileOperand operand{"v0"};
  const TileContext context{.operands = std::span(&operand, 1)};
  const auto text = python_tile(t.finish(), context);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "its instruction 'trig_rest' has no function in a framework");
}

}  // namespace
}  // namespace mithril::emit

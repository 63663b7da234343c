// Covers: tile/print.cc
#include "tile/builder.h"

#include <gtest/gtest.h>

#include "tile/evaluate.h"

namespace mithril::tile {
namespace {

using core::DType;

TEST(Builder, WritesEqualInstructionsOnce) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store((x + 1.0) * (x + 1.0));
  EXPECT_EQ(print(t.finish()),
            "program(f32) -> (f32) {\n"
            "  %0 = load 0 : f32\n"
            "  %1 = constant 1 : f32 uniform\n"
            "  %2 = add %0, %1 : f32\n"
            "  %3 = mul %2, %2 : f32\n"
            "  store 0, %3\n"
            "}\n");
}

TEST(Builder, DropsWhatReachesNoStore) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.load(DType::kInt32);
  exp(x);
  t.store(-x);
  const Program program = t.finish();
  EXPECT_EQ(program.inputs.size(), 2u);
  EXPECT_EQ(program.code.size(), 3u);
  EXPECT_TRUE(verify(program).ok());
}

TEST(Builder, LevelsFollowTheOperands) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), scale = t.load_row(DType::kFloat32);
  EXPECT_EQ((x * scale).level(), Level::kLane);
  EXPECT_EQ((scale * 2.0).level(), Level::kRow);
  EXPECT_EQ(reduce_sum(x).level(), Level::kRow);
  EXPECT_EQ(t.scalar(DType::kFloat32, 3).level(), Level::kUniform);
  t.store(x * scale + reduce_sum(x) * t.scalar(DType::kFloat32, 3));
  t.store(scale);
  const Program program = t.finish();
  EXPECT_EQ(output_level(program, 0), Level::kLane);
  EXPECT_EQ(output_level(program, 1), Level::kRow);
  EXPECT_EQ(input_level(program, 1), Level::kRow);
  EXPECT_EQ(program.scalars, 4u);
  EXPECT_TRUE(is_reducing(program));
  EXPECT_TRUE(verify(program).ok());
}

TEST(Builder, ConstantsAreRoundedToTheirType) {
  Builder t;
  const auto bits = [&](DType dtype, double value) {
    t.store(t.constant(dtype, value));
    return t.finish().code[0].bits;
  };
  EXPECT_EQ(bits(DType::kFloat16, 0.1), 0x2e66u);
  EXPECT_EQ(bits(DType::kBFloat16, 0.1), 0x3dcdu);
  EXPECT_EQ(bits(DType::kInt8, 300), 127u);
  EXPECT_EQ(bits(DType::kInt8, -1), 0xffu);
  EXPECT_EQ(bits(DType::kBool, 0.5), 1u);
  EXPECT_EQ(bits(DType::kInt64, -2), static_cast<uint64_t>(-2));
}

TEST(Builder, AppendsAProgramAsASubroutine) {
  Builder body;
  const Reg a = body.load(DType::kFloat32), b = body.load(DType::kFloat32);
  body.store(a / reduce_sum(b) * body.scalar(DType::kFloat32, 0));
  body.store(a - b);
  const Program inner = body.finish();

  Builder t;
  const Reg x = t.load(DType::kFloat32);
  const Reg square = x * x, three = t.constant(DType::kFloat32, 3);
  const std::vector<Reg> out = t.append(inner, std::array{square, x}, std::array{three});
  t.store(out[0] + out[1]);
  EXPECT_EQ(print(t.finish()),
            "program(f32) -> (f32) {\n"
            "  %0 = load 0 : f32\n"
            "  %1 = mul %0, %0 : f32\n"
            "  %2 = constant 3 : f32 uniform\n"
            "  %3 = reduce_sum.lanes %0 : f32 row\n"
            "  %4 = div %1, %3 : f32\n"
            "  %5 = mul %4, %2 : f32\n"
            "  %6 = sub %1, %0 : f32\n"
            "  %7 = add %5, %6 : f32\n"
            "  store 0, %7\n"
            "}\n");
}

TEST(Builder, RefusesWrongTypes) {
  Builder t, other;
  const Reg x = t.load(DType::kFloat32), i = t.load(DType::kInt32);
  EXPECT_THROW(x + i, core::ErrorException);
  EXPECT_THROW(t.exp(i), core::ErrorException);
  EXPECT_THROW(t.bit_and(x, x), core::ErrorException);
  EXPECT_THROW(t.select(x, x, x), core::ErrorException);
  EXPECT_THROW(t.bitcast(x, DType::kInt64), core::ErrorException);
  EXPECT_THROW(x + other.load(DType::kFloat32), core::ErrorException);
  EXPECT_THROW(t.store(x, Level::kRow), core::ErrorException);
}

}  // namespace
}  // namespace mithril::tile

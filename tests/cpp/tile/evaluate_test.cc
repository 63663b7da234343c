#include "tile/evaluate.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "tile/builder.h"

// Meanings and orders against values worked out by hand, so that the oracle itself has one.
namespace mithril::tile {
namespace {

using core::DType;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

template <class T, class R = T>
std::vector<R> apply(DType dtype, Opcode opcode, const std::vector<T>& x, const std::vector<T>& y) {
  Builder t;
  const Reg a = t.load(dtype), b = t.load(dtype);
  t.store(info(opcode).arity == 1 ? t.emit(opcode, {a}) : t.emit(opcode, {a, b}));
  const auto n = static_cast<int64_t>(x.size());
  return values_of<R>(evaluate(t.finish(), n, 1, {bytes_of(x), bytes_of(y)})[0]);
}

TEST(Evaluate, IntegersWrapAndDivideAsPython) {
  using V = std::vector<int8_t>;
  const auto run = [](Opcode opcode, const V& x, const V& y) {
    return apply<int8_t>(DType::kInt8, opcode, x, y);
  };
  EXPECT_EQ(run(Opcode::kAdd, {127, -128}, {1, -1}), (V{-128, 127}));
  EXPECT_EQ(run(Opcode::kMul, {100, -128}, {3, -1}), (V{44, -128}));
  EXPECT_EQ(run(Opcode::kNeg, {-128, 5}, {0, 0}), (V{-128, -5}));
  EXPECT_EQ(run(Opcode::kFloorDiv, {7, -7, 7, -7, 5, -128}, {2, 2, -2, -2, 0, -1}),
            (V{3, -4, -4, 3, 0, -128}));
  EXPECT_EQ(run(Opcode::kMod, {7, -7, 7, -7, 5, -128}, {2, 2, -2, -2, 0, -1}),
            (V{1, 1, -1, -1, 0, 0}));
  EXPECT_EQ(run(Opcode::kShiftLeft, {1, 1, 1, 1}, {6, 7, 8, -1}), (V{64, -128, 0, 0}));
  EXPECT_EQ(run(Opcode::kShiftRight, {-128, -128, 100, -1}, {3, 9, 8, -1}), (V{-16, -1, 0, -1}));
  EXPECT_EQ(run(Opcode::kShiftRightLogical, {-128, -128, 100}, {3, 9, 1}), (V{16, 0, 50}));
}

TEST(Evaluate, ExtremesAreTotal) {
  const float nan = NAN;
  const auto max =
      apply<float>(DType::kFloat32, Opcode::kMax, {-0.0f, 0.0f, nan, 1}, {0.0f, -0.0f, 1, nan});
  EXPECT_FALSE(std::signbit(max[0]) || std::signbit(max[1]));
  EXPECT_TRUE(std::isnan(max[2]) && std::isnan(max[3]));
  const auto min =
      apply<float>(DType::kFloat32, Opcode::kMin, {-0.0f, 0.0f, nan, 1}, {0.0f, -0.0f, 1, nan});
  EXPECT_TRUE(std::signbit(min[0]) && std::signbit(min[1]));
  EXPECT_TRUE(std::isnan(min[2]) && std::isnan(min[3]));
  const auto least =
      apply<float>(DType::kFloat32, Opcode::kAtLeast, {nan, 1, -0.0f}, {1, nan, 0.0f});
  EXPECT_TRUE(std::isnan(least[0]));
  EXPECT_EQ(least[1], 1);
  EXPECT_TRUE(std::signbit(least[2]));  // 0 > -0 is false
}

TEST(Evaluate, RoundingAndScaling) {
  const auto round = apply<float>(DType::kFloat32, Opcode::kRound, {0.5f, 1.5f, -2.5f}, {0, 0, 0});
  EXPECT_EQ(round, (std::vector<float>{0, 2, -2}));
  const auto scale =
      apply<float>(DType::kFloat32, Opcode::kScale, {1, 3, 1.5f, 1, 0x1.000002p-100f, 0},
                   {-149, -150, -149.5f, 1e9f, -48, 1e9f});
  EXPECT_EQ(scale[0], 0x1p-149f);
  EXPECT_EQ(scale[1], 0x1p-148f);  // 1.5 ulp, a tie, to even
  EXPECT_EQ(scale[2], 0x1p-149f);  // the exponent is floored to -150: 0.75 ulp
  EXPECT_EQ(scale[3], INFINITY);
  EXPECT_EQ(scale[4], 0x1p-148f);
  EXPECT_EQ(scale[5], 0);
}

float sum(const std::vector<float>& x, Order order) {
  Builder t;
  t.store(reduce_sum(t.load(DType::kFloat32), order));
  return values_of<float>(
      evaluate(t.finish(), 1, static_cast<int64_t>(x.size()), {bytes_of(x)})[0])[0];
}

// 1e8 swallows a 1 that is added to it alone: which ones survive tells the order.
TEST(Evaluate, LanesOrder) {
  std::vector<float> x(18, 0.0f);
  x[0] = 1e8f, x[16] = 1, x[8] = 1, x[1] = -1e8f;
  EXPECT_EQ(sum(x, Order::kLanes), 0);  // ((x0 + x16) + x8) + x1
  x.assign(18, 0.0f);
  x[0] = 1e8f, x[1] = 4, x[9] = 4;
  EXPECT_EQ(sum(x, Order::kLanes), 1e8f + 8);  // (x1 + x9) first
  x[1] = -1e8f, x[9] = 0, x[17] = 1, x[2] = 1;
  // lane 1: -1e8 + 1 = -1e8; lane 0 takes lane 2 before it meets lane 1.
  EXPECT_EQ(sum(x, Order::kLanes), 0);
  EXPECT_EQ(sum(x, Order::kRows), 2);
}

TEST(Evaluate, BlocksArePaired) {
  std::vector<float> x(64 * 5, 0.0f);
  x[0] = -3e38f, x[128] = 3e38f, x[192] = 3e38f;  // ((b0 + b1) + (b2 + b3)) + b4
  EXPECT_EQ(sum(x, Order::kRows), INFINITY);
  x[64] = 3e38f, x[192] = -3e38f;
  EXPECT_EQ(sum(x, Order::kRows), 0);
  std::vector<float> y(4096 * 3, 0.0f);
  y[0] = 3e38f, y[4096] = 3e38f, y[8192] = -3e38f;
  EXPECT_EQ(sum(y, Order::kLanes), INFINITY);
}

TEST(Evaluate, SumsOfBlocksLoseNothingToRounding) {
  std::vector<float> x(64 * 5, 0.0f);
  x[0] = 1e8f, x[64] = 1, x[128] = 1, x[192] = -1e8f, x[256] = 1;
  EXPECT_EQ(sum(x, Order::kRows), 3);
  std::vector<float> y(4096 * 3, 0.0f);
  y[0] = 1e8f, y[4096] = 1, y[8192] = -1e8f;
  EXPECT_EQ(sum(y, Order::kLanes), 1);
  y[0] = -INFINITY;
  EXPECT_EQ(sum(y, Order::kLanes), -INFINITY);
  y[4096] = INFINITY;
  EXPECT_TRUE(std::isnan(sum(y, Order::kLanes)));
  EXPECT_TRUE(std::signbit(sum(std::vector<float>(5000, -0.0f), Order::kLanes)));
}

TEST(Evaluate, EmptyReductionsAndSignsOfZero) {
  EXPECT_EQ(sum({}, Order::kLanes), 0);
  EXPECT_FALSE(std::signbit(sum({}, Order::kLanes)));
  EXPECT_TRUE(std::signbit(sum({-0.0f, -0.0f}, Order::kLanes)));
  Builder t;
  const Reg x = t.load(DType::kFloat32), i = t.load(DType::kInt16);
  t.store(reduce_max(x));
  t.store(reduce_min(i));
  t.store(t.reduce(Opcode::kReduceProd, x));
  t.store(t.reduce(Opcode::kReduceArgMax, x));
  const auto out = evaluate(t.finish(), 1, 0, {{}, {}});
  EXPECT_EQ(values_of<float>(out[0])[0], -INFINITY);
  EXPECT_EQ(values_of<int16_t>(out[1])[0], std::numeric_limits<int16_t>::max());
  EXPECT_EQ(values_of<float>(out[2])[0], 1);
  EXPECT_EQ(values_of<int64_t>(out[3])[0], 0);
}

TEST(Evaluate, FirstExtremeAndNanFirst) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(t.reduce(Opcode::kReduceArgMax, x));
  t.store(t.reduce(Opcode::kReduceArgMin, x));
  const auto program = t.finish();
  const std::vector<float> rows{1, 3, 3, 1, /**/ 5, NAN, 9, NAN, /**/ -0.0f, 0.0f, -0.0f, 0.0f};
  const auto out = evaluate(program, 3, 4, {bytes_of(rows)});
  EXPECT_EQ(values_of<int64_t>(out[0]), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(values_of<int64_t>(out[1]), (std::vector<int64_t>{0, 1, 0}));
}

TEST(Evaluate, HalfSumsRoundOnceAtTheEnd) {
  Builder t;
  const Reg x = t.cast(t.load(DType::kFloat32), DType::kFloat16);
  t.store(t.cast(reduce_sum(x), DType::kFloat32));
  t.store(t.cast(t.cumsum(x), DType::kFloat32));
  const auto program = t.finish();
  const std::vector<float> row{2048, 1, 1, 1};
  const auto out = evaluate(program, 1, 4, {bytes_of(row)});
  EXPECT_EQ(values_of<float>(out[0])[0], 2052);  // 2051 is no float16; in float16 it were 2048
  EXPECT_EQ(values_of<float>(out[1]), (std::vector<float>{2048, 2048, 2050, 2052}));
}

}  // namespace
}  // namespace mithril::tile

#include "ops/host_arithmetic.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace mithril::ops {
namespace {

using core::HostValue;

HostValue of(HostOp op, const HostValue& left, const HostValue& right) {
  return std::move(host_arithmetic(op, left, right, nullptr)).or_throw();
}

bool fails(HostOp op, const HostValue& left, const HostValue& right) {
  return !host_arithmetic(op, left, right, nullptr).ok();
}

// What Python gives.
TEST(HostArithmetic, DividesIntegersRoundingDown) {
  const int rows[][4] = {{7, 2, 3, 1},   {-7, 2, -4, 1}, {7, -2, -4, -1}, {-7, -2, 3, -1},
                         {-4, 2, -2, 0}, {4, -2, -2, 0}, {0, -3, 0, 0}};
  for (const auto& [a, b, quotient, rest] : rows) {
    EXPECT_EQ(of(HostOp::kFloorDivide, a, b), HostValue(quotient)) << a << " // " << b;
    EXPECT_EQ(of(HostOp::kMod, a, b), HostValue(rest)) << a << " % " << b;
  }
  EXPECT_TRUE(fails(HostOp::kFloorDivide, 1, 0));
  EXPECT_TRUE(fails(HostOp::kMod, 1, 0));
  EXPECT_TRUE(fails(HostOp::kFloorDivide, INT64_MIN, -1));
  EXPECT_EQ(of(HostOp::kMod, INT64_MIN, -1), HostValue(0));
}

TEST(HostArithmetic, DividesFloatsRoundingDown) {
  EXPECT_EQ(of(HostOp::kFloorDivide, -7.5, 2.0), HostValue(-4.0));
  EXPECT_EQ(of(HostOp::kMod, -7.5, 2.0), HostValue(0.5));
  EXPECT_EQ(of(HostOp::kMod, 7.5, -2.0), HostValue(-0.5));
  EXPECT_EQ(of(HostOp::kMod, -6.0, 2.0), HostValue(0.0));
}

TEST(HostArithmetic, RaisesIntegersUpToTheLastBit) {
  EXPECT_EQ(of(HostOp::kPower, 2, 40), HostValue(int64_t{1} << 40));
  EXPECT_EQ(of(HostOp::kPower, 2, 62), HostValue(int64_t{1} << 62));
  EXPECT_EQ(of(HostOp::kPower, 3, 39), HostValue(int64_t{4052555153018976267}));
  EXPECT_EQ(of(HostOp::kPower, -2, 63), HostValue(INT64_MIN));
  EXPECT_TRUE(fails(HostOp::kPower, 2, 63));
  EXPECT_TRUE(fails(HostOp::kPower, 3, 40));
  EXPECT_EQ(of(HostOp::kPower, 2, -1), HostValue(0.5));
}

TEST(HostArithmetic, ShiftsWithinTheSign) {
  EXPECT_EQ(of(HostOp::kShiftLeft, 1, 62), HostValue(int64_t{1} << 62));
  EXPECT_TRUE(fails(HostOp::kShiftLeft, 1, 63));
  EXPECT_TRUE(fails(HostOp::kShiftLeft, 1, 64));
  EXPECT_TRUE(fails(HostOp::kShiftLeft, 1, -1));
  EXPECT_EQ(of(HostOp::kShiftRight, -8, 1), HostValue(-4));
  EXPECT_EQ(of(HostOp::kShiftRight, -8, 200), HostValue(-1));
}

}  // namespace
}  // namespace mithril::ops

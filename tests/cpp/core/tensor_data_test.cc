#include "core/tensor_data.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

TEST(Half, ReadsBackEveryBitPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    if (!std::isnan(from_float16(pattern))) {
      EXPECT_EQ(to_float16(from_float16(pattern)), pattern);
    }
    if (!std::isnan(from_bfloat16(pattern))) {
      EXPECT_EQ(to_bfloat16(from_bfloat16(pattern)), pattern);
    }
  }
}

TEST(Half, KeepsNaNAndItsSign) {
  EXPECT_EQ(to_float16(std::nan("")), 0x7e00);
  EXPECT_EQ(to_bfloat16(-std::nan("")), 0xffc0);
}

// Between 2048 and 4096 neighbours of binary16 are 2 apart: odd integers are ties.
TEST(Float16, RoundsTiesToEven) {
  EXPECT_EQ(from_float16(to_float16(2049)), 2048);
  EXPECT_EQ(from_float16(to_float16(2051)), 2052);
  EXPECT_EQ(from_float16(to_float16(2049.0001)), 2050);
}

TEST(Float16, OverflowsHalfAStepAboveTheLargest) {
  EXPECT_EQ(from_float16(to_float16(65519.99)), 65504);
  EXPECT_EQ(from_float16(to_float16(65520)), HUGE_VAL);
  EXPECT_EQ(from_float16(to_float16(-1e300)), -HUGE_VAL);
}

TEST(Float16, RoundsSubnormals) {
  EXPECT_EQ(to_float16(0x1p-24), 0x0001);
  EXPECT_EQ(to_float16(0x1p-25), 0x0000);
  EXPECT_EQ(to_float16(0x1.8p-25), 0x0001);
  EXPECT_EQ(to_float16(-0x1p-26), 0x8000);
  EXPECT_EQ(to_float16(0x1.ffcp-15), 0x0400);  // carries into the smallest normal
}

// Neighbours of bfloat16 above 1 are 2^-7 apart.
TEST(BFloat16, RoundsTiesToEvenAndOverflows) {
  EXPECT_EQ(to_bfloat16(1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(to_bfloat16(1 + 0x3p-8), 0x3f82);
  EXPECT_EQ(to_bfloat16(0x1.fep127), 0x7f7f);
  EXPECT_EQ(to_bfloat16(0x1.ffp127), 0x7f80);
}

HostValue through(DType dtype, const HostValue& number) {
  TensorData data{dtype, {1}, {}};
  append_element(data, number);
  EXPECT_EQ(data.bytes.size(), literal_size(dtype));
  return element(data, 0);
}

TEST(Element, KeepsWhatFits) {
  EXPECT_EQ(through(DType::kBool, true), HostValue(true));
  EXPECT_EQ(through(DType::kUInt8, 255), HostValue(255));
  EXPECT_EQ(through(DType::kInt8, -128), HostValue(-128));
  EXPECT_EQ(through(DType::kInt16, -32768), HostValue(-32768));
  EXPECT_EQ(through(DType::kInt32, 7), HostValue(7));
  EXPECT_EQ(through(DType::kAnyInt, int64_t{1} << 40), HostValue(int64_t{1} << 40));
  EXPECT_EQ(through(DType::kFloat16, 0.5), HostValue(0.5));
  EXPECT_EQ(through(DType::kBFloat16, 0.5), HostValue(0.5));
  EXPECT_EQ(through(DType::kFloat32, 0.25), HostValue(0.25));
  EXPECT_EQ(through(DType::kFloat64, 0.1), HostValue(0.1));
  EXPECT_EQ(through(DType::kAnyFloat, 0.1), HostValue(0.1));
}

TEST(Element, ConvertsAsACastDoes) {
  EXPECT_EQ(through(DType::kUInt8, 257), HostValue(1));
  EXPECT_EQ(through(DType::kInt8, 200), HostValue(-56));
  EXPECT_EQ(through(DType::kInt32, -2.9), HostValue(-2));
  EXPECT_EQ(through(DType::kInt64, std::nan("")), HostValue(0));
  EXPECT_EQ(through(DType::kInt64, 1e30), HostValue(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(through(DType::kInt64, 0x1p63), HostValue(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(through(DType::kInt64, -1e30), HostValue(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(through(DType::kBool, 0.5), HostValue(true));
  EXPECT_EQ(through(DType::kFloat32, 3), HostValue(3.0));
  EXPECT_EQ(through(DType::kFloat32, 0.1), HostValue(static_cast<double>(0.1F)));
}

// The numbers of the reference, section 1.5.
TEST(Constant, FollowsItsPrecision) {
  EXPECT_EQ(constant_value("EPSILON", DType::kFloat64), 2.220446049250313e-16);
  EXPECT_EQ(constant_value("EPSILON", DType::kFloat32), 1.1920929e-07);
  EXPECT_EQ(constant_value("EPSILON", DType::kFloat16), 0.000977);
  EXPECT_EQ(constant_value("MIN_POSITIVE_NORMAL", DType::kBFloat16), 6.104e-05);
}

TEST(Element, AppendsOneAfterAnother) {
  TensorData data{DType::kInt16, {3}, {}};
  for (const int number : {1, -2, 3}) append_element(data, number);
  EXPECT_EQ(element(data, 1), HostValue(-2));
  EXPECT_EQ(to_string(HostValue(std::make_shared<const TensorData>(data))),
            "tensor<i16[3]>(1, -2, 3)");
}

}  // namespace
}  // namespace mithril::core

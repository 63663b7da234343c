#include "tile/convert.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace mithril::tile {
namespace {

using core::DType;

TEST(Half, EveryFloat16SurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float wide = half_to_float(static_cast<uint16_t>(h));
    if (std::isnan(wide)) {
      EXPECT_GT(h & 0x7fffu, 0x7c00u);
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(wide))));
    } else {
      EXPECT_EQ(float_to_half(wide), h);
      const int exponent = static_cast<int>(h >> 10 & 31);
      const double fraction = h & 1023;
      const double wanted = exponent == 0    ? std::ldexp(fraction, -24)
                            : exponent == 31 ? INFINITY
                                             : std::ldexp(1024 + fraction, exponent - 25);
      EXPECT_EQ(wide, (h & 0x8000) != 0 ? -wanted : wanted);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const double low = half_to_float(static_cast<uint16_t>(h));
    const double high = h + 1 == 0x7c00 ? 65536 : half_to_float(static_cast<uint16_t>(h + 1));
    const double middle = (low + high) / 2;
    const uint16_t even = static_cast<uint16_t>(h % 2 == 0 ? h : h + 1);
    EXPECT_EQ(float_to_half(static_cast<float>(middle)), even);
    EXPECT_EQ(bits_of_double(DType::kFloat16, std::nextafter(middle, 0)), h);
    EXPECT_EQ(bits_of_double(DType::kFloat16, std::nextafter(middle, 1e9)), h + 1);
  }
}

TEST(Half, BFloatRoundsOnceFromDouble) {
  EXPECT_EQ(float_to_bfloat(1.0f), 0x3f80);
  EXPECT_EQ(bits_of_double(DType::kBFloat16, 1 + 0x1p-8), 0x3f80u);            // a tie, to even
  EXPECT_EQ(bits_of_double(DType::kBFloat16, 1 + 0x1p-8 + 0x1p-50), 0x3f81u);  // just above it
  EXPECT_EQ(bits_of_double(DType::kBFloat16, 1 + 0x3p-8), 0x3f82u);
  EXPECT_EQ(bits_of_double(DType::kBFloat16, 3.4e38), 0x7f80u);
  EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(NAN))));
}

TEST(Convert, FloatsSaturate) {
  EXPECT_EQ(saturate<int8_t>(127.9), 127);
  EXPECT_EQ(saturate<int8_t>(128.0), 127);
  EXPECT_EQ(saturate<int8_t>(-129.0), -128);
  EXPECT_EQ(saturate<uint8_t>(-1.0), 0);
  EXPECT_EQ(saturate<uint8_t>(255.9), 255);
  EXPECT_EQ(saturate<int32_t>(2147483647.5), 2147483647);
  EXPECT_EQ(saturate<int32_t>(2.5e9f), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(saturate<int64_t>(-INFINITY), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(saturate<int64_t>(0x1p63), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(saturate<int64_t>(static_cast<double>(NAN)), 0);
}

TEST(Convert, LargeIntegersRoundOnceToHalves) {
  const int64_t above_tie = (int64_t{257} << 54) + 1;  // 1.00000001b * 2^62 and a bit
  EXPECT_EQ(bits_of_int(DType::kBFloat16, above_tie), 0x5e81u);
  EXPECT_EQ(bits_of_int(DType::kBFloat16, above_tie - 1), 0x5e80u);
  EXPECT_EQ(bits_of_int(DType::kBFloat16, -above_tie), 0xde81u);
  EXPECT_EQ(bits_of_int(DType::kInt8, 384), 0x80u);
  EXPECT_EQ(bits_of_int(DType::kBool, 256), 1u);
}

}  // namespace
}  // namespace mithril::tile

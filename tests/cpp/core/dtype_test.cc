#include "core/dtype.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

const std::vector<std::string_view> kNames = {"bool",  "uint8",   "int8",     "int16",   "int32",
                                              "int64", "float16", "bfloat16", "float32", "float64"};

// Written by hand from the promotion rule (bool < integers < floats; same kind: the wider;
// uint8 with int8: int16; float16 with bfloat16: float32). Rows and columns in kNames' order.
const std::vector<std::vector<std::string_view>> kPromotion = {
    {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},         // bool
    {"u8", "u8", "i16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},          // uint8
    {"i8", "i16", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},          // int8
    {"i16", "i16", "i16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"},        // int16
    {"i32", "i32", "i32", "i32", "i32", "i64", "f16", "bf16", "f32", "f64"},        // int32
    {"i64", "i64", "i64", "i64", "i64", "i64", "f16", "bf16", "f32", "f64"},        // int64
    {"f16", "f16", "f16", "f16", "f16", "f16", "f16", "f32", "f32", "f64"},         // float16
    {"bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "f32", "bf16", "f32", "f64"},  // bfloat16
    {"f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "f64"},         // float32
    {"f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "f64"},         // float64
};

TEST(DType, PromotesAsTheTableSays) {
  for (size_t row = 0; row < kNames.size(); ++row) {
    for (size_t column = 0; column < kNames.size(); ++column) {
      const DType promoted = promote(*parse_dtype(kNames[row]), *parse_dtype(kNames[column]));
      EXPECT_EQ(short_name(promoted), kPromotion[row][column])
          << kNames[row] << " with " << kNames[column];
    }
  }
}

TEST(DType, NumbersThatWouldBeRoundedToInfinityOverflow) {
  const std::pair<DType, double> first[] = {{DType::kFloat16, 65520.0},
                                            {DType::kBFloat16, 0x1.FFp127},
                                            {DType::kFloat32, 0x1.FFFFFFp127}};
  for (const auto& [dtype, number] : first) {
    EXPECT_TRUE(overflows(number, dtype)) << name(dtype);
    EXPECT_TRUE(overflows(-number, dtype)) << name(dtype);
    EXPECT_FALSE(overflows(std::nextafter(number, 0.0), dtype)) << name(dtype);
    EXPECT_FALSE(overflows(-std::nextafter(number, 0.0), dtype)) << name(dtype);
    EXPECT_FALSE(overflows(INFINITY, dtype)) << name(dtype);
  }
  EXPECT_FALSE(overflows(std::numeric_limits<double>::max(), DType::kFloat64));
}

TEST(DType, AbstractTypesGiveWayToConcreteOnesOfTheirKind) {
  EXPECT_EQ(promote(DType::kAnyInt, DType::kUInt8), DType::kUInt8);
  EXPECT_EQ(promote(DType::kInt32, DType::kAnyInt), DType::kInt32);
  EXPECT_EQ(promote(DType::kAnyFloat, DType::kFloat16), DType::kFloat16);
  EXPECT_EQ(promote(DType::kBFloat16, DType::kAnyFloat), DType::kBFloat16);
  EXPECT_EQ(promote(DType::kAnyFloat, DType::kAnyFloat), DType::kAnyFloat);
}

TEST(DType, AbstractTypesWinOverLowerKinds) {
  EXPECT_EQ(promote(DType::kBool, DType::kAnyInt), DType::kAnyInt);
  EXPECT_EQ(promote(DType::kInt64, DType::kAnyFloat), DType::kAnyFloat);
  EXPECT_EQ(promote(DType::kAnyInt, DType::kAnyFloat), DType::kAnyFloat);
  EXPECT_EQ(promote(DType::kAnyInt, DType::kFloat16), DType::kFloat16);
}

TEST(DType, HasTwoSpellingsThatReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
    EXPECT_EQ(parse_dtype(short_name(dtype)), dtype);
  }
  EXPECT_EQ(name(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(short_name(DType::kBFloat16), "bf16");
}

TEST(DType, RefusesOtherSpellings) {
  for (const std::string_view text : {"", "Float32", "f32 ", "float128", "f3"}) {
    EXPECT_EQ(parse_dtype(text), std::nullopt) << text;
  }
}

TEST(DType, KnowsSizeAndKind) {
  EXPECT_EQ(size_of(DType::kBool), 1U);
  EXPECT_EQ(size_of(DType::kInt16), 2U);
  EXPECT_EQ(size_of(DType::kBFloat16), 2U);
  EXPECT_EQ(size_of(DType::kFloat32), 4U);
  EXPECT_EQ(size_of(DType::kFloat64), 8U);
  EXPECT_EQ(kind(DType::kBool), Kind::kBool);
  EXPECT_TRUE(is_integer(DType::kUInt8));
  EXPECT_TRUE(is_float(DType::kFloat16));
  EXPECT_FALSE(is_float(DType::kBool));
}

TEST(DType, AbstractTypesHaveNoSize) {
  EXPECT_TRUE(is_abstract(DType::kAnyInt));
  EXPECT_TRUE(is_abstract(DType::kAnyFloat));
  EXPECT_FALSE(is_abstract(DType::kBool));
  EXPECT_EQ(abstract_of(Kind::kBool), DType::kBool);
  EXPECT_EQ(abstract_of(Kind::kInt), DType::kAnyInt);
  EXPECT_EQ(abstract_of(Kind::kFloat), DType::kAnyFloat);
}

}  // namespace
}  // namespace mithril::core

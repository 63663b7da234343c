#include "core/host_value.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

template <class T>
HostValue tensor(DType dtype, std::vector<int64_t> shape, const std::vector<T>& elements) {
  TensorData data{dtype, std::move(shape), std::vector<std::byte>(elements.size() * sizeof(T))};
  if (!elements.empty()) std::memcpy(data.bytes.data(), elements.data(), data.bytes.size());
  return std::make_shared<const TensorData>(std::move(data));
}

TEST(HostValuePrint, WritesScalars) {
  EXPECT_EQ(to_string(HostValue()), "none");
  EXPECT_EQ(to_string(true), "true");
  EXPECT_EQ(to_string(false), "false");
  EXPECT_EQ(to_string(-7), "-7");
  EXPECT_EQ(to_string(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(to_string(DType::kBFloat16), "bf16");
  EXPECT_EQ(to_string(EllipsisValue{}), "...");
}

TEST(HostValuePrint, WritesDoublesShortestAndNeverAsIntegers) {
  EXPECT_EQ(to_string(0.5), "0.5");
  EXPECT_EQ(to_string(1.0), "1.0");
  EXPECT_EQ(to_string(-0.0), "-0.0");
  EXPECT_EQ(to_string(0.1), "0.1");
  EXPECT_EQ(to_string(1e300), "1e+300");
  EXPECT_EQ(to_string(5e-324), "5e-324");
  EXPECT_EQ(to_string(INFINITY), "inf");
  EXPECT_EQ(to_string(-INFINITY), "-inf");
  EXPECT_EQ(to_string(std::nan("")), "nan");
}

TEST(HostValuePrint, EscapesStrings) {
  EXPECT_EQ(to_string("plain"), "\"plain\"");
  EXPECT_EQ(to_string("say \"a\\b\""), "\"say \\\"a\\\\b\\\"\"");
  EXPECT_EQ(to_string(std::string("\n\0", 2)), "\"\\x0a\\x00\"");
  EXPECT_EQ(to_string("\xc3\xa9"), "\"\\xc3\\xa9\"");
}

TEST(HostValuePrint, WritesSequences) {
  EXPECT_EQ(to_string(HostValue::tuple({})), "()");
  EXPECT_EQ(to_string(HostValue::ints({3})), "(3,)");
  EXPECT_EQ(to_string(HostValue::ints({3, 4})), "(3, 4)");
  EXPECT_EQ(to_string(HostValue::list({1})), "[1]");
  EXPECT_EQ(to_string(HostValue::list({HostValue::ints({1, 2}), HostValue()})), "[(1, 2), none]");
}

TEST(HostValuePrint, WritesSlices) {
  EXPECT_EQ(to_string(Slice{}), ":");
  EXPECT_EQ(to_string(Slice{1, 2, {}}), "1:2");
  EXPECT_EQ(to_string(Slice{1, {}, 3}), "1::3");
  EXPECT_EQ(to_string(Slice{{}, {}, -1}), "::-1");
}

TEST(HostValuePrint, AsksTheOwnerForSymbols) {
  EXPECT_EQ(to_string(SymbolicInt{4}), "?4");
  const auto name = [](SymbolicInt s) { return "d" + std::to_string(s.expr); };
  EXPECT_EQ(to_string(HostValue::tuple({SymbolicInt{4}, 2}), name), "(d4, 2)");
}

TEST(HostValuePrint, WritesTensorsByType) {
  EXPECT_EQ(to_string(tensor<float>(DType::kFloat32, {2}, {1.0F, 0.1F})),
            "tensor<f32[2]>(1.0, 0.1)");
  EXPECT_EQ(to_string(tensor<int8_t>(DType::kInt8, {1, 2}, {-128, 127})),
            "tensor<i8[1, 2]>(-128, 127)");
  EXPECT_EQ(to_string(tensor<uint8_t>(DType::kUInt8, {1}, {255})), "tensor<u8[1]>(255)");
  EXPECT_EQ(to_string(tensor<uint8_t>(DType::kBool, {2}, {1, 0})), "tensor<bool[2]>(true, false)");
  EXPECT_EQ(to_string(tensor<int64_t>(DType::kAnyInt, {}, {5})), "tensor<int[]>(5)");
  EXPECT_EQ(to_string(tensor<double>(DType::kAnyFloat, {}, {2.5})), "tensor<float[]>(2.5)");
  EXPECT_EQ(to_string(tensor<double>(DType::kFloat64, {0}, {})), "tensor<f64[0]>()");
}

// Bit patterns of IEEE 754 binary16: sign 1, exponent 5, fraction 10.
TEST(HostValuePrint, WidensHalvesExactly) {
  EXPECT_EQ(to_string(tensor<uint16_t>(DType::kFloat16, {6},
                                       {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0xfc00})),
            "tensor<f16[6]>(1.0, -2.0, 65504.0, 5.960464477539063e-08, -0.0, -inf)");
  EXPECT_EQ(to_string(tensor<uint16_t>(DType::kFloat16, {2}, {0x7e00, 0x3555})),
            "tensor<f16[2]>(nan, 0.333251953125)");
  EXPECT_EQ(to_string(tensor<uint16_t>(DType::kBFloat16, {3}, {0x3f80, 0x4049, 0xff80})),
            "tensor<bf16[3]>(1.0, 3.140625, -inf)");
}

TEST(HostValueEquality, KeepsTypesApart) {
  EXPECT_EQ(HostValue(1), HostValue(1));
  EXPECT_FALSE(HostValue(1) == HostValue(1.0));
  EXPECT_FALSE(HostValue(1) == HostValue(true));
  EXPECT_FALSE(HostValue::tuple({1}) == HostValue::list({1}));
  EXPECT_FALSE(HostValue("f32") == HostValue(DType::kFloat32));
}

TEST(HostValueEquality, ComparesDoublesByBits) {
  EXPECT_EQ(HostValue(std::nan("")), HostValue(std::nan("")));
  EXPECT_FALSE(HostValue(0.0) == HostValue(-0.0));
}

TEST(HostValueEquality, LooksInside) {
  EXPECT_EQ(HostValue(Slice{1, 2, 3}), HostValue(Slice{1, 2, 3}));
  EXPECT_FALSE(HostValue(Slice{1, 2, 3}) == HostValue(Slice{1, 2, {}}));
  EXPECT_EQ(HostValue::ints({1, 2}), HostValue::tuple({1, 2}));
  EXPECT_EQ(tensor<float>(DType::kFloat32, {1}, {1.0F}),
            tensor<float>(DType::kFloat32, {1}, {1.0F}));
  EXPECT_FALSE(tensor<float>(DType::kFloat32, {1}, {1.0F}) ==
               tensor<float>(DType::kFloat32, {}, {1.0F}));
}

TEST(HostValueEquality, ComparesOpaqueByPointer) {
  const auto object = std::make_shared<const int>(1);
  EXPECT_EQ(HostValue(Opaque{object, "a"}), HostValue(Opaque{object, "b"}));
  EXPECT_FALSE(HostValue(Opaque{object, "a"}) ==
               HostValue(Opaque{std::make_shared<const int>(1), "a"}));
}

TEST(HostValueHash, IsEqualForEqualValues) {
  EXPECT_EQ(HostValue::ints({1, 2}).hash(), HostValue::tuple({1, 2}).hash());
  EXPECT_EQ(HostValue(Slice{1, {}, 2}).hash(), HostValue(Slice{1, {}, 2}).hash());
  EXPECT_EQ(HostValue("abc").hash(), HostValue(std::string("abc")).hash());
}

TEST(HostValueHash, TellsNearValuesApart) {
  EXPECT_NE(HostValue(1).hash(), HostValue(1.0).hash());
  EXPECT_NE(HostValue::ints({1, 2}).hash(), HostValue::ints({2, 1}).hash());
  EXPECT_NE(HostValue::tuple({1}).hash(), HostValue::list({1}).hash());
}

TEST(HostValueNumber, WidensToDouble) {
  EXPECT_EQ(HostValue(3).as_number(), 3.0);
  EXPECT_EQ(HostValue(true).as_number(), 1.0);
  EXPECT_EQ(HostValue(0.25).as_number(), 0.25);
}

}  // namespace
}  // namespace mithril::core

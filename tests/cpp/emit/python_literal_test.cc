#include "emit/python_literal.h"

#include <limits>

#include <gtest/gtest.h>

namespace mithril::emit {
namespace {

using core::DType;
using core::HostValue;

std::string text(const HostValue& value) {
  PythonLiterals literals;
  literals.size = [](core::SymbolicInt size) { return fmt::format("n{}", size.expr); };
  literals.constant = [](const HostValue&) { return "C[0]"; };
  return python_literal(value, literals);
}

TEST(PythonLiteral, IsWhatPythonReadsBack) {
  EXPECT_EQ(text(HostValue()), "None");
  EXPECT_EQ(text(true), "True");
  EXPECT_EQ(text(int64_t{-3}), "-3");
  EXPECT_EQ(text(2.0), "2.0");
  EXPECT_EQ(text(1e30), "1e+30");
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(DType::kBool), "ops.bool_");
  EXPECT_EQ(text(DType::kBFloat16), "ops.bfloat16");
  EXPECT_EQ(text(core::EllipsisValue{}), "...");
  EXPECT_EQ(text(core::SymbolicInt{2}), "n2");
  EXPECT_EQ(text(core::Slice{HostValue(1), HostValue(), HostValue(-1)}), "slice(1, None, -1)");
}

TEST(PythonLiteral, NestsSequences) {
  EXPECT_EQ(text(HostValue::tuple({})), "()");
  EXPECT_EQ(text(HostValue::ints({7})), "(7,)");
  EXPECT_EQ(text(HostValue::tuple({HostValue(1), HostValue::list({HostValue(2.5), true})})),
            "(1, [2.5, True])");
}

TEST(PythonLiteral, TensorsAndStringsAreConstants) {
  EXPECT_EQ(text("\"); import os  #"), "C[0]");
  EXPECT_EQ(text(std::make_shared<const core::TensorData>()), "C[0]");
}

TEST(PythonLiteral, OpaqueValuesAreConstants) { EXPECT_EQ(text(core::Opaque{}), "C[0]"); }

TEST(PythonNumber, IsShortAndExactInItsType) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(python_number(0.1, DType::kFloat32), "0.1");
  EXPECT_EQ(python_number(0.1, DType::kFloat64), "0.1");
  EXPECT_EQ(python_number(0.1, DType::kBFloat16), "0.10009765625");
  EXPECT_EQ(python_number(3.4028234663852886e38, DType::kFloat32), "3.4028234663852886e+38");
  EXPECT_EQ(python_number(3.0, DType::kFloat32), "3.0");
  EXPECT_EQ(python_number(2.0, DType::kInt32), "2");
  EXPECT_EQ(python_number(2.0, DType::kBool), "True");
  EXPECT_EQ(python_number(infinity, DType::kFloat32), "inf");
  EXPECT_EQ(python_number(-infinity, DType::kFloat16), "-inf");
  EXPECT_EQ(python_number(std::numeric_limits<double>::quiet_NaN(), DType::kFloat64), "nan");
  EXPECT_EQ(python_number(-0.0, DType::kFloat64), "-0.0");
}

TEST(PythonName, IsAnIdentifierAndNoKeyword) {
  EXPECT_TRUE(is_python_name("conv2d"));
  EXPECT_TRUE(is_python_name("_x"));
  for (const char* name : {"", "2d", "a-b", "a.b", "lambda", "None", "x\n", "é"}) {
    EXPECT_FALSE(is_python_name(name)) << name;
  }
}

}  // namespace
}  // namespace mithril::emit

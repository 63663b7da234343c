// Covers: tile/extern_lane.cc
#include "tile/math.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "tile/accuracy.h"
#include "tile/extern_lane.h"
#include "tile/scalar_lane.h"

namespace mithril::tile {
namespace {

#include "golden.inc"

using F = ScalarLane<float>;
using D = ScalarLane<double>;

struct Function {
  const char* name;
  float (*f32)(float);
  double (*f64)(double);
};

// A list of calls without separators:
// clang-format off
#define MITHRIL_FUNCTIONS(F) \
  F(exp) F(expm1) F(exp2) F(log) F(log1p) F(log2) F(tanh) F(sigmoid) F(erf) F(erfc) F(gelu) \
  F(gelu_tanh) F(silu) F(softplus) F(sin) F(cos) F(rsqrt)
// clang-format on
#define MITHRIL_ENTRY(f) \
  {#f, [](float x) { return math::f(F(x)).v; }, [](double x) { return math::f(D(x)).v; }},

const Function kFunctions[] = {MITHRIL_FUNCTIONS(MITHRIL_ENTRY)};

const Function& find(const std::string& name) {
  for (const Function& f : kFunctions) {
    if (name == f.name) return f;
  }
  throw std::out_of_range(name);
}

/// Of a result whose exact value is hi + lo.
double ulp_error(double got, double hi, double lo) {
  if (got == hi && std::isinf(hi)) return 0;
  const int exponent = hi == 0 ? -1022 : std::max(std::ilogb(hi), -1022);
  return std::ldexp(std::fabs((got - hi) - lo), 52 - exponent);
}

class MathSweep : public ::testing::TestWithParam<Function> {};

// A stride that is no multiple of two visits all exponents, signs and low bits.
TEST_P(MathSweep, Float32StaysWithinItsBound) {
  const Function& f = GetParam();
  const testing::Accuracy& known = testing::accuracy_of(f.name);
  double worst = 0;
  uint32_t at = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 16411) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const double error = testing::ulp_error(f.f32(x), known.in_double(static_cast<double>(x)));
    if (error > worst) {
      worst = error;
      at = static_cast<uint32_t>(bits);
    }
  }
  EXPECT_LE(worst, known.most32) << f.name << " at 0x" << std::hex << at;
}

TEST_P(MathSweep, Float32SpecialsAndWorstInput) {
  const Function& f = GetParam();
  const testing::Accuracy& known = testing::accuracy_of(f.name);
  for (const float x : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f,
                        0x1p-126f, 3.4028235e38f, -3.4028235e38f, known.worst32, -known.worst32}) {
    EXPECT_LE(testing::ulp_error(f.f32(x), known.in_double(static_cast<double>(x))), known.most32)
        << f.name << "(" << x << ") = " << f.f32(x);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MathSweep, ::testing::ValuesIn(kFunctions),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST(Math, Float64AgreesWithHighPrecision) {
  for (const GoldenPoint& point : kGolden) {
    const Function& f = find(point.function);
    const testing::Accuracy& known = testing::accuracy_of(f.name);
    // The low part of a subnormal does not exist: its reference is only the nearest double.
    const double slack = std::fabs(point.hi) < 0x1p-1022 ? 0.5 : 0;
    EXPECT_LE(ulp_error(f.f64(point.x), point.hi, point.lo), known.most64 + slack)
        << point.function << "(" << point.x << ") = " << f.f64(point.x);
  }
}

TEST(Math, Float64PowerAgreesWithHighPrecision) {
  for (const GoldenPower& point : kGoldenPowers) {
    const double got = pow_lane(point.x, point.y);
    EXPECT_LE(ulp_error(got, point.hi, point.lo), std::fabs(got) < 0x1p-1022 ? 0.8 : 0.6)
        << point.x << " ** " << point.y << " = " << got;
  }
}

float pow_f32(float x, float y) {
  return static_cast<float>(math::pow_f32(D(static_cast<double>(x)), D(static_cast<double>(y))).v);
}

// C99 Annex F fixes every pair of these; glibc follows it.
TEST(Math, PowerHasTheSpecialCasesOfC99) {
  const double values[] = {0.0,   -0.0,   1.0,  -1.0,      2.0,      -2.0, 3.0,
                           -3.0,  0.5,    -0.5, 2.5,       -2.5,     1e30, -1e30,
                           1e-30, -1e-30, 1e18, 16777217., INFINITY, NAN,  -INFINITY};
  for (const double x : values) {
    for (const double y : values) {
      const auto xf = static_cast<float>(x), yf = static_cast<float>(y);
      const auto wide = std::pow(static_cast<double>(xf), static_cast<double>(yf));
      EXPECT_LE(testing::ulp_error(pow_f32(xf, yf), wide), 0.51) << x << " ** " << y;
      const double got = pow_lane(x, y), wanted = std::pow(x, y);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(got)) << x << " ** " << y << " = " << got;
      } else {
        EXPECT_LE(ulp_error(got, wanted, 0), 1.1) << x << " ** " << y << " = " << got;
        EXPECT_EQ(std::signbit(got), std::signbit(wanted)) << x << " ** " << y;
      }
    }
  }
}

TEST(Math, PythonDivision) {
  EXPECT_EQ(python_mod(-7.5, 2.0), 0.5);
  EXPECT_EQ(python_mod(7.5, -2.0), -0.5);
  EXPECT_EQ(python_floordiv(-7.5, 2.0), -4);
  EXPECT_EQ(python_floordiv(7.0f, -2.0f), -4);
  EXPECT_EQ(python_floordiv(1.0, 0.1), 9);  // 0.1 is above 1/10
  EXPECT_TRUE(std::signbit(python_mod(4.0, -2.0)));
  EXPECT_EQ(python_floordiv(1.0, 0.0), INFINITY);
  EXPECT_TRUE(std::isnan(python_mod(1.0, 0.0)));
}

}  // namespace
}  // namespace mithril::tile

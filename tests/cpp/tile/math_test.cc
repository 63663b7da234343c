// Covers: tile/extern_lane.cc
#include "tile/math.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "tile/extern_lane.h"
#include "tile/scalar_lane.h"

namespace mithril::tile {
namespace {

#include "golden.inc"

using F = ScalarLane<float>;
using D = ScalarLane<double>;

double sigmoid_reference(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}
double gelu_reference(double x) {
  return x == -INFINITY ? -0.0 : x * (0.5 * std::erfc(x * -M_SQRT1_2));
}
double gelu_tanh_reference(double x) {
  const double v = 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  return x == -INFINITY ? -0.0 : x * sigmoid_reference(v);
}
double silu_reference(double x) { return x == -INFINITY ? -0.0 : x * sigmoid_reference(x); }
double softplus_reference(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double rsqrt_reference(double x) { return 1 / std::sqrt(x); }

struct Function {
  const char* name;
  float (*f32)(float);
  double (*f64)(double);
  double (*reference)(double);  // in float64, for float32
  double bound32, bound64;      // ULP
  float worst;                  // of all float32 inputs
};

#define MITHRIL_ENTRY(f, reference, bound32, bound64, worst)                                       \
  {                                                                                                \
#f, [](float x) { return math::f(F(x)).v; }, [](double x) { return math::f(D(x)).v; },         \
                                                                                        reference, \
                                                                                        bound32,   \
                                                                                        bound64,   \
                                                                                        worst      \
  }
#define MITHRIL_LIBM(f) [](double x) { return std::f(x); }

const Function kFunctions[] = {
    MITHRIL_ENTRY(exp, MITHRIL_LIBM(exp), 0.76, 0.76, -0x1.5ecadp+6f),
    MITHRIL_ENTRY(expm1, MITHRIL_LIBM(expm1), 0.86, 0.86, 0x1.69e9d4p-2f),
    MITHRIL_ENTRY(exp2, MITHRIL_LIBM(exp2), 0.77, 0.76, -0x1.fa1ee4p+6f),
    MITHRIL_ENTRY(log, MITHRIL_LIBM(log), 0.74, 0.74, 0x1.564dcp-1f),
    MITHRIL_ENTRY(log1p, MITHRIL_LIBM(log1p), 0.82, 0.80, 0x1.5ed3cap-2f),
    MITHRIL_ENTRY(log2, MITHRIL_LIBM(log2), 0.82, 0.78, 0x1.559078p+0f),
    MITHRIL_ENTRY(tanh, MITHRIL_LIBM(tanh), 0.76, 0.70, 0x1.000f0ep-3f),
    MITHRIL_ENTRY(sigmoid, sigmoid_reference, 0.76, 0.76, -0x1.5ecadp+6f),
    MITHRIL_ENTRY(erf, MITHRIL_LIBM(erf), 0.91, 1.0, 0x1.054954p+0f),
    MITHRIL_ENTRY(erfc, MITHRIL_LIBM(erfc), 1.05, 3.2, 0x1.f48c32p+2f),
    MITHRIL_ENTRY(gelu, gelu_reference, 0.83, 1.9, -0x1.a4b1aap+3f),
    MITHRIL_ENTRY(gelu_tanh, gelu_tanh_reference, 0.79, 0.76, -0x1.434c98p+3f),
    MITHRIL_ENTRY(silu, silu_reference, 0.78, 0.76, -0x1.6f89e2p+6f),
    MITHRIL_ENTRY(softplus, softplus_reference, 0.87, 0.80, -0x1.1810d8p+0f),
    MITHRIL_ENTRY(sin, MITHRIL_LIBM(sin), 0.73, 0.72, 0x1.2e60dcp+62f),
    MITHRIL_ENTRY(cos, MITHRIL_LIBM(cos), 0.73, 0.72, 0x1.a628dap+113f),
    MITHRIL_ENTRY(rsqrt, rsqrt_reference, 0.501, 0.501, 0x1.13e07p-129f),
};

const Function& find(const std::string& name) {
  for (const Function& f : kFunctions) {
    if (name == f.name) return f;
  }
  throw std::out_of_range(name);
}

/// In units of the last place of the reference's binade; infinity for a wrong special or zero sign.
double ulp_error(float got, double wanted) {
  if (std::isnan(wanted) || std::isnan(got)) {
    return std::isnan(wanted) && std::isnan(got) ? 0 : INFINITY;
  }
  const double limit = 0x1p128 - 0x1p103;
  if (std::fabs(wanted) >= limit) {
    return std::isinf(got) && (got > 0) == (wanted > 0) ? 0 : INFINITY;
  }
  if (got == 0 && std::signbit(got) != std::signbit(wanted)) return INFINITY;
  const int exponent = wanted == 0 ? -126 : std::max(std::ilogb(wanted), -126);
  const double value = std::isinf(got) ? std::copysign(0x1p128, got) : static_cast<double>(got);
  return std::ldexp(std::fabs(value - wanted), 23 - exponent);
}

double ulp_error(double got, double hi, double lo) {
  if (got == hi && std::isinf(hi)) return 0;
  const int exponent = hi == 0 ? -1022 : std::max(std::ilogb(hi), -1022);
  return std::ldexp(std::fabs((got - hi) - lo), 52 - exponent);
}

class MathSweep : public ::testing::TestWithParam<Function> {};

// A stride that is no multiple of two visits all exponents, signs and low bits.
TEST_P(MathSweep, Float32StaysWithinItsBound) {
  const Function& f = GetParam();
  double worst = 0;
  uint32_t at = 0;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 16411) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const double error = ulp_error(f.f32(x), f.reference(static_cast<double>(x)));
    if (error > worst) {
      worst = error;
      at = static_cast<uint32_t>(bits);
    }
  }
  EXPECT_LE(worst, f.bound32) << f.name << " at 0x" << std::hex << at;
}

TEST_P(MathSweep, Float32SpecialsAndWorstInput) {
  const Function& f = GetParam();
  for (const float x : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f,
                        0x1p-126f, 3.4028235e38f, -3.4028235e38f, f.worst, -f.worst}) {
    EXPECT_LE(ulp_error(f.f32(x), f.reference(static_cast<double>(x))), f.bound32)
        << f.name << "(" << x << ") = " << f.f32(x);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MathSweep, ::testing::ValuesIn(kFunctions),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST(Math, Float64AgreesWithHighPrecision) {
  for (const GoldenPoint& point : kGolden) {
    const Function& f = find(point.function);
    // The low part of a subnormal does not exist: its reference is only the nearest double.
    const double slack = std::fabs(point.hi) < 0x1p-1022 ? 0.5 : 0;
    EXPECT_LE(ulp_error(f.f64(point.x), point.hi, point.lo), f.bound64 + slack)
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
      EXPECT_LE(ulp_error(pow_f32(xf, yf), wide), 0.51) << x << " ** " << y;
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

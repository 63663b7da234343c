#include "tile/accuracy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#ifdef MITHRIL_QUADMATH
#include <quadmath.h>
#endif

namespace mithril::tile::testing {
namespace {

// ---- functions of one precision

// A list of calls without separators:
// clang-format off
#define MITHRIL_LIBRARY(F) \
  F(exp) F(expm1) F(exp2) F(log) F(log1p) F(log2) F(tanh) F(erf) F(erfc) F(sin) F(cos) F(acos) F(sqrt)
// clang-format on

struct InDouble {
  using T = double;
#define MITHRIL_DOUBLE(f) \
  static T f(T x) { return std::f(x); }
  MITHRIL_LIBRARY(MITHRIL_DOUBLE)
};

#ifdef MITHRIL_QUADMATH
struct InQuad {
  using T = Quad;
#define MITHRIL_QUAD(f) \
  static T f(T x) { return f##q(x); }
  MITHRIL_LIBRARY(MITHRIL_QUAD)
};
#endif

/// What the library lacks, too.
template <class Library>
struct Functions : Library {
  using T = typename Library::T;
  static T sigmoid(T x) {
    if (x >= 0) return 1 / (1 + Library::exp(-x));
    const T e = Library::exp(x);
    return e / (1 + e);
  }
  /// The share of x far below 0 is 0 before x is infinite.
  static T gated(T x, T share) { return share == 0 ? T(-0.0) : x * share; }
  static T silu(T x) { return gated(x, sigmoid(x)); }
  static T gelu(T x) { return gated(x, Library::erfc(-x * Library::sqrt(T(0.5))) / 2); }
  static T gelu_tanh(T x) {
    const T two_over_pi = 1 / Library::acos(T(0)), cubic = T(44715) / 1000000;
    return gated(x, sigmoid(2 * Library::sqrt(two_over_pi) * (x + cubic * x * x * x)));
  }
  static T softplus(T x) {
    const T tail = Library::log1p(Library::exp(x > 0 ? -x : x));
    return x > 0 ? x + tail : tail;
  }
  static T rsqrt(T x) { return 1 / Library::sqrt(x); }
};

// ---- the table

struct Use {
  const char* name;
  Opcode opcode;
  double low, high;
};

constexpr Use kUses[] = {
    {"exp", Opcode::kExp, -10, 10},      {"expm1", Opcode::kExpm1, -10, 10},
    {"exp2", Opcode::kExp2, -10, 10},    {"log", Opcode::kLog, 0, 10},
    {"log1p", Opcode::kLog1p, -0.9, 10}, {"log2", Opcode::kLog2, 0, 10},
    {"tanh", Opcode::kTanh, -4, 4},      {"sigmoid", Opcode::kSigmoid, -10, 10},
    {"erf", Opcode::kErf, -4, 4},        {"erfc", Opcode::kErfc, -4, 4},
    {"gelu", Opcode::kGelu, -6, 6},      {"gelu_tanh", Opcode::kGeluTanh, -6, 6},
    {"silu", Opcode::kSilu, -10, 10},    {"softplus", Opcode::kSoftplus, -10, 10},
    {"sin", Opcode::kSin, -10, 10},      {"cos", Opcode::kCos, -10, 10},
    {"rsqrt", Opcode::kRsqrt, 0, 10},
};

constexpr const Use& use_of(std::string_view name) {
  return *std::find_if(std::begin(kUses), std::end(kUses),
                       [&](const Use& use) { return name == use.name; });
}

#ifdef MITHRIL_QUADMATH
#define MITHRIL_IN_QUAD(f) Functions<InQuad>::f
#else
#define MITHRIL_IN_QUAD(f) nullptr
#endif
#define MITHRIL_ACCURACY(f, most32, worst32, most64, worst64) \
  Accuracy{#f,                                                \
           use_of(#f).opcode,                                 \
           Functions<InDouble>::f,                            \
           MITHRIL_IN_QUAD(f),                                \
           use_of(#f).low,                                    \
           use_of(#f).high,                                   \
           most32,                                            \
           worst32,                                           \
           most64,                                            \
           worst64},

constexpr Accuracy kAccuracies[] = {
#include "tile/accuracy.inc"
};

}  // namespace

std::span<const Accuracy> accuracies() { return kAccuracies; }

const Accuracy& accuracy_of(std::string_view name) {
  for (const Accuracy& entry : kAccuracies) {
    if (name == entry.name) return entry;
  }
  throw std::out_of_range(std::string(name));
}

// Bit patterns instead of ldexp and ilogb: four thousand million inputs are measured.
double ulp_error(float got, double wanted) {
  if (std::isnan(wanted) || std::isnan(got)) {
    return std::isnan(wanted) && std::isnan(got) ? 0 : INFINITY;
  }
  constexpr double kOverflow = 0x1p128 - 0x1p103;
  if (std::fabs(wanted) >= kOverflow) {
    return std::isinf(got) && (got > 0) == (wanted > 0) ? 0 : INFINITY;
  }
  if (got == 0 && std::signbit(got) != std::signbit(wanted)) return INFINITY;
  const auto bits = std::bit_cast<uint64_t>(wanted);
  const int exponent = std::max(static_cast<int>(bits >> 52 & 2047) - 1023, -126);
  const auto per_unit = std::bit_cast<double>(static_cast<uint64_t>(1023 + 23 - exponent) << 52);
  const double value = std::isinf(got) ? std::copysign(0x1p128, got) : static_cast<double>(got);
  return std::fabs(value - wanted) * per_unit;
}

double ulp_error(double got, Quad wanted) {
  const bool is_nan = wanted != wanted;
  if (is_nan || std::isnan(got)) return is_nan && std::isnan(got) ? 0 : INFINITY;
  const Quad size = wanted < 0 ? -wanted : wanted;
  const Quad overflow = Quad(0x1p1023) * 2 - Quad(0x1p970);
  if (size >= overflow) return std::isinf(got) && (got > 0) == (wanted > 0) ? 0 : INFINITY;
  const auto nearest = static_cast<double>(wanted);
  if (got == 0 && std::signbit(got) != std::signbit(nearest)) return INFINITY;
  // The binade of what lies just below a power of two is that of the power once it is rounded.
  int exponent = nearest == 0 ? -1022 : std::max(std::ilogb(nearest), -1022);
  if (exponent > -1022 && size < Quad(std::ldexp(1.0, exponent))) --exponent;
  const Quad value = std::isinf(got) ? overflow * (got > 0 ? 1 : -1) : Quad(got);
  const Quad error = value < wanted ? wanted - value : value - wanted;
  // In two steps: of subnormal numbers the unit's inverse is infinite.
  return static_cast<double>(error * Quad(std::ldexp(1.0, -(exponent / 2))) *
                             Quad(std::ldexp(1.0, 52 - (exponent - exponent / 2))));
}

}  // namespace mithril::tile::testing

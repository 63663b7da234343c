// Elementary functions on vectors against high precision. `make accuracy` runs what is DISABLED_:
// every float32 input and a million float64 points of each function, some minutes each.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <random>

#include <gtest/gtest.h>

#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/run_program.h"
#include "backends/cpu/schedule/isa_table.h"
#include "tile/accuracy.h"
#include "tile/builder.h"

namespace mithril::cpu {
namespace {

using core::DType;
using tile::testing::accuracies;
using tile::testing::Accuracy;
using tile::testing::ulp_error;

constexpr uint64_t kPatterns = uint64_t{1} << 32;

const IsaTable& widest_table() {
#if defined(__x86_64__)
  if (supports(Isa::kAvx512)) return avx512::isa_table();
  if (supports(Isa::kAvx2)) return avx2::isa_table();
#endif
  return generic::isa_table();
}

template <class T>
constexpr DType kDType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;

/// What the interpreter of this machine makes of the inputs.
template <class T>
std::vector<T> computed(const Accuracy& of, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  const LaneFn fn = widest_table().lane(of.opcode, kDType<T>, kDType<T>, 0, Shape::kBoth);
  fn(y.data(), x.data(), nullptr, nullptr, static_cast<int64_t>(x.size()));
  return y;
}

template <class T>
struct Worst {
  double error = 0;
  T at = 0;
  void take(double other, T x) {
    if (other <= error) return;
    error = other;
    at = x;
  }
};

/// Every `stride`-th bit pattern.
Worst<float> sweep(const Accuracy& of, uint64_t stride) {
  constexpr size_t kBlock = 4096;
  Worst<float> worst;
  std::vector<float> x;
  for (uint64_t bits = 0; bits < kPatterns;) {
    x.clear();
    for (; x.size() < kBlock && bits < kPatterns; bits += stride) {
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    const std::vector<float> y = computed(of, x);
    for (size_t i = 0; i < x.size(); ++i) {
      worst.take(ulp_error(y[i], of.in_double(static_cast<double>(x[i]))), x[i]);
    }
  }
  return worst;
}

/// A quarter each: any bit pattern, where the function is used, from 2^-21 to 2^11, and into
/// overflow and underflow.
std::vector<double> drawn(const Accuracy& of, size_t count) {
  std::mt19937_64 rng(20261124);
  std::vector<double> x(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = rng();
    const double share = static_cast<double>(rng() >> 11) * 0x1p-53;
    const double reach = i % 4 == 3 ? std::fabs(of.low) < 10 ? 7 : 80 : 1;
    switch (i % 4) {
      case 0: x[i] = std::bit_cast<double>(bits); break;
      case 1:
      case 3: x[i] = reach * (of.low + (of.high - of.low) * share); break;
      default:
        x[i] = std::ldexp(bits % 2 == 0 ? 1 + share : -1 - share,
                          static_cast<int>(bits >> 8 & 31) - 21);
    }
  }
  return x;
}

Worst<double> sample(const Accuracy& of, size_t count) {
  Worst<double> worst;
  const std::vector<double> x = drawn(of, count), y = computed(of, x);
  for (size_t i = 0; i < count; ++i) worst.take(ulp_error(y[i], of.in_quad(x[i])), x[i]);
  return worst;
}

class MacroAccuracy : public ::testing::TestWithParam<Accuracy> {};

// An odd stride meets all exponents and signs, and low bits of every kind.
TEST_P(MacroAccuracy, OfFloat32IsAsMeasured) {
  const Worst<float> worst = sweep(GetParam(), 8191);
  EXPECT_LE(worst.error, GetParam().most32) << std::hexfloat << worst.at;
}

TEST_P(MacroAccuracy, OfFloat64IsAsMeasured) {
  if (!tile::testing::kHasQuad) GTEST_SKIP() << "this compiler has no libquadmath";
  const Worst<double> worst = sample(GetParam(), 4000);
  EXPECT_LE(worst.error, GetParam().most64) << std::hexfloat << worst.at;
}

TEST_P(MacroAccuracy, IsOneUlpAtTheWorstInputs) {
  const Accuracy& of = GetParam();
  EXPECT_LE(of.most32, 1);
  EXPECT_LE(of.most64, 1);
  const std::vector<float> x{of.worst32, -of.worst32};
  const std::vector<float> y = computed(of, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(ulp_error(y[i], of.in_double(static_cast<double>(x[i]))), of.most32) << x[i];
  }
  // The stored maximum is that input's, not a looser one.
  EXPECT_GT(ulp_error(y[0], of.in_double(static_cast<double>(x[0]))), of.most32 - 0.002);
  if (!tile::testing::kHasQuad) return;
  const double error = ulp_error(computed(of, std::vector<double>{of.worst64})[0],
                                 of.in_quad(static_cast<tile::testing::Quad>(of.worst64)));
  EXPECT_LE(error, of.most64);
  EXPECT_GT(error, of.most64 - 0.002);
}

// Interpreted and compiled; the negation makes it two instructions, which are compiled.
TEST_P(MacroAccuracy, IsTheSameInEveryEngine) {
  const tile::Opcode opcode = GetParam().opcode;
  tile::Builder t;
  t.store(-t.emit(opcode, {t.load(DType::kFloat32, tile::Level::kLane)}), tile::Level::kLane);
  const tile::Program program = t.finish();
  std::vector<float> x;
  for (uint64_t bits = 0; bits < kPatterns; bits += 65521) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const testing::Domain domain{{static_cast<int64_t>(x.size())}, {}};
  std::vector<float> wanted = computed(GetParam(), x);
  for (float& y : wanted) y = -y;
  for (const testing::Engine engine : testing::engines()) {
    const auto got = testing::run(program, engine, domain, {testing::bytes_of(x)});
    const int64_t at =
        testing::first_difference(DType::kFloat32, got[0], testing::bytes_of(wanted));
    EXPECT_EQ(at, -1) << name(engine) << " at " << std::hexfloat << x[static_cast<size_t>(at)];
  }
}

TEST_P(MacroAccuracy, DISABLED_OfEveryFloat32) {
  const Accuracy& of = GetParam();
  const Worst<float> worst = sweep(of, 1);
  std::printf("%-10s float32 %.4f ULP at %a\n", of.name, worst.error,
              static_cast<double>(worst.at));
  EXPECT_LE(worst.error, of.most32);
}

TEST_P(MacroAccuracy, DISABLED_OfAMillionFloat64) {
  if (!tile::testing::kHasQuad) GTEST_SKIP() << "this compiler has no libquadmath";
  const Accuracy& of = GetParam();
  const Worst<double> worst = sample(of, 1'000'000);
  std::printf("%-10s float64 %.4f ULP at %a\n", of.name, worst.error, worst.at);
  EXPECT_LE(worst.error, of.most64);
}

INSTANTIATE_TEST_SUITE_P(All, MacroAccuracy,
                         ::testing::ValuesIn(accuracies().begin(), accuracies().end()),
                         [](const auto& entry) { return std::string(entry.param.name); });

}  // namespace
}  // namespace mithril::cpu

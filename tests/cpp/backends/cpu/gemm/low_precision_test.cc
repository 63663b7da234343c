// Covers: backends/cpu/gemm/low_precision_isa.cc backends/cpu/gemm/matrix_tiles_isa.cc
// Covers: backends/cpu/gemm/bfloat_pairs_isa.cc
#include "backends/cpu/gemm/low_precision.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/packed_matrix.h"
#include "reference/support.h"

namespace mithril::testing_support {
namespace {

using core::PackedMatrix;
using core::WeightFormat;
using cpu::BFloatUnit;
using cpu::Isa;
using cpu::PackedProduct;
using cpu::PackedWay;

constexpr WeightFormat kFormats[] = {WeightFormat::kBFloat16, WeightFormat::kInt8,
                                     WeightFormat::kInt4, WeightFormat::kInt16};
constexpr int64_t kDepths[] = {1, 2, 15, 31, 32, 33, 63, 64, 65, 256, 257, 300};
constexpr int64_t kWidths[] = {1, 15, 16, 17, 31, 33, 48, 130};

using Weights = std::shared_ptr<const PackedMatrix>;

Weights random_weights(WeightFormat format, int64_t k, int64_t n, std::mt19937_64& random) {
  const Guarded<float> values(static_cast<size_t>(k * n));
  fill_random(values, random);
  return PackedMatrix::pack(format, {values.data(), k, n, n, 1}).or_throw();
}

// A run with x and y at guard pages; units in the given order.
std::vector<float> run(const PackedProduct& product, const Guarded<float>& x, int64_t count,
                       const std::vector<int64_t>& order) {
  const Guarded<float> y(static_cast<size_t>(count));
  fill_nan(y);
  const Guarded<std::max_align_t> scratch(product.scratch_bytes() / sizeof(std::max_align_t) + 4);
  auto* const aligned =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  for (const int64_t unit : order) {
    EXPECT_TRUE(product.run(unit, unit + 1, x.data(), y.data(), aligned));
  }
  return y.copy();
}

std::vector<int64_t> in_order(const PackedProduct& product) {
  std::vector<int64_t> out(static_cast<size_t>(product.units()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<float> run(const PackedProduct& product, const Guarded<float>& x, int64_t count) {
  return run(product, x, count, in_order(product));
}

struct Exact {
  double sum = 0, magnitudes = 0;
};

// With what stands for the weights, in float64.
Exact exact(const float* x, const PackedMatrix& weights, int64_t column, bool rounds_x = false) {
  Exact out;
  for (int64_t r = 0; r < weights.rows(); ++r) {
    const float left = rounds_x ? core::widen_bfloat16(core::round_to_bfloat16(x[r])) : x[r];
    const double product = static_cast<double>(left) * static_cast<double>(weights.at(r, column));
    out.sum += product;
    out.magnitudes += std::fabs(product);
  }
  return out;
}

void expect_near(const std::vector<float>& y, const Guarded<float>& x, const PackedMatrix& weights,
                 double relative, bool rounds_x = false) {
  const int64_t k = weights.rows(), n = weights.columns();
  for (size_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const Exact wanted = exact(x.data() + at / n * k, weights, at % n, rounds_x);
    ASSERT_LE(std::fabs(static_cast<double>(y[i]) - wanted.sum), relative * wanted.magnitudes)
        << name(weights.format()) << " " << k << " " << n << " at " << i;
  }
}

double few_rows_bound(int64_t k) { return static_cast<double>(k / 32 + 12) * 0x1p-24; }

// ---------------------------------------------------------------- few rows

TEST(FewRows, AreNearTheExactProductAndEqualOnEveryInstructionSet) {
  std::mt19937_64 random(1);
  for (const WeightFormat format : kFormats) {
    for (const int64_t k : kDepths) {
      for (const int64_t n : kWidths) {
        const Weights weights = random_weights(format, k, n, random);
        for (const int64_t m : {1, 2, 3, 4, 5, 7, 14}) {
          const Guarded<float> x(static_cast<size_t>(m * k), random() % 2 == 0);
          fill_random(x, random);
          std::vector<float> first;
          for (const Isa isa : supported_isas()) {
            const PackedProduct product(weights, m, {.isa = isa, .unit = BFloatUnit::kNone});
            ASSERT_EQ(product.way(), PackedWay::kFewRows);
            const std::vector<float> y = run(product, x, m * n);
            if (first.empty()) expect_near(y, x, *weights, few_rows_bound(k));
            if (first.empty()) first = y;
            ASSERT_EQ(first_difference(first, y), -1)
                << name(format) << " " << m << " " << n << " " << k << " " << cpu::name(isa);
          }
        }
      }
    }
  }
}

// The order that low_precision_parts.h states, written a second time.
TEST(FewRows, AddInTheStatedOrder) {
  std::mt19937_64 random(2);
  const int64_t k = 100, n = 20;
  const Weights weights = random_weights(WeightFormat::kBFloat16, k, n, random);
  const Guarded<float> x(static_cast<size_t>(k));
  fill_random(x, random);
  std::vector<float> wanted;
  for (int64_t c = 0; c < n; ++c) {
    float total = 0;
    for (int64_t block = 0; block < k; block += 32) {
      float sums[4] = {};
      for (int64_t r = block; r < std::min(k, block + 32); ++r) {
        sums[r % 4] = std::fma(x[r], weights->at(r, c), sums[r % 4]);
      }
      total = total + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    wanted.push_back(total);
  }
  EXPECT_EQ(first_difference(run(PackedProduct(weights, 1, {}), x, n), wanted), -1);
}

// ---------------------------------------------------------------- many rows

TEST(ManyRows, EqualTheCanonicalProductWithUnpackedWeights) {
  std::mt19937_64 random(3);
  for (const WeightFormat format : kFormats) {
    for (const int64_t k : {1, 33, 256, 300, 520}) {
      for (const int64_t n : {1, 17, 48, 130, 300}) {
        const Weights weights = random_weights(format, k, n, random);
        const int64_t m = 16 + static_cast<int64_t>(random() % 26);
        const Guarded<float> x(static_cast<size_t>(m * k), random() % 2 == 0);
        fill_random(x, random);
        std::vector<float> wanted;
        for (int64_t i = 0; i < m * n; ++i) {
          std::vector<std::pair<float, float>> products;
          for (int64_t r = 0; r < k; ++r) {
            products.emplace_back(x[i / n * k + r], weights->at(r, i % n));
          }
          wanted.push_back(canonical_sum(products));
        }
        for (const Isa isa : supported_isas()) {
          const PackedProduct product(weights, m, {.isa = isa, .unit = BFloatUnit::kNone});
          ASSERT_EQ(product.way(), PackedWay::kExpanded);
          ASSERT_EQ(first_difference(run(product, x, m * n), wanted), -1)
              << name(format) << " " << m << " " << n << " " << k << " " << cpu::name(isa);
        }
      }
    }
  }
}

TEST(ManyRows, StopWhenAskedTo) {
  std::mt19937_64 random(4);
  const Weights weights = random_weights(WeightFormat::kInt8, 64, 32, random);
  const PackedProduct product(weights, 16, {.unit = BFloatUnit::kNone});
  const std::vector<float> x(16 * 64);
  std::vector<float> y(16 * 32);
  std::vector<std::byte> scratch(product.scratch_bytes() + 64);
  const std::atomic<bool> cancel = true;
  EXPECT_FALSE(product.run(0, 1, x.data(), y.data(), scratch.data(), &cancel));
}

// ---------------------------------------------------------------- rounded rows

// A machine with tiles has pairs, too.
std::vector<BFloatUnit> units() {
  std::vector<BFloatUnit> out;
  for (const BFloatUnit unit : {BFloatUnit::kPairs, BFloatUnit::kTiles}) {
    if (unit <= cpu::detect_bfloat_unit()) out.push_back(unit);
  }
  return out;
}

TEST(RoundedRows, AreNearTheProductWithRoundedRows) {
  if (units().empty()) GTEST_SKIP() << "not on this machine: AVX512-BF16";
  std::mt19937_64 random(5);
  std::vector<int64_t> heights(33);
  std::iota(heights.begin(), heights.end(), 8);
  heights.push_back(128);
  for (const int64_t m : heights) {
    for (const int64_t k : {1, 31, 32, 33, 65, 300}) {
      for (const int64_t n : {1, 16, 17, 33, 130, 300}) {
        const Weights weights = random_weights(WeightFormat::kBFloat16, k, n, random);
        const Guarded<float> x(static_cast<size_t>(m * k), random() % 2 == 0);
        fill_random(x, random);
        for (const BFloatUnit unit : units()) {
          const PackedProduct product(weights, m, {.unit = unit});
          ASSERT_EQ(product.way(), PackedWay::kRounded);
          expect_near(run(product, x, m * n), x, *weights, static_cast<double>(k) * 0x1p-23, true);
        }
      }
    }
  }
}

// More rows than are rounded at once.
TEST(RoundedRows, AreAnyNumber) {
  if (units().empty()) GTEST_SKIP() << "not on this machine: AVX512-BF16";
  std::mt19937_64 random(6);
  const int64_t m = 150, k = 6000, n = 40;
  const Weights weights = random_weights(WeightFormat::kBFloat16, k, n, random);
  const Guarded<float> x(static_cast<size_t>(m * k));
  fill_random(x, random);
  for (const BFloatUnit unit : units()) {
    const PackedProduct product(weights, m, {.unit = unit});
    EXPECT_GT(product.units(), 1);
    expect_near(run(product, x, m * n), x, *weights, static_cast<double>(k) * 0x1p-23, true);
  }
}

// ---------------------------------------------------------------- all ways

// Products of every way, with their rows.
std::vector<std::pair<PackedProduct, int64_t>> products(const Weights& weights) {
  std::vector<std::pair<PackedProduct, int64_t>> out;
  for (const int64_t m : {3, 40}) {
    out.emplace_back(PackedProduct(weights, m, {.unit = BFloatUnit::kNone}), m);
    for (const BFloatUnit unit : units()) {
      out.emplace_back(PackedProduct(weights, m, {.unit = unit}), m);
    }
  }
  return out;
}

TEST(PackedProduct, HasEqualBitsForAnyUnits) {
  std::mt19937_64 random(7);
  const int64_t k = 100, n = 700;
  for (const WeightFormat format : kFormats) {
    const Weights weights = random_weights(format, k, n, random);
    for (const auto& [product, m] : products(weights)) {
      const Guarded<float> x(static_cast<size_t>(m * k));
      fill_random(x, random);
      const std::vector<float> wanted = run(product, x, m * n);
      std::vector<int64_t> order = in_order(product);
      std::shuffle(order.begin(), order.end(), random);
      EXPECT_EQ(first_difference(run(product, x, m * n, order), wanted), -1);
      const Guarded<float> y(static_cast<size_t>(m * n));
      std::vector<std::byte> scratch(product.scratch_bytes() + 64);
      void* at = scratch.data();
      size_t space = scratch.size();
      std::align(64, product.scratch_bytes(), at, space);
      product.run(0, product.units(), x.data(), y.data(), at);
      EXPECT_EQ(first_difference(y.copy(), wanted), -1);
    }
  }
}

TEST(PackedProduct, TakesNoRows) {
  std::mt19937_64 random(8);
  const Weights weights = random_weights(WeightFormat::kInt4, 64, 32, random);
  const PackedProduct product(weights, 0, {});
  EXPECT_TRUE(product.run(0, product.units(), nullptr, nullptr, nullptr));
}

TEST(PackedProduct, WhatIsNotFiniteReachesItsRowsAndColumns) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937_64 random(9);
  const int64_t k = 70, n = 20;
  for (const WeightFormat format : kFormats) {
    std::vector<float> values(static_cast<size_t>(k * n));
    for (float& value : values) value = static_cast<float>(random() % 7) + 1;
    values[static_cast<size_t>(40 * n + 3)] = kInfinity;
    const Weights weights = PackedMatrix::pack(format, {values.data(), k, n, n, 1}).or_throw();
    for (const auto& [product, m] : products(weights)) {
      const Guarded<float> x(static_cast<size_t>(m * k));
      std::fill(x.data(), x.data() + m * k, 1.F);
      x[k + 69] = kInfinity;  // of row 1
      x[2 * k + 5] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> y = run(product, x, m * n);
      for (int64_t i = 0; i < m * n; ++i) {
        const float value = y[static_cast<size_t>(i)];
        const int64_t row = i / n, column = i % n;
        const bool is_kept = format == WeightFormat::kBFloat16;
        if (row == 2 || (column == 3 && !is_kept)) {
          EXPECT_TRUE(std::isnan(value)) << i;
        } else if (row == 1 || column == 3) {
          EXPECT_EQ(value, kInfinity) << i;
        } else {
          EXPECT_TRUE(std::isfinite(value)) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

// The guard beside a product that only takes rows near 1, as ggml's do.
#include "backends/ggml/row_guard.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

namespace mithril::ggml {
namespace {

constexpr int64_t kWidth = 4, kWeights = 2;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kBlocks[] = {1, 2, 3, 4, -1, 0, 1, 2};

void to_float(const void* blocks, float* numbers, int64_t count) {
  std::memcpy(numbers, blocks, count * sizeof(float));
}

/// The results of rows, by a product that is asked for rows between 2^-6 and 2^10 alone.
std::vector<float> product(const std::vector<float>& rows, double factor = 1, int threads = 1) {
  const int64_t count = static_cast<int64_t>(rows.size()) / kWidth;
  std::vector<float> scaled(rows.size(), kNan), results(count * kWeights, kNan);
  const float* rows_at = rows.data();
  float *scaled_at = scaled.data(), *results_at = results.data();
  const std::byte* blocks_at = reinterpret_cast<const std::byte*>(kBlocks);
  RowGuard guard({&rows_at, &scaled_at, &results_at, &blocks_at, &factor, count, kWidth, kWeights,
                  kWidth * 4, to_float});
  for (int thread = 0; thread < threads; ++thread) guard.prepare(thread, threads);
  for (int64_t row = 0; row < count; ++row) {
    float most = 0;
    for (int64_t k = 0; k < kWidth; ++k) {
      most = std::fmax(most, std::fabs(scaled[row * kWidth + k]));
    }
    EXPECT_TRUE(most == 0 || (most >= 0x1p-6F && most <= 0x1p10F)) << most;
    for (int64_t i = 0; i < kWeights; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < kWidth; ++k) {
        sum += double{scaled[row * kWidth + k]} * kBlocks[i * kWidth + k];
      }
      results[row * kWeights + i] = static_cast<float>(sum);
    }
  }
  for (int thread = 0; thread < threads; ++thread) guard.finish(thread, threads);
  return results;
}

using Floats = std::vector<float>;

TEST(RowGuard, OrdinaryRowsStayAsTheyAre) {
  EXPECT_EQ(product({1, 2, 3, 4, 0, 0, 0, 0}), (Floats{30, 10, 0, 0}));
}

TEST(RowGuard, RowsOfAnySizeAreScaledExactly) {
  const float largest = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(product({1e10F, 0, 0, 0, 0, 1e-20F, 0, 0}), (Floats{1e10F, -1e10F, 2e-20F, 0}));
  EXPECT_EQ(product({largest, 0, 0, 0, least, 0, 0, 0}),
            (Floats{largest, -largest, least, -least}));
  EXPECT_EQ(product({0, largest, 0, 0}), (Floats{kInf, 0}));
}

TEST(RowGuard, RowsWithInfinitiesAreComputed) {
  EXPECT_EQ(product({kInf, 1, 1, 1, 0, 0, 0, -kInf}), (Floats{kInf, -kInf, -kInf, -kInf}));
  const Floats zero = product({0, kInf, 0, 0});
  EXPECT_EQ(zero[0], kInf);
  EXPECT_TRUE(std::isnan(zero[1]));  // inf times a weight of 0
}

TEST(RowGuard, RowsWithNanAreNan) {
  const Floats found = product({1, kNan, kInf, 1, 1, 2, 3, 4});
  EXPECT_TRUE(std::isnan(found[0]) && std::isnan(found[1]));
  EXPECT_EQ((Floats{found[2], found[3]}), (Floats{30, 10}));
}

TEST(RowGuard, TheFactorOfWeightsCounts) {
  EXPECT_EQ(product({1, 2, 3, 4, 1e10F, 0, 0, 0, kInf, 1, 1, 1}, 0.5),
            (Floats{15, 5, 5e9F, -5e9F, kInf, -kInf}));
}

TEST(RowGuard, ThreadsShareTheRows) {
  Floats rows;
  for (int row = 0; row < 7; ++row) {
    rows.insert(rows.end(), {std::ldexp(1.0F, 20 * row - 60), 1e-30F, row == 3 ? kInf : 0, 0});
  }
  EXPECT_EQ(product(rows, 1, 3), product(rows));
}

}  // namespace
}  // namespace mithril::ggml

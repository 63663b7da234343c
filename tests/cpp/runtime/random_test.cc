#include "runtime/random.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::runtime {
namespace {

using Block = std::array<uint32_t, 2>;

// Known answers of the Random123 distribution (kat_vectors, threefry2x32 with 20 rounds).
TEST(Random, ThreefryKnownAnswers) {
  EXPECT_EQ(threefry({0, 0}, 0), (Block{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry({0xffffffff, 0xffffffff}, ~uint64_t{0}), (Block{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry({0x13198a2e, 0x03707344}, 0x85a308d3'243f6a88),
            (Block{0xc4923a9c, 0x483df7a0}));
}

// Test vectors of the FNV authors.
TEST(Random, HashKnownAnswers) {
  EXPECT_EQ(hash_path(""), 0xcbf29ce484222325);
  EXPECT_EQ(hash_path("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(hash_path("foobar"), 0x85944171f73967e8);
}

TEST(Random, KeysDependOnSeedAndPathAlone) {
  EXPECT_EQ(key_of_seed(0x0123456789abcdef), (RandomKey{0x89abcdef, 0x01234567}));
  EXPECT_EQ(derive_key(7, "mlp.weight"), derive_key(7, "mlp.weight"));
  std::set<uint64_t> seen;
  const auto add = [&](RandomKey key) { seen.insert(uint64_t{key.first} << 32 | key.second); };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const char* path : {"", "a", "b", "a.b", "b.a"}) add(derive_key(seed, path));
  }
  for (uint64_t i = 0; i < 100; ++i) add(split_key({1, 2}, i));
  EXPECT_EQ(seen.size(), 200u);
  const Block last = threefry({1, 2}, ~uint64_t{0});
  EXPECT_EQ(split_key({1, 2}, 0), (RandomKey{last[0], last[1]}));
}

TEST(Random, UniformLayout) {
  std::vector<float> f(3);
  std::vector<double> d(3);
  std::vector<uint32_t> bits(3);
  fill_uniform({0, 0}, 0.0f, 1.0f, f);
  fill_uniform({0, 0}, 0.0, 1.0, d);
  fill_bits({0, 0}, bits);
  EXPECT_EQ(bits[0], 0x6b200159u);
  EXPECT_EQ(f[0], static_cast<float>(0x6b2001) / 16777216.0f);
  EXPECT_EQ(d[0], std::ldexp(0x6b200159, -32) + std::ldexp(0x99ba4efe >> 11, -53));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(bits[i], threefry({0, 0}, i)[0]);
}

TEST(Random, UniformStaysInItsRange) {
  std::vector<float> f(100'000);
  fill_uniform(derive_key(0, "w"), -0.25f, 0.75f, f);
  double sum = 0, squares = 0;
  for (const float value : f) {
    ASSERT_GE(value, -0.25f);
    ASSERT_LT(value, 0.75f);
    sum += value;
    squares += (value - 0.25) * (value - 0.25);
  }
  EXPECT_NEAR(sum / 1e5, 0.25, 0.005);
  EXPECT_NEAR(squares / 1e5, 1.0 / 12, 0.002);
  // a range of two neighbours rounds up half of the time, and must not
  const float next = std::nextafter(1.0f, 2.0f);
  fill_uniform({1, 1}, 1.0f, next, f);
  for (const float value : f) ASSERT_EQ(value, 1.0f);
  fill_uniform({1, 1}, 3.0f, 3.0f, f);
  for (const float value : f) ASSERT_EQ(value, 3.0f);
}

TEST(Random, ADrawIsAPrefixOfALongerOne) {
  std::vector<double> few(10), many(1000);
  fill_uniform({3, 4}, -1.0, 1.0, few);
  fill_uniform({3, 4}, -1.0, 1.0, many);
  EXPECT_EQ(few, std::vector<double>(many.begin(), many.begin() + 10));
}

TEST(Random, IntegersAreEvenAndInRange) {
  std::vector<int64_t> values(60'000);
  fill_integers({5, 6}, -2, 4, values);
  std::vector<int> counts(6);
  for (const int64_t value : values) {
    ASSERT_GE(value, -2);
    ASSERT_LT(value, 4);
    ++counts[static_cast<size_t>(value + 2)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  fill_integers({5, 6}, 9, 9, values);
  EXPECT_EQ(values[123], 9);
}

// Of 3 * 2^62 values a fourth of all attempts is refused; without that, thirds would be uneven.
TEST(Random, IntegersOfHugeRangesHaveNoBias) {
  std::vector<int64_t> values(30'000);
  const int64_t third = int64_t{1} << 62;
  fill_integers({7, 8}, std::numeric_limits<int64_t>::min(), third, values);
  std::vector<int> counts(3);
  for (const int64_t value : values) {
    ASSERT_LT(value, third);
    ++counts[value < -third ? 0 : value < 0 ? 1 : 2];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
  fill_integers({7, 8}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                values);
}

}  // namespace
}  // namespace mithril::runtime

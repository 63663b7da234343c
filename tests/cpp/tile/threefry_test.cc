#include "tile/threefry.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "tile/builder.h"
#include "tile/evaluate.h"

namespace mithril::tile {
namespace {

using core::DType;

// Known answers of Random123 (tests/kat_vectors, threefry2x32 20).
TEST(Threefry, KnownAnswers) {
  EXPECT_EQ(threefry2x32(0, 0, 0, 0), (std::array<uint32_t, 2>{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry2x32(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff),
            (std::array<uint32_t, 2>{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry2x32(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3),
            (std::array<uint32_t, 2>{0xc4923a9c, 0x483df7a0}));
}

template <class T>
std::vector<T> draw(int64_t n, const std::function<Reg(Builder&, Reg, Reg)>& body) {
  Builder t;
  t.store(body(t, t.constant_int(DType::kInt32, 0x13198a2e), t.constant_int(DType::kInt32, 5)));
  const auto out = evaluate(t.finish(), n, 1, {});
  std::vector<T> values(static_cast<size_t>(n));
  std::memcpy(values.data(), out[0].data(), out[0].size());
  return values;
}

TEST(Threefry, InstructionTakesTheCounterApart) {
  Builder t;
  const Reg k0 = t.constant_int(DType::kInt32, 0x13198a2e);
  const Reg k1 = t.constant_int(DType::kInt32, 0x03707344);
  const Reg counter = t.constant_bits(DType::kInt64, 0x85a308d3243f6a88u);
  t.store(t.threefry(k0, k1, counter, 0));
  t.store(t.threefry(k0, k1, counter, 1));
  t.store(t.threefry(k0, k1, t.cast(counter, DType::kInt32), 1));
  const auto out = evaluate(t.finish(), 1, 1, {});
  const auto word = [&](size_t k) {
    uint32_t w;
    std::memcpy(&w, out[k].data(), 4);
    return w;
  };
  EXPECT_EQ(word(0), 0xc4923a9cu);
  EXPECT_EQ(word(1), 0x483df7a0u);
  EXPECT_EQ(word(2), threefry2x32(0x13198a2e, 0x03707344, 0x243f6a88, 0)[1]);
}

TEST(Threefry, UniformsAreTheLeadingBits) {
  const auto f32 = draw<float>(
      100, [](Builder& t, Reg a, Reg b) { return t.uniform(DType::kFloat32, a, b, t.position()); });
  const auto f64 = draw<double>(
      100, [](Builder& t, Reg a, Reg b) { return t.uniform(DType::kFloat64, a, b, t.position()); });
  for (uint32_t i = 0; i < 100; ++i) {
    const auto words = threefry2x32(0x13198a2e, 5, i, 0);
    EXPECT_EQ(f32[i], static_cast<float>(words[0] >> 8) * 0x1p-24f);
    const uint64_t both = static_cast<uint64_t>(words[0]) << 32 | words[1];
    EXPECT_NEAR(f64[i], static_cast<double>(both >> 11) * 0x1p-53, 0x1p-26);
    EXPECT_EQ(f64[i],
              (static_cast<double>(words[0] >> 5) * 0x1p26 + static_cast<double>(words[1] >> 6)) *
                  0x1p-53);
  }
}

TEST(Threefry, NormalsHaveTheMomentsOfANormal) {
  const auto z = draw<float>(20000, [](Builder& t, Reg a, Reg b) {
    return t.normal(DType::kFloat32, a, b, t.position());
  });
  double sum = 0, squares = 0, fourth = 0;
  for (const float x : z) {
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += static_cast<double>(x) * x;
    fourth += static_cast<double>(x) * x * x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.04);
  EXPECT_NEAR(fourth / 20000, 3, 0.3);
}

}  // namespace
}  // namespace mithril::tile

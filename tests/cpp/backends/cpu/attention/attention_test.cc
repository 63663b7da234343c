// Covers: select/attention_sizes.cc
#include "backends/cpu/attention/attention.h"

#include "backends/cpu/attention/attention_cases.h"
#include "backends/cpu/kernels.h"

namespace mithril::cpu {
namespace {

using attention_cases::Case;
using attention_cases::Data;
using attention_cases::fast_isas;
using core::DType;
using core::HostValue;
using select::Operand;

template <class T>
class Attention : public ::testing::Test {
 protected:
  void check(const Case& c) {
    const Data<T> data(c, random_);
    const std::vector<double> expected = data.expected();
    // Far below what docs/numerics.md promises for sums of products up to 20.
    const double bound = 200 * static_cast<double>(std::numeric_limits<T>::epsilon());
    for (const Isa isa : fast_isas()) {
      const std::vector<T> found = data.run(isa);
      for (size_t i = 0; i < found.size(); ++i) {
        const double x = static_cast<double>(found[i]);
        const bool both_nan = std::isnan(x) && std::isnan(expected[i]);
        ASSERT_TRUE(both_nan || std::abs(x - expected[i]) < bound)
            << to_string(c) << " isa " << name(isa) << ": " << x << " is not " << expected[i]
            << " at " << i;
      }
    }
  }
  std::mt19937_64 random_{7};
};
TYPED_TEST_SUITE(Attention, testing_support::Reals);

// Tails of each block: of rows, lanes, keys, steps of keys, depth and width.
TYPED_TEST(Attention, EqualsTheFormulaAtTheEdgesOfBlocks) {
  for (const int64_t queries : {9, 16, 17, 64, 65}) {
    for (const int64_t keys : {12, 64, 65, 127, 128, 129, 193}) {
      this->check({.queries = queries, .keys = keys, .depth = 5, .width = 3});
      this->check({.queries = queries, .keys = keys, .is_causal = true});
    }
  }
}

TYPED_TEST(Attention, EqualsTheFormulaForFewQueries) {
  for (const int64_t queries : {1, 2, 8}) {
    for (const int64_t keys : {100, 511, 512, 513}) {
      for (const int64_t depth : {1, 33, 70}) {
        this->check({.queries = queries, .keys = keys, .depth = depth, .width = depth + 2});
      }
      this->check({.queries = queries, .keys = keys, .is_causal = true, .offset = keys / 2});
    }
  }
}

TYPED_TEST(Attention, EqualsTheFormulaForRandomCases) {
  const auto any = [&](int64_t most) {
    return 1 + static_cast<int64_t>(this->random_() % static_cast<uint64_t>(most));
  };
  for (int round = 0; round < 60; ++round) {
    Case c;
    c.batch = any(2);
    c.key_heads = any(3);
    c.heads = c.key_heads * any(3);
    c.queries = round % 3 == 0 ? any(3) : any(90);
    c.keys = round % 3 == 0 ? 100 + any(600) : 101 + any(200);
    c.depth = any(40);
    c.width = any(80);
    c.is_causal = any(2) == 1;
    c.offset = any(2) == 1 ? 0 : any(c.keys) - 2;
    c.offset_is_operand = any(2) == 1;
    if (any(3) == 1) c.scale = any(2) == 1 ? -0.3 : 0.7;
    c.beside = static_cast<typename Case::Beside>(any(5) - 1);
    c.rows_repeat = any(3) == 1;
    c.layout = static_cast<typename Case::Layout>(any(4) - 1);
    this->check(c);
  }
}

TYPED_TEST(Attention, ReadsWideHeads) {
  this->check({.heads = 2,
               .key_heads = 2,
               .queries = 70,
               .keys = 140,
               .depth = 256,
               .width = 256,
               .is_causal = true,
               .layout = Case::kTurnedHeads});
  this->check({.queries = 70, .keys = 513, .depth = 256, .width = 128});
  this->check({.queries = 1, .keys = 140, .depth = 256, .width = 256});
}

TYPED_TEST(Attention, ARowThatSeesNothingIsNaN) {
  this->check({.queries = 20, .keys = 30, .is_causal = true, .offset = -5});
  this->check({.queries = 70, .keys = 300, .is_causal = true, .offset = -69});
  this->check({.queries = 4, .keys = 200, .is_causal = true, .offset = -2});
  this->check({.queries = 1, .keys = 200, .is_causal = true, .offset = -1});
  this->check({.queries = 20, .keys = 30, .is_causal = true, .offset = -20});
}

TYPED_TEST(Attention, FitsWhatItIsWorthFor) {
  const DType type = Data<TypeParam>::kType;
  const ir::OpDef& op = *ir::Registry::global().find("plain_attention");
  ir::Node node;
  int64_t width = 8;
  const auto fits = [&](int64_t queries, int64_t keys, DType dtype, Isa isa) {
    const Operand query{{0, 0, false}, dtype, {queries, width}, {width, 1}};
    const Operand key{{0, 0, false}, dtype, {keys, width}, {width, 1}};
    const Operand inputs[] = {query, key, key};
    return fits_attention({node, op, inputs, {&query, 1}}, isa);
  };
  EXPECT_TRUE(fits(10, 10, type, Isa::kAvx2));
  EXPECT_FALSE(fits(9, 11, type, Isa::kAvx2));
  EXPECT_FALSE(fits(10, 0, type, Isa::kAvx2));
  EXPECT_FALSE(fits(10, 10, type, Isa::kGeneric));
  EXPECT_FALSE(fits(10, 10, DType::kFloat16, Isa::kAvx2));
  EXPECT_TRUE(fits(4, 32, type, Isa::kAvx2));
  EXPECT_FALSE(fits(4, 31, type, Isa::kAvx2));
  width = 192;
  EXPECT_FALSE(fits(100, 511, type, Isa::kAvx2));
  EXPECT_TRUE(fits(100, 512, type, Isa::kAvx2));
  EXPECT_TRUE(fits(8, 511, type, Isa::kAvx2));
  node.attrs.set("is_causal", HostValue(true));
  EXPECT_TRUE(fits(100, 511, type, Isa::kAvx2));
}

}  // namespace
}  // namespace mithril::cpu

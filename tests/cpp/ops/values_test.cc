// Values of blocks whose formula has parts that are easy to lose: expected numbers are written out
// here, from the formulas of the papers and definitions that the blocks name.
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/built.h"

namespace mithril::ir {
namespace {

using test::Numbers;

// The results %0, %1 … of one node.
std::vector<Numbers> run(const std::string& signature, const std::string& node,
                         const std::vector<Numbers>& inputs, int results = 1) {
  std::string returned;
  for (int i = 0; i < results; ++i) {
    returned += (i == 0 ? "y" : ", y") + std::to_string(i) + "=%" + std::to_string(i);
  }
  const Graph graph = std::move(parse("graph g<f64, i64>(" + signature + ") {\n  " + node +
                                      "\n  return " + returned + "\n}\n"))
                          .or_throw();
  return std::move(test::evaluate(graph, inputs)).or_throw();
}

auto are(const Numbers& expected) {
  std::vector<testing::Matcher<double>> each;
  for (const double x : expected) {
    each.push_back(testing::NanSensitiveDoubleNear(x, 1e-12 * std::max(1.0, std::abs(x))));
  }
  return testing::ElementsAreArray(each);
}

TEST(OpValues, OfSoftmaxDoNotOverflow) {
  const double e = std::exp(-1.0);
  EXPECT_THAT(run("%x: f64[2]", "%0 = softmax(%x) : f64[2]", {{1000, 999}})[0],
              are({1 / (1 + e), e / (1 + e)}));
  EXPECT_THAT(run("%x: f64[2]", "%0 = log_softmax(%x) : f64[2]", {{0, -2000}})[0], are({0, -2000}));
}

TEST(OpValues, OfSoftplusWithBeta) {
  EXPECT_THAT(run("%x: f64[2]", "%0 = softplus(%x, beta=2.0) : f64[2]", {{0, 1}})[0],
              are({std::log(2.0) / 2, std::log(1 + std::exp(2.0)) / 2}));
}

TEST(OpValues, OfExtremaOfBools) {
  const std::string two = "%x: bool[4], %z: bool[4]";
  const std::vector<Numbers> inputs = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  EXPECT_EQ(run(two, "%0 = maximum(%x, %z) : bool[4]", inputs)[0], (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(run(two, "%0 = minimum(%x, %z) : bool[4]", inputs)[0], (Numbers{0, 0, 0, 1}));
}

// One query of two numbers, three keys; the values tell the weights apart.
TEST(OpValues, OfAttention) {
  const std::string signature = "%q: f64[2, 2], %k: f64[3, 2], %v: f64[3, 1]";
  const std::vector<Numbers> inputs = {{1, 0, 0, 2}, {1, 0, 0, 1, 1, 1}, {1, 10, 100}};
  const double root = std::sqrt(2.0);
  const auto mean = [](const Numbers& scores) {
    double sum = 0, total = 0, value = 1;
    for (const double score : scores) {
      total += std::exp(score);
      sum += std::exp(score) * value;
      value *= 10;
    }
    return sum / total;
  };
  const std::string call = "%0 = scaled_dot_product_attention(%q, %k, %v";
  EXPECT_THAT(run(signature, call + ", is_causal=false) : f64[2, 1]", inputs)[0],
              are({mean({1 / root, 0, 1 / root}), mean({0, 2 / root, 2 / root})}));
  EXPECT_THAT(run(signature, call + ") : f64[2, 1]", inputs)[0], are({1, mean({0, 2 / root})}));
  EXPECT_THAT(run("%q: f64[1, 2], %k: f64[3, 2], %v: f64[3, 1]",
                  call + ", is_causal=false) : f64[1, 1]", {{1, 0}, inputs[1], inputs[2]})[0],
              are({mean({1 / root, 0, 1 / root})}));
  std::vector<Numbers> masked = inputs;
  masked.push_back({1, 0, 1, 0, 1, 0});
  const std::string two = "%q: f64[2, 2], %k: f64[3, 2], %v: f64[3, 1]";
  EXPECT_THAT(run(two + ", %m: bool[2, 3]",
                  call + ", _, %m, is_causal=false, use_attn_mask=true) : f64[2, 1]", masked)[0],
              are({(1 + 100) / 2.0, 10}));
  EXPECT_THAT(
      run(two + ", %m: f64[2, 3]",
          call + ", _, %m, is_causal=false, use_attn_mask=true, scale=1.0) : f64[2, 1]", masked)[0],
      are({mean({2, 0, 2}), mean({0, 3, 2})}));
}

TEST(OpValues, OfCrossEntropy) {
  // The class that is not the target has probability 0.
  EXPECT_THAT(run("%x: f64[1, 2], %t: i64[1]",
                  "%0 = cross_entropy(%x, %t, input_type=\"probs\") : f64[1]", {{1, 0}, {0}})[0],
              are({0}));
  // Classes 0, 0, 1: weights 3 / (2 n_c).
  const double third = std::log(2.0);
  EXPECT_THAT(
      run("%x: f64[3, 2], %t: i64[3]", "%0 = cross_entropy(%x, %t, weights=\"auto\") : f64[3]",
          {{0, 0, 0, 0, 0, 0}, {0, 0, 1}})[0],
      are({0.75 * third, 0.75 * third, 1.5 * third}));
  // Of a sample that is ignored nothing is left; a tenth of each target goes to both classes alike.
  const double e = std::log1p(std::exp(-1.0));
  const std::vector<Numbers> apart = {{1, 0, 1, 0}, {0, 1}};
  const std::string two = "%x: f64[2, 2], %t: i64[2]";
  EXPECT_THAT(run(two, "%0 = cross_entropy(%x, %t, ignore_index=1) : f64[2]", apart)[0],
              are({e, 0}));
  EXPECT_THAT(run(two, "%0 = cross_entropy(%x, %t, label_smoothing=0.1) : f64[2]", apart)[0],
              are({0.95 * e + 0.05 * (e + 1), 0.05 * e + 0.95 * (e + 1)}));
}

TEST(OpValues, OfFactorsWhoseDiagonalIsPositive) {
  const std::vector<Numbers> found =
      run("%x: f64[2, 2]", "%0, %1 = qr(%x) : f64[2, 2], f64[2, 2]", {{-3, 1, 4, 2}}, 2);
  EXPECT_THAT(found[0], are({-0.6, 0.8, 0.8, 0.6}));
  EXPECT_THAT(found[1], are({5, 1, 0, 2}));
}

// The negative is 5 from the anchor and 1 from the positive, which is 4 from it.
TEST(OpValues, OfTripletsThatSwap) {
  const std::string signature = "%a: f64[1, 1], %p: f64[1, 1], %n: f64[1, 1]";
  const std::vector<Numbers> inputs = {{0}, {4}, {5}};
  const std::string call = "%0 = triplet_margin_loss(%a, %p, %n, eps=0.0, margin=2.0, swap=";
  EXPECT_THAT(run(signature, call + "false) : f64[1]", inputs)[0], are({1}));
  EXPECT_THAT(run(signature, call + "true) : f64[1]", inputs)[0], are({5}));
}

TEST(OpValues, OfAnglesOfSignedZeros) {
  const std::vector<Numbers> found = run("%y: f64[4], %x: f64[4]", "%0 = atan2(%y, %x) : f64[4]",
                                         {{0, -0.0, 0, -0.0}, {1, 1, -0.0, -0.0}});
  EXPECT_THAT(found[0], are({0, 0, M_PI, -M_PI}));
  EXPECT_FALSE(std::signbit(found[0][0]));
  EXPECT_TRUE(std::signbit(found[0][1]));
}

// Within 1 unit in the last place: a rounded quotient alone costs more.
TEST(OpValues, OfAnglesAreAccurate) {
  Numbers x;
  for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<double>(i) * 0x1.3c6ef372fe94fp-10);
  const std::string n = std::to_string(x.size());
  const auto of = [&](const std::string& op, const Numbers& at) {
    return run("%x: f64[" + n + "]", "%0 = " + op + "(%x) : f64[" + n + "]", {at})[0];
  };
  const Numbers arc = of("atan", x);
  for (size_t i = 0; i < x.size(); ++i) {
    const long double exact = std::atan(static_cast<long double>(x[i]));
    const double unit = std::nextafter(std::abs(arc[i]), INFINITY) - std::abs(arc[i]);
    EXPECT_LE(std::abs(arc[i] - exact), unit) << x[i];
  }
}

TEST(OpValues, OfBinaryCrossEntropyWithBalancedTargets) {
  // One positive in four: it counts (1 - 1/4) / (1/4) = 3 times.
  EXPECT_THAT(run("%x: f64[4], %t: f64[4]",
                  "%0 = binary_cross_entropy(%x, %t, pos_weight=\"auto\") : f64[4]",
                  {{0, 0, 0, 0}, {1, 0, 0, 0}})[0],
              are({3 * std::log(2.0), std::log(2.0), std::log(2.0), std::log(2.0)}));
}

TEST(OpValues, OfLayerNormWithEps) {
  // Variance 1 and eps 3: divided by 2.
  EXPECT_THAT(
      run("%x: f64[2]", "%0 = layer_norm(%x, use_scale=false, use_bias=false, eps=3.0) : f64[2]",
          {{4, 6}})[0],
      are({-0.5, 0.5}));
  EXPECT_THAT(run("%x: f64[2]", "%0 = layer_norm(%x, use_scale=false, use_bias=false) : f64[2]",
                  {{5, 5}})[0],
              are({0, 0}));
}

TEST(OpValues, OfBatchNormMoveItsStatistics) {
  // Mean 3, variance 5 (4 numbers): unbiased 20 / 3.
  const auto out = run("%x: f64[4, 1, 1, 1], %m: f64[1], %v: f64[1]",
                       "%0, %1, %2 = batch_norm2d(%x, %m, %v, mode=\"train\", use_scale=false, "
                       "use_bias=false, eps=0.0, momentum=0.25) : f64[4, 1, 1, 1], f64[1], f64[1]",
                       {{0, 2, 4, 6}, {10}, {2}}, 3);
  const double root = std::sqrt(5.0);
  EXPECT_THAT(out[0], are({-3 / root, -1 / root, 1 / root, 3 / root}));
  EXPECT_THAT(out[1], are({0.75 * 10 + 0.25 * 3}));
  EXPECT_THAT(out[2], are({0.75 * 2 + 0.25 * 20 / 3}));
}

// Kingma and Ba, algorithm 1, with numbers: the third step.
TEST(OpValues, OfAnAdamStep) {
  const std::string signature = "%p: f64[2], %g: f64[2], %m: f64[2], %v: f64[2], %t: f64[]";
  const std::vector<Numbers> inputs = {{1, 2}, {0.5, 0}, {0.2, 0}, {0.04, 0}, {3}};
  const double m = 0.9 * 0.2 + 0.1 * 0.5, v = 0.999 * 0.04 + 0.001 * 0.25;
  const double corrected_m = m / (1 - 0.9 * 0.9 * 0.9);
  const double corrected_v = v / (1 - 0.999 * 0.999 * 0.999);
  const double eps = 0.01;
  const std::string types = "f64[2], f64[2], f64[2]";
  auto out = run(signature, "%0, %1, %2 = adam(%p, %g, %m, %v, %t, lr=0.1, eps=0.01) : " + types,
                 inputs, 3);
  const double step = 0.1 * corrected_m / (std::sqrt(corrected_v) + eps);
  EXPECT_THAT(out[0], are({1 - step, 2}));
  EXPECT_THAT(out[1], are({m, 0}));
  EXPECT_THAT(out[2], are({v, 0}));
  out = run(signature,
            "%0, %1, %2 = adamw(%p, %g, %m, %v, %t, lr=0.1, eps=0.01, weight_decay=0.5) : " + types,
            inputs, 3);
  EXPECT_THAT(out[0], are({0.95 - step, 0.95 * 2}));
}

TEST(OpValues, OfNesterovsMomentum) {
  // v' = 0.5 * 4 + 1 = 3; along 1 + 0.5 * 3.
  const auto out = run("%p: f64[1], %g: f64[1], %v: f64[1]",
                       "%0, %1 = momentum(%p, %g, %v, lr=0.1, momentum=0.5, nesterov=true) : "
                       "f64[1], f64[1]",
                       {{7}, {1}, {4}}, 2);
  EXPECT_THAT(out[0], are({7 - 0.1 * 2.5}));
  EXPECT_THAT(out[1], are({3}));
}

TEST(OpValues, OfReductionsAlongOneAxis) {
  const std::string x = "%x: f64[2, 3]";
  const std::vector<Numbers> numbers = {{1, 2, 6, -1, -2, -6}};
  EXPECT_THAT(run(x, "%0 = mean(%x, axis=1) : f64[2]", numbers)[0], are({3, -3}));
  EXPECT_THAT(run(x, "%0 = variance(%x, axis=1, correction=1.0) : f64[2]", numbers)[0],
              are({7, 7}));
  EXPECT_THAT(run(x, "%0 = max(%x, axis=0) : f64[3]", numbers)[0], are({1, 2, 6}));
  EXPECT_THAT(run(x, "%0 = max(%x, axis=1) : f64[2]", numbers)[0], are({6, -1}));
}

// 60000 lies between the multiples of 32 that half floats have there: it is one of them.
TEST(OpValues, OfAMeanOfHalfFloatsDoNotOverflow) {
  EXPECT_EQ(run("%x: f16[4]", "%0 = mean(%x) : f16[]", {Numbers(4, 60000.0)})[0],
            (Numbers{60000.0}));
}

// Every second of four rows below each other, 1 apart.
TEST(OpValues, OfADilatedConvolution) {
  EXPECT_THAT(
      run("%w: f64[1, 1, 2, 1], %x: f64[1, 1, 4, 1]",
          "%0 = convolution2d(%w, _, _, _, %x, dilation=(2, 1), stride=(1, 1), use_bias=false) : "
          "f64[1, 1, 2, 1]",
          {{1, 10}, {1, 2, 3, 4}})[0],
      are({31, 42}));
}

TEST(OpValues, OfPoolingPickTheFirstMaximum) {
  const std::string signature = "%x: f64[1, 3, 1], %v: f64[1, 3, 1], %l: f64[1, 1, 1]";
  const std::string call = "%0 = max_pool2d_pick(%x, %v, %l, stride=(1, 1), ";
  EXPECT_THAT(run(signature, call + "kernel_size=(3, 1)) : f64[1, 1, 1]",
                  {{5, 5, 1}, {10, 20, 30}, {0}})[0],
              are({10}));
  EXPECT_THAT(run(signature, call + "kernel_size=(2, 1), dilation=(2, 1)) : f64[1, 1, 1]",
                  {{1, 5, 2}, {10, 20, 30}, {0}})[0],
              are({30}));
  // Everything is below 0: padding must not win.
  EXPECT_THAT(run("%x: f64[1, 2, 1], %v: f64[1, 2, 1], %l: f64[1, 1, 1]",
                  call + "kernel_size=(3, 1), padding=((1, 0), (0, 0))) : f64[1, 1, 1]",
                  {{-5, -3}, {10, 20}, {0}})[0],
              are({20}));
}

// Half of a thousand numbers stay, twice as large; nine of ten, ten ninths as large.
TEST(OpValues, OfDropoutKeepTheirMean) {
  const Numbers ones(1000, 1.0);
  for (const auto& [p, low, high] : {std::tuple("0.5", 420, 580), std::tuple("0.1", 850, 950)}) {
    const auto out = run(
        "%x: f64[1000], %k: i64[2]",
        std::string("%0, %1 = dropout(%x, %k, mode=\"train\", p=") + p + ") : f64[1000], i64[2]",
        {ones, {1, 2}}, 2);
    int kept = 0;
    for (const double x : out[0]) {
      if (x == 0.0) continue;
      ++kept;
      EXPECT_DOUBLE_EQ(x, 1.0 / (1.0 - std::stod(p)));
    }
    EXPECT_GT(kept, low);
    EXPECT_LT(kept, high);
  }
}

TEST(OpValues, OfIndexing) {
  const std::string x = "%x: f64[3, 4]";
  const std::vector<Numbers> numbers = {{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}};
  EXPECT_EQ(run(x, "%0 = index(%x, index=-1) : f64[4]", numbers)[0], (Numbers{20, 21, 22, 23}));
  EXPECT_EQ(run(x, "%0 = index(%x, index=(0:3:2, 3:0:-2)) : f64[2, 2]", numbers)[0],
            (Numbers{3, 1, 23, 21}));
  EXPECT_EQ(run(x, "%0 = index(%x, index=([0, -1], [-1, 1])) : f64[2]", numbers)[0],
            (Numbers{3, 21}));
  EXPECT_EQ(run(x, "%0 = index(%x, index=([-1, 0],)) : f64[2, 4]", numbers)[0],
            (Numbers{20, 21, 22, 23, 0, 1, 2, 3}));
  EXPECT_EQ(run("%x: f64[3], %v: f64[2]", "%0 = index_add(%x, %v, index=[2, 2]) : f64[3]",
                {{1, 2, 3}, {10, 20}})[0],
            (Numbers{1, 2, 33}));
}

// NumPy: arrays with a slice between them come first. Element (a, l, k) is x[l, i_a, k, j_a].
TEST(OpValues, OfIndexArraysThatStandApart) {
  Numbers x(24);
  std::iota(x.begin(), x.end(), 0.0);
  const auto out = run("%x: f64[2, 2, 3, 2]",
                       "%0 = index(%x, index=(:, [0, 1], :, [1, 0])) : f64[2, 2, 3]", {x});
  EXPECT_EQ(out[0], (Numbers{1, 3, 5, 13, 15, 17, 6, 8, 10, 18, 20, 22}));
}

TEST(OpValues, OfProductsOverTwoBatchAxes) {
  EXPECT_EQ(run("%a: f64[2, 2, 1, 1], %b: f64[2, 2, 1, 1]", "%0 = matmul(%a, %b) : f64[2, 2, 1, 1]",
                {{1, 2, 3, 4}, {10, 20, 30, 40}})[0],
            (Numbers{10, 40, 90, 160}));
  EXPECT_EQ(run("%a: f64[2, 1, 1, 1], %b: f64[1, 2, 1, 1]", "%0 = matmul(%a, %b) : f64[2, 2, 1, 1]",
                {{1, 2}, {10, 20}})[0],
            (Numbers{10, 20, 20, 40}));
}

TEST(OpValues, OfMaximaBelowZero) {
  EXPECT_EQ(run("%x: f64[2, 2]", "%0 = max(%x, axis=0) : f64[2]", {{-1, -2, -3, -1}})[0],
            (Numbers{-1, -1}));
  for (const auto& [axis, shape] : {std::pair("0", "5000, 2"), std::pair("1", "2, 5000")}) {
    EXPECT_EQ(run(std::string("%x: f64[") + shape + "]",
                  std::string("%0 = max(%x, axis=") + axis + ") : f64[2]", {Numbers(10000, -3)})[0],
              (Numbers{-3, -3}));
  }
}

TEST(OpValues, OfIntegersWithAFloatNumber) {
  EXPECT_EQ(run("%x: i64[2]", "%0 = add(%x, right=0.5) : f64[2]", {{1, -1}})[0],
            (Numbers{1.5, -0.5}));
}

// Random123, known answers of threefry2x32-20: counter and key of ones.
TEST(OpValues, OfTheNextKey) {
  EXPECT_EQ(run("%a: i64[], %b: i64[]", "%0 = next_key(%a, %b) : i64[2]",
                {{4294967295.0}, {4294967295.0}})[0],
            (Numbers{0x1cb996fc, 0xbb002be7}));
}

// A seed is its low and its high word.
TEST(OpValues, OfASeedOfTwoWords) {
  const auto words = [](double low, double high) {
    return run("%a: i64[], %b: i64[]",
               "%0 = threefry_uniform(%a, %b, shape=(3,), dtype=f64) : f64[3]", {{low}, {high}})[0];
  };
  const Numbers seeded =
      run("", "%0 = rand(shape=(3,), key=4294967298, dtype=f64) : f64[3]", {})[0];
  EXPECT_EQ(seeded, words(2, 1));
  EXPECT_NE(seeded, words(2, 2));
}

}  // namespace
}  // namespace mithril::ir

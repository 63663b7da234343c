// Covers: backends/cpu/attention/attention.cc
// Gradients of attention by blocks, against the formula in float64.
#include "backends/cpu/attention/attention_gradient.h"

#include "backends/cpu/attention/attention_cases.h"

namespace mithril::cpu {
namespace {

using attention_cases::Case;
using attention_cases::Data;
using attention_cases::fast_isas;
using attention_cases::Tensor;
using core::DType;
using select::Operand;

/// What the formula says, in float64, in the order of the op's outputs.
struct Expected {
  std::vector<double> logsumexp;
  std::vector<double> gradients[4];  // of query, key, value and scores
};

template <class T>
class Differentiated {
 public:
  Differentiated(const Case& c, std::mt19937_64& random)
      : c_(c), data_(c, random), slopes_({c.batch, c.heads, c.queries, c.width}, c.layout) {
    fill(slopes_, random, 1.0);
    const int64_t rows = data_.bools.shape[2];  // each of which sees a key
    for (int64_t i = 0; i < rows; ++i) data_.bools.at(0, 0, i, 0) = 1;
  }

  Expected expected() const {
    Expected out;
    const int64_t rows = c_.batch * c_.heads * c_.queries;
    const int64_t keys = c_.batch * c_.key_heads * c_.keys;
    const int64_t sizes[] = {rows * c_.depth, keys * c_.depth, keys * c_.width, rows * c_.keys};
    for (size_t i = 0; i < 4; ++i) out.gradients[i].resize(static_cast<size_t>(sizes[i]));
    for (int64_t b = 0; b < c_.batch; ++b) {
      for (int64_t h = 0; h < c_.heads; ++h) {
        for (int64_t i = 0; i < c_.queries; ++i) add_row(out, b, h, i);
      }
    }
    return out;
  }

  /// The log-sums, then as many gradients as there are.
  std::vector<std::vector<T>> run(Isa isa, bool of_scores) const {
    auto request = data_.request();
    const std::vector<int64_t> rows = {c_.batch, c_.heads, c_.queries};
    auto forward = data_.run(request, "attention_with_logsumexp", {data_.output_shape(), rows},
                             fits_trained_attention, make_attention, isa);
    const std::vector<int64_t> of_output = strides_of(data_.output_shape());
    request.add(6, {{}, Data<T>::kType, data_.output_shape(), of_output}, forward[0].data());
    request.add(7, {{}, Data<T>::kType, rows, strides_of(rows)}, forward[1].data());
    request.add(8, slopes_.operand(Data<T>::kType, 0), slopes_.data());
    std::vector<std::vector<int64_t>> shapes = {data_.query.shape, data_.key.shape,
                                                data_.value.shape};
    if (of_scores) shapes.push_back({c_.batch, c_.heads, c_.queries, c_.keys});
    auto out = data_.run(request, of_scores ? "attention_grad_with_scores" : "attention_grad",
                         shapes, fits_trained_attention, make_attention_gradient, isa);
    out.insert(out.begin(), forward[1]);
    return out;
  }

 private:
  static std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
    std::vector<int64_t> out(shape.size(), 1);
    for (size_t i = shape.size() - 1; i-- > 0;) out[i] = out[i + 1] * shape[i + 1];
    return out;
  }

  void add_row(Expected& out, int64_t b, int64_t h, int64_t i) const {
    const int64_t of = h / (c_.heads / c_.key_heads);
    std::vector<double> weights, slopes;
    for (int64_t j = 0; j < c_.keys; ++j) weights.push_back(data_.score(b, h, i, j));
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0, mean = 0.0;
    for (double& w : weights) sum += w = std::exp(w - most);
    out.logsumexp.push_back(most + std::log(sum));
    for (int64_t j = 0; j < c_.keys; ++j) {
      double slope = 0.0;
      for (int64_t k = 0; k < c_.width; ++k) {
        slope += number(slopes_.at(b, h, i, k)) * number(data_.value.at(b, of, j, k));
      }
      slopes.push_back(slope);
      mean += (weights[at(j)] /= sum) * slope;
    }
    const double scale = c_.scale.value_or(1.0 / std::sqrt(static_cast<double>(c_.depth)));
    const int64_t row = (b * c_.heads + h) * c_.queries + i;
    for (int64_t j = 0; j < c_.keys; ++j) {
      const double slope = weights[at(j)] * (slopes[at(j)] - mean);
      const int64_t key = (b * c_.key_heads + of) * c_.keys + j;
      out.gradients[3][at(row * c_.keys + j)] = slope;
      for (int64_t d = 0; d < c_.depth; ++d) {
        out.gradients[0][at(row * c_.depth + d)] +=
            scale * slope * number(data_.key.at(b, of, j, d));
        out.gradients[1][at(key * c_.depth + d)] +=
            scale * slope * number(data_.query.at(b, h, i, d));
      }
      for (int64_t k = 0; k < c_.width; ++k) {
        out.gradients[2][at(key * c_.width + k)] += weights[at(j)] * number(slopes_.at(b, h, i, k));
      }
    }
  }

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  static double number(T x) { return static_cast<double>(x); }

  const Case c_;
  const Data<T> data_;
  const Tensor<T> slopes_;  // of the output
};

template <class T>
class AttentionGradients : public ::testing::Test {
 protected:
  void check(const Case& c, bool of_scores = false) {
    const Differentiated<T> data(c, random_);
    const Expected expected = data.expected();
    for (const Isa isa : fast_isas()) {
      const auto found = data.run(isa, of_scores);
      const std::string label = to_string(c) + ", isa " + std::string(name(isa)) + ": ";
      expect_near(found[0], expected.logsumexp, label + "logsumexp");
      for (size_t i = 1; i < found.size(); ++i) {
        expect_near(found[i], expected.gradients[i - 1], label + std::to_string(i - 1));
      }
    }
  }

  void expect_near(const std::vector<T>& found, const std::vector<double>& expected,
                   const std::string& label) {
    double most = 1.0;
    for (const double x : expected) most = std::isfinite(x) ? std::max(most, std::abs(x)) : most;
    const double bound = 500 * most * static_cast<double>(std::numeric_limits<T>::epsilon());
    ASSERT_EQ(found.size(), expected.size()) << label;
    for (size_t i = 0; i < found.size(); ++i) {
      const double x = static_cast<double>(found[i]);
      const bool both_nan = std::isnan(x) && std::isnan(expected[i]);
      const bool both_infinite = std::isinf(x) && x == expected[i];
      ASSERT_TRUE(both_nan || both_infinite || std::abs(x - expected[i]) < bound)
          << label << ": " << x << " is not " << expected[i] << " at " << i;
    }
  }

  std::mt19937_64 random_{11};
};
TYPED_TEST_SUITE(AttentionGradients, testing_support::Reals);

TYPED_TEST(AttentionGradients, EqualTheFormulaAtTheEdgesOfBlocks) {
  for (const int64_t queries : {9, 16, 17, 64, 65, 257}) {
    for (const int64_t keys : {12, 64, 65, 128, 129, 193}) {
      this->check({.queries = queries, .keys = keys, .depth = 5, .width = 3}, true);
      this->check({.queries = queries, .keys = keys, .is_causal = true});
    }
  }
}

// Four batches are a unit each, fewer are cut into rows and keys.
TYPED_TEST(AttentionGradients, EqualTheFormulaForFewAndManyBatches) {
  for (const int64_t batch : {1, 3, 4, 5}) {
    this->check({.batch = batch, .queries = 300, .keys = 600, .is_causal = true, .offset = 300});
    this->check({.batch = batch, .heads = 2, .key_heads = 2, .queries = 20, .keys = 70}, true);
  }
}

TYPED_TEST(AttentionGradients, EqualTheFormulaForRandomCases) {
  const auto any = [&](int64_t most) {
    return 1 + static_cast<int64_t>(this->random_() % static_cast<uint64_t>(most));
  };
  for (int round = 0; round < 60; ++round) {
    Case c;
    c.batch = any(2);
    c.key_heads = any(3);
    c.heads = c.key_heads * any(3);
    c.queries = 8 + any(90);
    c.keys = 13 + any(200);
    c.depth = any(40);
    c.width = any(80);
    c.is_causal = any(2) == 1;
    c.offset = any(2) == 1 ? 0 : any(c.keys) - 1;
    c.offset_is_operand = any(2) == 1;
    if (any(3) == 1) c.scale = any(2) == 1 ? -0.3 : 0.7;
    c.beside = static_cast<typename Case::Beside>(any(5) - 1);
    c.rows_repeat = any(3) == 1;
    c.layout = static_cast<typename Case::Layout>(any(4) - 1);
    this->check(c, any(2) == 1);
  }
}

TYPED_TEST(AttentionGradients, ReadWideHeads) {
  this->check({.heads = 2,
               .key_heads = 2,
               .queries = 70,
               .keys = 140,
               .depth = 256,
               .width = 256,
               .is_causal = true,
               .layout = Case::kTurnedHeads});
  this->check({.queries = 70, .keys = 513, .depth = 256, .width = 128});
}

// The blocks of keys that such a row might see are looked at; what it would have them learn is NaN.
TYPED_TEST(AttentionGradients, OfARowThatSeesNothingAreNaN) {
  const Case c{.queries = 70, .keys = 100, .is_causal = true, .offset = -3};
  const Differentiated<TypeParam> data(c, this->random_);
  for (const Isa isa : fast_isas()) {
    const auto found = data.run(isa, true);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(found[0][i], -std::numeric_limits<TypeParam>::infinity());
    }
    for (size_t i = 0; i < found[1].size(); ++i) {
      EXPECT_EQ(std::isnan(found[1][i]), i < static_cast<size_t>(3 * c.depth)) << i;
    }
    EXPECT_TRUE(std::isnan(found[2][0]) && std::isnan(found[3][0]) && std::isnan(found[4][0]));
  }
}

// A batch is one unit or several, whatever the threads: bits may not depend on them.
TYPED_TEST(AttentionGradients, AreCutBySizesAlone) {
  const DType type = Data<TypeParam>::kType;
  const ir::OpDef& op = *ir::Registry::global().find("attention_grad");
  const ir::Node node;
  const auto units = [&](int64_t batch) {
    const Operand x{{0, 0, false}, type, {batch, 600, 8}, {4800, 8, 1}};
    const Operand sums{{0, 0, false}, type, {batch, 600}, {600, 1}};
    const Operand inputs[] = {x, x, x, {}, {}, {}, x, sums, x};
    const Operand outputs[] = {x, x, x};
    return make_attention_gradient({node, op, inputs, outputs}, fast_isas().front()).units;
  };
  EXPECT_EQ(units(4), 4);
  EXPECT_EQ(units(3), 3 * (3 + 2));
}

TYPED_TEST(AttentionGradients, FitWhereTheirAttentionDoes) {
  const DType type = Data<TypeParam>::kType;
  const ir::OpDef& op = *ir::Registry::global().find("attention_with_logsumexp");
  const ir::Node node;
  const auto fits = [&](int64_t queries, DType dtype, Isa isa) {
    const Operand query{{0, 0, false}, dtype, {queries, 8}, {8, 1}};
    const Operand key{{0, 0, false}, dtype, {100, 8}, {8, 1}};
    const Operand inputs[] = {query, key, key};
    return fits_trained_attention({node, op, inputs, {&query, 1}}, isa);
  };
  EXPECT_TRUE(fits(9, type, Isa::kAvx2));
  EXPECT_FALSE(fits(8, type, Isa::kAvx2));
  EXPECT_FALSE(fits(9, type, Isa::kGeneric));
  EXPECT_FALSE(fits(9, DType::kFloat16, Isa::kAvx2));
}

}  // namespace
}  // namespace mithril::cpu

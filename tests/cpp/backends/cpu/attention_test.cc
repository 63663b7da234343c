// Covers: backends/cpu/attention_sizes.cc
#include "backends/cpu/attention.h"

#include <memory>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "backends/cpu/kernels.h"
#include "ir/registry.h"
#include "reference/support.h"

namespace mithril::cpu {
namespace {

using core::DType;
using core::HostValue;
using select::Operand;
using testing_support::Guarded;

struct Case {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, depth = 4, width = 4;
  bool is_causal = false;
  std::optional<double> scale;
  int64_t offset = 0;
  bool offset_is_operand = false;
  enum Beside { kNone, kBools, kNumbers, kBias, kBoth } beside = kNone;
  bool rows_repeat = false;  // of masks and biases
  enum Layout { kRows, kTurnedHeads, kColumns, kBackwards } layout = kRows;
};

std::string to_string(const Case& c) {
  return fmt::format(
      "batch {} heads {}/{} queries {} keys {} depth {} width {} causal {} offset {} operand {} "
      "beside {} repeats {} layout {}",
      c.batch, c.heads, c.key_heads, c.queries, c.keys, c.depth, c.width, c.is_causal, c.offset,
      c.offset_is_operand, static_cast<int>(c.beside), c.rows_repeat, static_cast<int>(c.layout));
}

// A tensor of rank 4 in guarded memory, read by strides.
template <class T>
struct Tensor {
  std::vector<int64_t> shape, strides;
  int64_t origin = 0;
  std::shared_ptr<Guarded<T>> memory;

  Tensor(std::vector<int64_t> sizes, Case::Layout layout) : shape(std::move(sizes)) {
    const int64_t b = shape[0], h = shape[1], l = shape[2], e = shape[3];
    switch (layout) {
      case Case::kRows: strides = {h * l * e, l * e, e, 1}; break;
      case Case::kTurnedHeads: strides = {l * h * e, e, h * e, 1}; break;
      case Case::kColumns: strides = {h * l * e, l * e, 1, l}; break;
      case Case::kBackwards: strides = {h * l * e, l * e, -e, 1}; break;
    }
    if (layout == Case::kBackwards) origin = (l - 1) * e;
    memory = std::make_shared<Guarded<T>>(static_cast<size_t>(b * h * l * e));
  }
  T* data() const { return memory->data() + origin; }
  T& at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t place[] = {b, h, i, j};
    int64_t offset = 0;
    for (size_t d = 0; d < 4; ++d) offset += shape[d] == 1 ? 0 : place[d] * strides[d];
    return data()[offset];
  }
  Operand operand(DType dtype, int buffer) const {
    return {{buffer, 0, false}, dtype, shape, strides};
  }
};

template <class T>
void fill(const Tensor<T>& tensor, std::mt19937_64& random, double reach) {
  std::uniform_real_distribution<double> uniform(-reach, reach);
  for (size_t i = 0; i < tensor.memory->size(); ++i) {
    tensor.memory->data()[i] = static_cast<T>(uniform(random));
  }
}

template <class T>
struct Data {
  Case c;
  Tensor<T> query, key, value;
  Tensor<uint8_t> bools;
  Tensor<T> numbers, bias;
  int64_t offset;

  Data(const Case& of, std::mt19937_64& random)
      : c(of),
        query({c.batch, c.heads, c.queries, c.depth}, c.layout),
        key({c.batch, c.key_heads, c.keys, c.depth}, c.layout),
        value({c.batch, c.key_heads, c.keys, c.width}, c.layout),
        bools({1, 1, c.rows_repeat ? 1 : c.queries, c.keys}, c.layout),
        numbers({c.batch, 1, c.rows_repeat ? 1 : c.queries, c.keys}, c.layout),
        bias({1, c.heads, c.queries, c.keys}, Case::kRows),
        offset(c.offset) {
    fill(query, random, 3.0);
    fill(key, random, 3.0);
    fill(value, random, 1.0);
    fill(numbers, random, 2.0);
    fill(bias, random, 2.0);
    std::bernoulli_distribution coin(0.7);
    for (size_t i = 0; i < bools.memory->size(); ++i) bools.memory->data()[i] = coin(random);
  }

  static constexpr DType kType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;

  double score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t of = h / (c.heads / c.key_heads);
    double sum = 0.0;
    for (int64_t d = 0; d < c.depth; ++d) {
      sum += static_cast<double>(query.at(b, h, i, d)) * static_cast<double>(key.at(b, of, j, d));
    }
    sum *= c.scale.value_or(1.0 / std::sqrt(static_cast<double>(c.depth)));
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    if (c.beside == Case::kBias || c.beside == Case::kBoth) {
      sum += static_cast<double>(bias.at(0, h, i, j));
    }
    if (c.is_causal && j > i + c.offset) sum = kNever;
    if (c.beside == Case::kBools || c.beside == Case::kBoth) {
      if (bools.at(0, 0, i, j) == 0) sum = kNever;
    }
    if (c.beside == Case::kNumbers) sum += static_cast<double>(numbers.at(b, 0, i, j));
    return sum;
  }

  // As the formula says, in float64.
  std::vector<double> expected() const {
    std::vector<double> out;
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t i = 0; i < c.queries; ++i) append_row(out, b, h, i);
      }
    }
    return out;
  }
  void append_row(std::vector<double>& out, int64_t b, int64_t h, int64_t i) const {
    std::vector<double> weights;
    for (int64_t j = 0; j < c.keys; ++j) weights.push_back(score(b, h, i, j));
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0;
    for (double& w : weights) sum += w = std::exp(w - most);
    for (int64_t k = 0; k < c.width; ++k) {
      double mean = 0.0;
      for (int64_t j = 0; j < c.keys; ++j) {
        mean += weights[static_cast<size_t>(j)] / sum *
                static_cast<double>(value.at(b, h / (c.heads / c.key_heads), j, k));
      }
      out.push_back(mean);
    }
  }

  // The step, run in ranges of units out of order; bits of two ways of cutting are compared.
  std::vector<T> run(Isa isa) const {
    ir::Node node;
    node.attrs.set("is_causal", HostValue(c.is_causal));
    node.attrs.set("enable_gqa", HostValue(c.heads != c.key_heads));
    node.attrs.set("scale", c.scale ? HostValue(*c.scale) : HostValue());
    if (!c.offset_is_operand) node.attrs.set("offset", HostValue(c.offset));
    std::vector<Operand> inputs = {
        query.operand(kType, 0), key.operand(kType, 1), value.operand(kType, 2), {}, {}, {}};
    std::vector<void*> buffers = {query.data(), key.data(), value.data()};
    const auto add = [&](size_t input, Operand operand, const void* data) {
      operand.use.buffer = static_cast<int>(buffers.size());
      inputs[input] = std::move(operand);
      buffers.push_back(const_cast<void*>(data));
    };
    if (c.beside == Case::kBools || c.beside == Case::kBoth) {
      add(3, bools.operand(DType::kBool, 0), bools.data());
    }
    if (c.beside == Case::kNumbers) add(3, numbers.operand(kType, 0), numbers.data());
    if (c.beside == Case::kBias || c.beside == Case::kBoth) {
      add(4, bias.operand(kType, 0), bias.data());
    }
    if (c.offset_is_operand) add(5, {{0, 0, false}, DType::kInt64, {}, {}}, &offset);
    const std::vector<int64_t> shape = {c.batch, c.heads, c.queries, c.width};
    const std::vector<Operand> outputs = {{{9, 0, true}, kType, shape, {}}};
    const ir::OpDef& op = *ir::Registry::global().find("attention");
    const select::KernelRequest request{node, op, inputs, outputs};
    EXPECT_TRUE(fits_attention(request, isa));
    return run_step(make_attention(request, isa), std::move(buffers));
  }

  std::vector<T> run_step(const plan::Step& step, std::vector<void*> buffers) const {
    const Guarded<T> out(static_cast<size_t>(c.batch * c.heads * c.queries * c.width));
    const Guarded<char> scratch((step.scratch_bytes + 63) / 64 * 64);
    buffers.push_back(out.data());
    plan::ErrorSlot slot;
    const plan::KernelArgs args{buffers.data(), nullptr, nullptr, step.data.get(),
                                scratch.data(), 0,       &slot,   nullptr};
    const auto cut_at = [&](int64_t at) {
      fill_nan(out);
      std::memset(scratch.data(), 0xff, scratch.size());
      EXPECT_EQ(step.kernel(args, at, step.units), plan::KernelStatus::kOk);
      EXPECT_EQ(step.kernel(args, 0, at), plan::KernelStatus::kOk);
      return out.copy();
    };
    const std::vector<T> whole = cut_at(0);
    EXPECT_EQ(testing_support::first_difference(whole, cut_at(step.units / 2)), -1);
    EXPECT_EQ(testing_support::first_difference(whole, cut_at(step.units)), -1);
    return whole;
  }
};

std::vector<Isa> fast_isas() {
  std::vector<Isa> out = testing_support::supported_isas();
  std::erase(out, Isa::kGeneric);
  return out;
}

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

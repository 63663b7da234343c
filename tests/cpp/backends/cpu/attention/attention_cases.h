// Cases of attention in guarded memory: what the formula says of them in float64, and steps run in
// every cut.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backends/cpu/attention/attention.h"
#include "ir/registry.h"
#include "reference/support.h"

namespace mithril::cpu::attention_cases {

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

inline std::string to_string(const Case& c) {
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

  // What a node has of the case: operands in memory, and the options.
  struct Request {
    std::vector<Operand> inputs;
    std::vector<void*> buffers;
    ir::Node node;
    void add(size_t input, Operand operand, const void* data) {
      if (inputs.size() <= input) inputs.resize(input + 1);
      operand.use.buffer = static_cast<int>(buffers.size());
      inputs[input] = std::move(operand);
      buffers.push_back(const_cast<void*>(data));
    }
  };

  Request request() const {
    Request out;
    out.node.attrs.set("is_causal", HostValue(c.is_causal));
    out.node.attrs.set("enable_gqa", HostValue(c.heads != c.key_heads));
    out.node.attrs.set("scale", c.scale ? HostValue(*c.scale) : HostValue());
    if (!c.offset_is_operand) out.node.attrs.set("offset", HostValue(c.offset));
    out.add(0, query.operand(kType, 0), query.data());
    out.add(1, key.operand(kType, 0), key.data());
    out.add(2, value.operand(kType, 0), value.data());
    out.inputs.resize(6);
    if (c.beside == Case::kBools || c.beside == Case::kBoth) {
      out.add(3, bools.operand(DType::kBool, 0), bools.data());
    }
    if (c.beside == Case::kNumbers) out.add(3, numbers.operand(kType, 0), numbers.data());
    if (c.beside == Case::kBias || c.beside == Case::kBoth) {
      out.add(4, bias.operand(kType, 0), bias.data());
    }
    if (c.offset_is_operand) out.add(5, {{0, 0, false}, DType::kInt64, {}, {}}, &offset);
    return out;
  }

  std::vector<int64_t> output_shape() const { return {c.batch, c.heads, c.queries, c.width}; }

  using Fits = bool (*)(const select::KernelRequest&, Isa);
  using Make = plan::Step (*)(const select::KernelRequest&, Isa);

  // A step of the op; the contents of its outputs.
  static std::vector<std::vector<T>> run(const Request& request, const char* op,
                                         const std::vector<std::vector<int64_t>>& shapes, Fits fits,
                                         Make make, Isa isa) {
    std::vector<Operand> outputs;
    for (const auto& shape : shapes) outputs.push_back({{9, 0, true}, kType, shape, {}});
    const select::KernelRequest wanted{request.node, *ir::Registry::global().find(op),
                                       request.inputs, outputs};
    EXPECT_TRUE(fits(wanted, isa));
    return run_step(make(wanted, isa), request.buffers, shapes);
  }

  std::vector<T> run(Isa isa) const {
    return run(request(), "attention", {output_shape()}, fits_attention, make_attention, isa)[0];
  }

  // In ranges of units out of order; bits of several ways of cutting are compared.
  static std::vector<std::vector<T>> run_step(const plan::Step& step, std::vector<void*> buffers,
                                              const std::vector<std::vector<int64_t>>& shapes) {
    std::vector<std::unique_ptr<Guarded<T>>> out;
    for (const auto& shape : shapes) {
      size_t size = 1;
      for (const int64_t n : shape) size *= static_cast<size_t>(n);
      buffers.push_back(out.emplace_back(std::make_unique<Guarded<T>>(size))->data());
    }
    const Guarded<char> scratch((step.scratch_bytes + 63) / 64 * 64);
    plan::ErrorSlot slot;
    const plan::KernelArgs args{buffers.data(), nullptr, nullptr, step.data.get(),
                                scratch.data(), 0,       &slot,   nullptr};
    const auto cut_at = [&](int64_t at) {
      std::vector<std::vector<T>> found;
      for (const auto& memory : out) fill_nan(*memory);
      std::memset(scratch.data(), 0xff, scratch.size());
      EXPECT_EQ(step.kernel(args, at, step.units), plan::KernelStatus::kOk);
      EXPECT_EQ(step.kernel(args, 0, at), plan::KernelStatus::kOk);
      for (const auto& memory : out) found.push_back(memory->copy());
      return found;
    };
    const auto whole = cut_at(0);
    for (const int64_t at : {step.units / 2, step.units}) {
      const auto cut = cut_at(at);
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(testing_support::first_difference(whole[i], cut[i]), -1);
      }
    }
    return whole;
  }
};

inline std::vector<Isa> fast_isas() {
  std::vector<Isa> out = testing_support::supported_isas();
  std::erase(out, Isa::kGeneric);
  return out;
}

}  // namespace mithril::cpu::attention_cases

// Gradients of every block on its samples, run on the engine in float64: slopes of the values by
// central differences, and the slopes of those gradients; ties and kinks by contract.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/built.h"
#include "passes/autodiff.h"

namespace mithril::ir {
namespace {

using test::build;
using test::Built;
using test::describe;
using test::Numbers;

const InputDef& declared(const OpDef& op, const std::string& key) {
  for (const InputDef& input : op.inputs) {
    if (key == input.name || (input.variadic && key.starts_with(input.name))) return input;
  }
  return op.inputs.front();  // a cotangent
}

class Draw {
 public:
  explicit Draw(unsigned seed) : generator_(seed) {}

  // Elements of the range that the block states for its input.
  Numbers of(const OpDef& op, const ValueInfo& info) {
    size_t count = 1;
    for (const int64_t size : static_dims(info.type.shape)) count *= static_cast<size_t>(size);
    const bool cotangent = info.role == Role::kCotangent;
    const InputDef& input = declared(op, info.name);
    Numbers out = between(count, cotangent ? -1.0 : input.low, cotangent ? 1.0 : input.high);
    if (info.type.dtype == DType::kBool) {
      for (double& x : out) x = x > 0.0 ? 1.0 : 0.0;
    } else if (!core::is_float(info.type.dtype)) {
      for (double& x : out) x = std::floor(x + 0.5);
    } else if (op.family == "linalg") {
      make_definite(out, static_dims(info.type.shape));
    }
    return out;
  }

  Numbers between(size_t count, double low, double high) {
    std::uniform_real_distribution<double> uniform(low, high);
    Numbers out(count);
    for (double& x : out) x = uniform(generator_);
    return out;
  }

 private:
  // Square matrices become positive definite, and so do their triangles.
  static void make_definite(Numbers& numbers, const std::vector<int64_t>& shape) {
    const size_t rank = shape.size();
    if (rank < 2 || shape[rank - 1] != shape[rank - 2]) return;
    const auto n = static_cast<size_t>(shape[rank - 1]);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool is_diagonal = i / n % n == i % n;
      numbers[i] = numbers[i] / 2.0 + (is_diagonal ? static_cast<double>(n) : 0.0);
    }
  }

  std::mt19937 generator_;
};

double product(const Numbers& a, const Numbers& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The gradient graph of `outputs`, once it has the slopes of them along a random direction for each
// input; nullopt where the engine does not run it.
std::optional<Graph> expect_slopes(const Graph& graph, const std::vector<std::string>& outputs,
                                   const std::vector<std::string>& wrt, std::vector<Numbers> inputs,
                                   Draw& draw, const std::string& label) {
  passes::DifferentiateOptions options{outputs, wrt, {}, false};
  auto gradient = passes::differentiate(graph, options);
  EXPECT_TRUE(gradient.ok()) << label << ": " << gradient.error().text();
  if (!gradient.ok()) return std::nullopt;
  std::vector<Numbers> cotangents;
  std::vector<Numbers> given = inputs;
  for (size_t i = inputs.size(); i < gradient->inputs.size(); ++i) {
    const ValueInfo& info = gradient->value(gradient->inputs[i]);
    size_t count = 1;
    for (const int64_t size : static_dims(info.type.shape)) count *= static_cast<size_t>(size);
    cotangents.push_back(draw.between(count, -1.0, 1.0));
    given.push_back(cotangents.back());
  }
  const auto slopes = test::evaluate(*gradient, given);
  if (!slopes.ok()) {
    EXPECT_EQ(slopes.error().kind, core::ErrorKind::kUnsupported) << slopes.error().text();
    return std::nullopt;
  }
  const auto total = [&](const std::vector<Numbers>& at) {
    const auto values = std::move(test::evaluate(graph, at)).or_throw();
    double sum = 0.0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (size_t k = 0; k < graph.outputs.size(); ++k) {
        if (graph.outputs[k].name == outputs[i]) sum += product(values[k], cotangents[i]);
      }
    }
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < wrt.size(); ++i) {
    size_t at = 0;
    while (graph.value(graph.inputs[at]).name != wrt[i]) ++at;
    const Numbers direction = draw.between(inputs[at].size(), -1.0, 1.0);
    const auto moved = [&](double step) {
      std::vector<Numbers> out = inputs;
      for (size_t k = 0; k < direction.size(); ++k) out[at][k] += step * direction[k];
      return total(out);
    };
    const double slope = (moved(kStep) - moved(-kStep)) / (2.0 * kStep);
    EXPECT_NEAR(product((*slopes)[i], direction), slope, 1e-6 * std::max(1.0, std::abs(slope)))
        << label << ", " << wrt[i];
  }
  return std::move(*gradient);
}

bool is_smooth(const Built& built) {
  return built.status.ok() && built.results[0].is_tensor &&
         core::is_float(built.results[0].dtype) && !built.float_inputs.empty();
}

TEST(OpGradients, AreSlopes) {
  int checked = 0;
  for (const OpDef* op : Registry::global().all()) {
    if (op->family == "own") continue;  // of passes/own_ops_test.cc
    if (!op->differentiable || op->body == BodyKind::kHost) continue;
    if (op->name == "gradient") continue;  // expanded before anything runs: expand_gradients_test
    if (op->outputs[0].dtype.result == DTypeRule::Result::kHost) continue;
    for (size_t i = 0; i < op->samples.size(); ++i) {
      const Built built = build(*op, op->samples[i], DType::kFloat64);
      if (!is_smooth(built)) continue;
      Draw draw(static_cast<unsigned>(7 + i));
      std::vector<Numbers> inputs;
      for (const ValueId id : built.graph.inputs) {
        inputs.push_back(draw.of(*op, built.graph.value(id)));
      }
      const std::string label = describe(*op, i);
      auto once = expect_slopes(built.graph, {op->outputs[0].name}, built.float_inputs, inputs,
                                draw, label);
      if (!once) continue;
      ++checked;
      // The gradient is a function of the inputs and the cotangent.
      std::vector<std::string> outputs, wrt = built.float_inputs;
      for (const std::string& name : built.float_inputs) outputs.push_back("grad." + name);
      wrt.push_back("cotangent." + op->outputs[0].name);
      const Type& result = built.results[0];
      size_t count = 1;
      for (const int64_t size : static_dims(result.shape)) count *= static_cast<size_t>(size);
      inputs.push_back(draw.between(count, -1.0, 1.0));
      expect_slopes(*once, outputs, wrt, inputs, draw, label + ", second");
    }
  }
  EXPECT_GT(checked, 150);
}

// The gradients of one node for a cotangent.
std::vector<Numbers> gradients(const std::string& node, const std::vector<Numbers>& inputs,
                               const std::string& signature, const std::vector<std::string>& wrt) {
  const Graph graph =
      std::move(parse("graph g<f64, i64>(" + signature + ") {\n  " + node + "\n  return y=%0\n}\n"))
          .or_throw();
  const passes::DifferentiateOptions options{{"y"}, wrt, {}, false};
  const Graph gradient = std::move(passes::differentiate(graph, options)).or_throw();
  return std::move(test::evaluate(gradient, inputs)).or_throw();
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(OpGradients, AreSharedByTies) {
  const std::string two = "%x: f64[3], %z: f64[3]";
  EXPECT_EQ(gradients("%0 = maximum(%x, %z) : f64[3]", {{1, 2, 0}, {1, 1, 3}, {1, 1, 1}}, two,
                      {"x", "z"}),
            (std::vector<Numbers>{{0.5, 1, 0}, {0.5, 0, 1}}));
  EXPECT_EQ(gradients("%0 = minimum(%x, %z) : f64[3]", {{1, 2, 0}, {1, 1, 3}, {1, 1, 1}}, two,
                      {"x", "z"}),
            (std::vector<Numbers>{{0.5, 0, 1}, {0.5, 1, 0}}));
  EXPECT_EQ(gradients("%0 = max(%x) : f64[]", {{3, 1, 3}, {1}}, "%x: f64[3]", {"x"}),
            (std::vector<Numbers>{{0.5, 0, 0.5}}));
  EXPECT_EQ(
      gradients("%0 = min(%x, axis=1) : f64[2]", {{1, 1, 3, 2}, {1, 1}}, "%x: f64[2, 2]", {"x"}),
      (std::vector<Numbers>{{0.5, 0.5, 0, 1}}));
  EXPECT_EQ(gradients("%0 = max_pool2d(%x, kernel_size=(2, 2), stride=(2, 2)) : f64[1, 1, 1]",
                      {{5, 5, 5, 5}, {1}}, "%x: f64[1, 2, 2]", {"x"}),
            (std::vector<Numbers>{{1, 0, 0, 0}}));
}

TEST(OpGradients, AtKinksAreWhatTheBlockSays) {
  for (const OpDef* op : Registry::global().all()) {
    if (op->family == "own") continue;  // of passes/own_ops_test.cc
    if (op->kinks.empty()) continue;
    Sample sample;
    const auto count = static_cast<int64_t>(op->kinks.size());
    sample.shapes = {{"input", {count}}};
    sample.attrs = op->samples[0].attrs;
    const Built built = build(*op, sample, DType::kFloat64);
    ASSERT_TRUE(built.status.ok()) << op->name;
    const passes::DifferentiateOptions options{{op->outputs[0].name}, {"input"}, {}, false};
    const Graph gradient = std::move(passes::differentiate(built.graph, options)).or_throw();
    Numbers points, slopes;
    for (const auto& [point, slope] : op->kinks) {
      points.push_back(point);
      slopes.push_back(slope);
    }
    const Numbers ones(points.size(), 1.0);
    EXPECT_EQ(std::move(test::evaluate(gradient, {points, ones})).or_throw()[0], slopes)
        << op->name;
  }
}

// Contract, not what the blocks say of themselves.
TEST(OpGradients, AtKinks) {
  const auto at = [](const std::string& call, double point) {
    return gradients("%0 = " + call + " : f64[1]", {{point}, {1.0}}, "%x: f64[1]", {"x"})[0][0];
  };
  EXPECT_EQ(at("relu(%x)", 0.0), 0.0);
  EXPECT_EQ(at("abs(%x)", 0.0), 0.0);
  EXPECT_EQ(at("leaky_relu(%x, slope=0.2)", 0.0), 0.2);
  EXPECT_EQ(at("sqrt(%x)", 0.0), kInf);
  EXPECT_EQ(at("clamp(%x, min_val=-1.0, max_val=2.0)", -1.0), 1.0);
  EXPECT_EQ(at("clamp(%x, min_val=-1.0, max_val=2.0)", 2.0), 1.0);
  EXPECT_EQ(at("clamp(%x, min_val=-1.0, max_val=2.0)", 2.5), 0.0);
  EXPECT_EQ(gradients("%0 = power(%x, %z) : f64[2]", {{0, 3}, {0, 2}, {1, 1}},
                      "%x: f64[2], %z: f64[2]", {"x"}),
            (std::vector<Numbers>{{0, 6}}));
}

TEST(OpGradients, OfTheBranchNotTakenAreZero) {
  const auto both =
      gradients("%0 = where(%c, %x, %z) : f64[2]", {{1, 0}, {1, 1}, {1, 1}, {kNan, kInf}},
                "%c: bool[2], %x: f64[2], %z: f64[2]", {"x", "z"});
  EXPECT_TRUE(std::isnan(both[0][0]));
  EXPECT_EQ(both[0][1], 0.0);
  EXPECT_EQ(both[1], (Numbers{0.0, kInf}));
}

TEST(OpGradients, OfTheSlopeOfLeakyRelu) {
  EXPECT_EQ(gradients("%0 = leaky_relu(%x, %s) : f64[3]", {{-2, 3, -1}, {0.1}, {1, 1, 10}},
                      "%x: f64[3], %s: f64[]", {"s"}),
            (std::vector<Numbers>{{-12}}));
}

TEST(OpGradients, OfWeightedSharesOfClasses) {
  const auto dt = gradients(
      "%0 = cross_entropy(%x, %t, categorical=false, weights=[1.0, 3.0]) : "
      "f64[1]",
      {{0, 0}, {0.5, 0.5}, {1}}, "%x: f64[1, 2], %t: f64[1, 2]", {"t"});
  EXPECT_DOUBLE_EQ(dt[0][0], std::log(2.0));
  EXPECT_DOUBLE_EQ(dt[0][1], 3 * std::log(2.0));
}

// ln |x| has the slope 1 / x.
TEST(OpGradients, OfTheRobustLogarithmBelowZero) {
  const auto dx =
      gradients("%0 = cross_entropy(%x, %t, input_type=\"probs\", robust=true) : f64[1]",
                {{-0.5, 1.5}, {0}, {1}}, "%x: f64[1, 2], %t: i64[1]", {"x"});
  EXPECT_EQ(dx[0], (Numbers{2, 0}));
}

// One class has probability 0 and is not the target.
TEST(OpGradients, OfCrossEntropyAreFiniteBesideTheTarget) {
  const auto dx = gradients("%0 = cross_entropy(%x, %t, input_type=\"probs\") : f64[1]",
                            {{0.25, 0.0, 0.75}, {2}, {1}}, "%x: f64[1, 3], %t: i64[1]", {"x"});
  EXPECT_EQ(dx[0][0], 0.0);
  EXPECT_EQ(dx[0][1], 0.0);
  EXPECT_DOUBLE_EQ(dx[0][2], -1.0 / 0.75);
}

}  // namespace
}  // namespace mithril::ir

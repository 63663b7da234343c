// Covers: passes/pipeline.cc select/tile_lowering.cc backends/cpu/kernels.cc
// Covers: backends/cpu/gemm/matmul.cc backends/cpu/schedule/schedule.cc backends/cpu/select.cc
// Covers: specialize/execution.cc
#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/target.h"
#include "ir/text.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "plan/memory.h"
#include "specialize/on_cpu.h"

namespace mithril {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

ir::Graph parsed(std::string_view text) { return std::move(ir::parse(text)).or_throw(); }

passes::PipelineOptions verified() {
  passes::PipelineOptions options;
  options.verify = true;
  return options;
}

SpecializationCache program(const ir::Graph& graph) {
  SpecializationOptions options = on_cpu();
  options.passes = verified();
  return SpecializationCache(
      std::move(passes::optimize(graph, cpu::target(), verified())).or_throw(), options);
}

int64_t count(const std::vector<int64_t>& shape) {
  int64_t out = 1;
  for (const int64_t size : shape) out *= size;
  return out;
}

// Float inputs in, float outputs out.
std::vector<std::vector<float>> run(SpecializationCache& program, const Sizes& sizes,
                                    const std::vector<std::vector<float>>& inputs) {
  const auto made = std::move(program.specialize(sizes)).or_throw();
  std::vector<const void*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  std::vector<std::vector<float>> out;
  std::vector<void*> pointers;
  for (const auto& shape : made->output_shapes) {
    out.emplace_back(static_cast<size_t>(count(shape)), -77.0F);
  }
  for (auto& output : out) pointers.push_back(output.data());
  made->executable->run(in, pointers).or_throw();
  return out;
}

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> out(count);
  for (float& x : out) x = uniform(generator);
  return out;
}

// Labels of the steps that a program runs for these sizes.
std::vector<std::string> labels(SpecializationCache& program, const Sizes& sizes) {
  std::vector<std::string> out;
  const auto made = std::move(program.specialize(sizes)).or_throw();
  for (const auto& step : made->executable->plan().steps) out.push_back(step.step.label);
  return out;
}

constexpr const char* kAttention = R"(graph a<f32, i64>(%q: f32[h, l, 8], %k: f32[h, s, 8]) {
  %0 = plain_attention(%q, %k, %k) : f32[h, l, 8]
  return y=%0
})";

TEST(SpecializationCache, KeepsACompositeWholeWhereAKernelTakesIt) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no kernel for attention";
  SpecializationCache attention = program(parsed(kAttention));
  EXPECT_EQ(attention.graph().nodes.size(), 1U);  // sizes decide, later
  EXPECT_EQ(labels(attention, {{2, 20, 8}, {2, 20, 8}}), std::vector<std::string>{"attention"});
  for (const int64_t queries : {3, 0}) {
    const auto found = labels(attention, {{2, queries, 8}, {2, 20, 8}});
    EXPECT_EQ(std::count(found.begin(), found.end(), "attention"), 0);
    EXPECT_EQ(std::count(found.begin(), found.end(), "gemm"), 2);
  }
}

TEST(SpecializationCache, DecomposesACompositeForATargetThatMust) {
  ir::Target target = cpu::target();
  target.decompose_all = true;
  const ir::Graph graph =
      std::move(passes::optimize(parsed(kAttention), target, verified())).or_throw();
  SpecializationCache attention(graph, on_cpu());
  const auto found = labels(attention, {{2, 20, 8}, {2, 20, 8}});
  EXPECT_EQ(std::count(found.begin(), found.end(), "attention"), 0);
}

TEST(SpecializationCache, KeepsTheSpecialisationsThatWereUsedLast) {
  SpecializationOptions options = on_cpu();
  options.most_specializations = 2;
  SpecializationCache relu(parsed(R"(graph g<f32, i64>(%x: f32[n]) {
  %0 = relu(%x) : f32[n]
  return y=%0
})"),
                           options);
  const auto made = [&](int64_t n) { return std::move(relu.specialize(Sizes{{n}})).or_throw(); };
  const auto one = made(1), two = made(2);
  EXPECT_EQ(made(1), one);
  const auto three = made(3);  // the second one goes: the first was used since
  EXPECT_EQ(made(1), one);
  EXPECT_EQ(made(3), three);
  EXPECT_NE(made(2), two);
}

// The same numbers in other places are other sizes, also behind those that are known.
TEST(SpecializationCache, ShapesOfOtherRanksAreOthers) {
  SpecializationCache both(parsed(R"(graph g<f32, i64>(%x: f32[a, b], %y: f32[c]) {
  %0 = relu(%x) : f32[a, b]
  %1 = relu(%y) : f32[c]
  return v=%0, w=%1
})"),
                           on_cpu());
  EXPECT_TRUE(both.specialize(Sizes{{2, 3}, {4}}).ok());
  EXPECT_FALSE(both.specialize(Sizes{{2}, {3, 4}}).ok());
}

TEST(SpecializationCache, RunsAFusedSoftmax) {
  SpecializationCache softmax = program(parsed(R"(graph g<f32, i64>(%x: f32[b, n]) {
  %0 = softmax(%x) : f32[b, n]
  return y=%0
})"));
  const auto x = random_floats(3 * 100, 1);
  const auto y = run(softmax, {{3, 100}}, {x})[0];
  for (size_t row = 0; row < 3; ++row) {
    double sum = 0.0;
    for (size_t i = 0; i < 100; ++i) sum += std::exp(static_cast<double>(x[row * 100 + i]));
    for (size_t i = 0; i < 100; ++i) {
      const double expected = std::exp(static_cast<double>(x[row * 100 + i])) / sum;
      EXPECT_NEAR(y[row * 100 + i], expected, 1e-8);
    }
  }
  const auto made = std::move(softmax.specialize(Sizes{{3, 100}})).or_throw();
  EXPECT_EQ(made->executable->plan().steps.size(), 1U);
}

// y = tanh(x Wᵀ + b), loss = mean(y²): value and gradients against plain loops in double.
TEST(SpecializationCache, DifferentiatesALayer) {
  const ir::Graph forward =
      parsed(R"(graph g<f32, i64>(%x: f32[b, 3], %w: f32[2, 3] param, %c: f32[2] param) {
  %0 = linear(%w, %x, %c) : f32[b, 2]
  %1 = tanh(%0) : f32[b, 2]
  %2 = square(%1) : f32[b, 2]
  %3 = mean(%2) : f32[]
  return y=%1, loss=%3
})");
  passes::DifferentiateOptions options;
  options.unit = {"loss"};
  options.wrt = {"w", "c", "x"};
  SpecializationCache layer =
      program(std::move(passes::differentiate(forward, options)).or_throw());
  for (const size_t batch : {1U, 5U}) {
    const auto x = random_floats(batch * 3, 2);
    const auto w = random_floats(6, 3);
    const auto c = random_floats(2, 4);
    const auto out = run(layer, {{static_cast<int64_t>(batch), 3}, {2, 3}, {2}}, {x, w, c});
    double loss = 0.0;
    std::vector<double> dw(6), dc(2), dx(batch * 3);
    for (size_t row = 0; row < batch; ++row) {
      for (size_t j = 0; j < 2; ++j) {
        double z = c[j];
        for (size_t k = 0; k < 3; ++k) {
          z += static_cast<double>(x[row * 3 + k]) * static_cast<double>(w[j * 3 + k]);
        }
        const double y = std::tanh(z);
        const double scale = 1.0 / static_cast<double>(batch * 2);
        loss += y * y * scale;
        const double dz = 2.0 * y * scale * (1.0 - y * y);
        dc[j] += dz;
        for (size_t k = 0; k < 3; ++k) {
          dw[j * 3 + k] += dz * static_cast<double>(x[row * 3 + k]);
          dx[row * 3 + k] += dz * static_cast<double>(w[j * 3 + k]);
        }
      }
    }
    EXPECT_NEAR(out[1][0], loss, 1e-6);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[2][i], dw[i], 1e-6);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(out[3][i], dc[i], 1e-6);
    for (size_t i = 0; i < batch * 3; ++i) EXPECT_NEAR(out[4][i], dx[i], 1e-6);
  }
}

TEST(SpecializationCache, RefusesSizesThatDoNotFit) {
  SpecializationCache layer = program(parsed(R"(graph g<f32, i64>(%x: f32[b, 3], %y: f32[b]) {
  %0 = sum(%x, axis=(1,)) : f32[b]
  %1 = add(%0, %y) : f32[b]
  return z=%1
})"));
  EXPECT_TRUE(layer.specialize(Sizes{{4, 3}, {4}}).ok());
  const auto wrong = layer.specialize(Sizes{{4, 3}, {5}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "'y' must have shape [b], got [5]");
  EXPECT_FALSE(layer.specialize(Sizes{{4, 2}, {4}}).ok());
  EXPECT_FALSE(layer.specialize(Sizes{{4}, {4}}).ok());
}

TEST(SpecializationCache, CopiesOutputsThatAreInputsOrViews) {
  SpecializationCache views = program(parsed(R"(graph g<f32, i64>(%x: f32[2, 3]) {
  %0 = transpose(%x) : f32[3, 2]
  return a=%x, b=%0, c=%0
})"));
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const auto out = run(views, {{2, 3}}, {x});
  EXPECT_EQ(out[0], x);
  EXPECT_EQ(out[1], (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(out[2], out[1]);
}

TEST(SpecializationCache, WritesEveryOutputOfOneValue) {
  SpecializationCache twice = program(parsed(R"(graph g<f32, i64>(%x: f32[3]) {
  %0 = negate(%x) : f32[3]
  return a=%0, b=%0
})"));
  const auto out = run(twice, {{3}}, {{1, 2, 3}});
  EXPECT_EQ(out[0], (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(out[1], out[0]);
}

// The loop of an addition could overwrite e, if it did not read it in another order as well.
TEST(SpecializationCache, KeepsOperandsThatAreReadInAnotherOrder) {
  constexpr size_t kSize = 40;
  std::vector<float> x(kSize * kSize), z(kSize * kSize), ones(kSize, 1.0F);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (size_t i = 0; i < x.size(); ++i) z[i] = static_cast<float>(i % 7);
  const auto sums = [&](const char* addition) {
    SpecializationCache adds = program(
        parsed(fmt::format(R"(graph g<f32, i64>(%x: f32[40, 40], %z: f32[40, 40], %w: f32[40, 1]) {{
  %0 = cumsum(%x) : f32[40, 40]
  %1 = transpose(%0) : f32[40, 40]
  %2 = {} : f32[40, 40]
  %3 = matmul(%2, %w) : f32[40, 1]
  return y=%3
}})",
                           addition)));
    return run(adds, {{40, 40}, {40, 40}, {40, 1}}, {x, z, ones})[0];
  };
  std::vector<double> running(kSize * kSize);
  for (size_t i = 0; i < x.size(); ++i) running[i] = (i % kSize == 0 ? 0.0 : running[i - 1]) + x[i];
  const auto both = sums("add(%0, %1)"), other = sums("add(%1, %z)");
  for (size_t row = 0; row < kSize; ++row) {
    double expected_both = 0.0, expected_other = 0.0;
    for (size_t column = 0; column < kSize; ++column) {
      const double turned = running[column * kSize + row];
      expected_both += running[row * kSize + column] + turned;
      expected_other += turned + z[row * kSize + column];
    }
    EXPECT_NEAR(both[row], expected_both, 1e-5 * expected_both);
    EXPECT_NEAR(other[row], expected_other, 1e-5 * expected_other);
  }
}

// Kernel and notes of each group.
std::string told(const SpecializationCache& program, const Sizes& sizes) {
  std::vector<select::SelectionReport> report;
  const plan::Plan plan = std::move(program.preview(sizes, &report)).or_throw();
  std::string out;
  for (const select::SelectionReport& one : report) {
    out += one.kernel + "\n";
    for (const std::string& note : one.notes) out += "  " + note + "\n";
  }
  return out;
}

TEST(SpecializationCache, TellsWhichKernelsWereChosen) {
  const std::string product =
      told(program(parsed(R"(graph g<f32, i64>(%x: f32[b, 3], %w: f32[3, 2]) {
  %0 = matmul(%x, %w) : f32[b, 2]
  return y=%0
})")),
           {{4, 3}, {3, 2}});
  EXPECT_EQ(product,
            "gemm\n"
            "  matmul is not fused: it is no pointwise op and no reduction\n"
            "  kernel gemm: it takes elements of float32 or float64, at most 16 axes\n"
            "  kernel matmul.integer is not taken: it wants elements of int32 or int64, at most 16 "
            "axes\n");
  const std::string strided =
      told(program(parsed(R"(graph g<f32, i64>(%g: f32[1, 3, 2, 2], %w: f32[3, 2, 3, 3]) {
  %0 = conv2d_dx(%g, %w, shape=(1, 2, 5, 5), stride=(2, 2), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1) : f32[1, 2, 5, 5]
  return y=%0
})")),
           {{1, 3, 2, 2}, {3, 2, 3, 3}});
  EXPECT_EQ(
      strided,
      "conv2d_dx\n"
      "  conv2d_dx is not fused: it is no pointwise op and no reduction\n"
      "  kernel conv2d_dx.winograd is not taken: it wants float32, windows of 3x3 without strides, "
      "dilations and groups, and time to be saved by tiles\n"
      "  kernel conv2d_dx: it takes elements of float32 or float64, and a product to form\n"
      "  kernel conv2d_dx.reference would do, but conv2d_dx comes first\n");
}

TEST(SpecializationCache, TellsOfCopiesViewsAndBodies) {
  const std::string copied = told(program(parsed(R"(graph g<f32, i64>(%x: f32[3, 4]) {
  %0 = transpose(%x) : f32[4, 3]
  %1 = argsort(%0, axis=0, descending=false) : i64[4, 3]
  return y=%1
})")),
                                  {{3, 4}});
  EXPECT_NE(copied.find("view\nargsort\n"), std::string::npos) << copied;
  EXPECT_NE(copied.find("copies an operand f32[4, 3] first"), std::string::npos) << copied;
}

TEST(SpecializationCache, APreviewIsNotRefused) {
  const ir::Graph graph = parsed(R"(graph g<f32, i64>(%x: f32[n, 1], %z: f32[1, n], %w: f32[n, 1]) {
  %0 = matmul(%x, %z) : f32[n, n]
  %1 = matmul(%0, %w) : f32[n, 1]
  return y=%1
})");
  SpecializationCache outer = program(graph);
  constexpr int64_t kSize = 10'000'000;  // 400 TB
  const Sizes sizes = {{kSize, 1}, {1, kSize}, {kSize, 1}};
  const plan::Plan plan = std::move(outer.preview(sizes)).or_throw();
  EXPECT_EQ(plan.arena_bytes, kSize * kSize * 4);
  const auto refused = outer.specialize(sizes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, core::ErrorKind::kMemory);
  EXPECT_NE(refused.error().message.find("400.0 TB float32[10000000, 10000000] of gemm"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(outer.specialize(Sizes{{3, 1}, {1, 3}, {3, 1}}).ok());
}

// An update of a table by the gradient of some of its rows, which never is a matrix. Without the
// gather nobody has looked at the indices, and what is refused may have changed nothing.
TEST(SpecializationCache, UpdatesRowsAsTheyAreSummed) {
  constexpr size_t kCount = 2000 * 7;  // several blocks of rows
  const auto update = [](std::string_view first) {
    return program(parsed(fmt::format(R"(graph u<f32, i64>(%t: f32[2000, 7], %m: f32[2000, 7],
  %v: f32[9, 7], %i: i64[9], %b: f32[7], %g: f32[2000, 7]) {{
  {}
  %1 = multiply(%0, %v) : f32[9, 7]
  %2 = embedding_grad(%1, %i, shape=(2000, 7)) : f32[2000, 7]
  %3 = add(%g, %2) : f32[2000, 7]
  %4 = multiply(%3, %b) : f32[2000, 7]
  %5 = add(%m, %4) : f32[2000, 7]
  %6 = subtract(%t, %5) : f32[2000, 7]
  return m=%5, t=%6
}})",
                                      first)));
  };
  const Sizes sizes = {{2000, 7}, {2000, 7}, {9, 7}, {9}, {7}, {2000, 7}};
  SpecializationCache checked = update("%0 = gather(%t, %i) : f32[9, 7]");
  SpecializationCache unchecked = update("%0 = exp(%v) : f32[9, 7]");
  EXPECT_EQ(labels(checked, sizes).back(), "scatter_add+add+multiply+add+subtract");
  EXPECT_EQ(labels(unchecked, sizes).back(), "add+multiply+add+subtract");
  const auto t = random_floats(kCount, 1), m = random_floats(kCount, 2), v = random_floats(63, 3);
  const auto b = random_floats(7, 4), g = random_floats(kCount, 5);
  const std::vector<int64_t> indices = {3, 1999, 3, 0, -1, 1017, -2000, 3, 1017};
  std::vector<float> rows(kCount, 0.0F), new_m, new_t;
  for (size_t j = 0; j < 9; ++j) {
    const auto row = static_cast<size_t>((indices[j] + 2000) % 2000);
    for (size_t k = 0; k < 7; ++k) rows[row * 7 + k] += t[row * 7 + k] * v[j * 7 + k];
  }
  for (size_t i = 0; i < kCount; ++i) {
    new_m.push_back(m[i] + (g[i] + rows[i]) * b[i % 7]);
    new_t.push_back(t[i] - new_m.back());
  }
  const auto made = std::move(checked.specialize(sizes)).or_throw();
  std::vector<float> out_m(kCount), out_t(kCount);
  const std::vector<const void*> in = {t.data(),       m.data(), v.data(),
                                       indices.data(), b.data(), g.data()};
  const std::vector<void*> out = {out_m.data(), out_t.data()};
  made->executable->run(in, out).or_throw();
  EXPECT_EQ(out_m, new_m);
  EXPECT_EQ(out_t, new_t);
}

// The sums may not lie where the rows that they are made of do.
TEST(SpecializationCache, KeepsRowsThatAreSummedWhileOthersFinish) {
  constexpr size_t kCount = 2000 * 7;  // several blocks of rows
  SpecializationCache sums =
      program(parsed(R"(graph u<f32, i64>(%t: f32[2000, 7], %v: f32[2000, 7], %i: i64[2000],
  %w: f32[7, 7]) {
  %0 = gather(%t, %i) : f32[2000, 7]
  %1 = multiply(%0, %v) : f32[2000, 7]
  %2 = embedding_grad(%1, %i, shape=(2000, 7)) : f32[2000, 7]
  %3 = add(%2, %1) : f32[2000, 7]
  %4 = matmul(%3, %w) : f32[2000, 7]
  return y=%4
})"));
  const auto t = random_floats(kCount, 1), v = random_floats(kCount, 2);
  std::vector<int64_t> indices;
  std::vector<float> identity(49, 0.0F), rows(kCount, 0.0F), expected;
  for (size_t k = 0; k < 7; ++k) identity[k * 8] = 1;
  for (size_t j = 0; j < 2000; ++j) {
    const size_t row = (j * 31 + 1999) % 2000 / 2;  // each twice, also of later blocks than its own
    indices.push_back(static_cast<int64_t>(row));
    for (size_t k = 0; k < 7; ++k) rows[row * 7 + k] += t[row * 7 + k] * v[j * 7 + k];
  }
  for (size_t i = 0; i < kCount; ++i) {
    const auto row = static_cast<size_t>(indices[i / 7]);
    expected.push_back(rows[i] + t[row * 7 + i % 7] * v[i]);
  }
  const auto made =
      std::move(sums.specialize(Sizes{{2000, 7}, {2000, 7}, {2000}, {7, 7}})).or_throw();
  std::vector<float> y(kCount);
  const std::vector<const void*> in = {t.data(), v.data(), indices.data(), identity.data()};
  const std::vector<void*> out = {y.data()};
  made->executable->run(in, out).or_throw();
  EXPECT_EQ(y, expected);
}

// A product, which is idle while the sum is made and then is needed again.
constexpr std::string_view kIdle = R"(graph m<f32, i64>(%x: f32[100, 100]) {
  %0 = matmul(%x, %x) : f32[100, 100]
  %1 = matmul(%0, %x) : f32[100, 100]
  %2 = matmul(%1, %1) : f32[100, 100]
  %3 = matmul(%2, %1) : f32[100, 100]
  %4 = matmul(%3, %0) : f32[100, 100]
  return y=%4
}
)";

SpecializationCache limited(std::optional<int64_t> limit, bool rematerializes) {
  SpecializationOptions options = on_cpu();
  options.passes = verified();
  options.rematerialize = {limit, rematerializes};
  return SpecializationCache(std::move(passes::optimize(parsed(kIdle), cpu::target())).or_throw(),
                             options);
}

TEST(SpecializationCache, ComputesAgainWhatDoesNotFit) {
  const Sizes sizes = {{100, 100}};
  const std::vector<std::vector<float>> x = {random_floats(10'000, 1)};
  SpecializationCache plain = program(parsed(kIdle));
  const plan::Plan once = std::move(plain.preview(sizes)).or_throw();
  const int64_t usual = plan::memory_use(once).allocated();
  SpecializationCache less = limited(usual - 40'000, false);
  const plan::Plan twice = std::move(less.preview(sizes)).or_throw();
  EXPECT_EQ(once.steps.size(), 5U);
  EXPECT_EQ(twice.steps.size(), 6U);
  EXPECT_LE(plan::memory_use(twice).allocated(), usual - 40'000);
  EXPECT_EQ(run(less, sizes, x), run(plain, sizes, x));
  SpecializationCache shrunk = limited(std::nullopt, true);
  EXPECT_EQ(std::move(shrunk.preview(sizes)).or_throw().steps.size(), 6U);
}

TEST(SpecializationCache, ComputesAgainWhatIsNextToFree) {
  SpecializationOptions options = on_cpu();
  options.passes = verified();
  options.rematerialize.unasked = true;
  const SpecializationCache sparing(
      std::move(passes::optimize(parsed(R"(graph m<f32, i64>(%x: f32[n, n]) {
  %0 = exp(%x) : f32[n, n]
  %1 = matmul(%0, %x) : f32[n, n]
  %2 = matmul(%1, %1) : f32[n, n]
  %3 = matmul(%2, %1) : f32[n, n]
  %4 = matmul(%3, %0) : f32[n, n]
  return y=%4
}
)"),
                                 cpu::target()))
          .or_throw(),
      options);
  EXPECT_EQ(std::move(sparing.preview(Sizes{{3000, 3000}})).or_throw().steps.size(), 6U);
  EXPECT_EQ(std::move(sparing.preview(Sizes{{1000, 1000}})).or_throw().steps.size(), 5U);
}

TEST(SpecializationCache, SaysWhatDoesNotFit) {
  SpecializationCache program = limited(100'000, false);
  const core::Status status = program.specialize(Sizes{{100, 100}}).status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, core::ErrorKind::kMemory);
  EXPECT_NE(status.error().message.find("memory_limit is 100.0 kB\n  40.0 kB float32[100, 100]"),
            std::string::npos)
      << status.error().message;
}

}  // namespace
}  // namespace mithril

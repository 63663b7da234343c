// Covers: backends/c/*.cc backends/c/*.c emit/c_plan_text.cc emit/c_loop.cc emit/c_instruction.cc
// Covers: select/kernel_dims.cc
// Plans as C, compiled by the system's compiler with every warning an error, against the same plans
// on the CPU: to the bit.
#include "backends/c/load.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/c/select.h"
#include "backends/c/target.h"
#include "core/tensor_data.h"
#include "ir/text.h"
#include "ops/built.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "specialize/bytes.h"
#include "specialize/on_cpu.h"

namespace mithril::c {
namespace {

using core::DType;
using test::Bytes;
using test::Sizes;

/// A folder for sources and objects.
class Compiler {
 public:
  Compiler() {
    char pattern[] = "/tmp/mithril_c_XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~Compiler() { std::filesystem::remove_all(folder_); }
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  core::Result<plan::Plan> load(const plan::Plan& plan) {
    const emit::CPlanOptions options;
    MITHRIL_ASSIGN(emit::CPlan printed, emit::print_c_plan(plan, options));
    const std::string stem = (folder_ / fmt::format("plan{}", count_++)).string();
    std::ofstream(stem + ".c") << printed.text;
    const std::string command = fmt::format(
        "cc -std=c99 -Wall -Wextra -Werror -pedantic -O1 -ffp-contract=off -shared -fPIC "
        "-o {0}.so {0}.c -lm 2>{0}.errors",
        stem);
    if (std::system(command.c_str()) != 0) {
      std::ifstream errors(stem + ".errors");
      ADD_FAILURE() << std::string(std::istreambuf_iterator<char>(errors), {});
    }
    return c::load(stem + ".so", options, std::move(printed), plan);
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

core::Result<std::shared_ptr<const Specialization>> specialized(const ir::Graph& graph,
                                                                const Sizes& sizes,
                                                                Compiler* compiler) {
  SpecializationOptions options = on_cpu();
  options.select.exact_conv = true;
  if (compiler != nullptr) {
    options.backend = std::make_shared<const Backend>();
    options.make_executable =
        [compiler](
            const plan::Plan& plan) -> core::Result<std::shared_ptr<const runtime::Executable>> {
      MITHRIL_ASSIGN(plan::Plan loaded, compiler->load(plan));
      return std::shared_ptr<const runtime::Executable>(
          std::make_shared<const runtime::HostExecutable>(std::move(loaded)));
    };
  }
  MITHRIL_ASSIGN(ir::Graph optimized, passes::optimize(graph, c::target(), options.passes));
  return SpecializationCache(std::move(optimized), std::move(options)).specialize(sizes);
}

core::Result<std::vector<Bytes>> run(const ir::Graph& graph, const Sizes& sizes,
                                     Compiler* compiler) {
  MITHRIL_ASSIGN(const auto made, specialized(graph, sizes, compiler));
  return test::run(graph, *made, test::random_inputs(graph, sizes));
}

void expect_equal(const ir::Graph& graph, const Sizes& sizes, const std::string& where) {
  Compiler compiler;
  const auto wanted = run(graph, sizes, nullptr);
  const auto got = run(graph, sizes, &compiler);
  ASSERT_TRUE(wanted.ok()) << where << ": " << wanted.error().text();
  ASSERT_TRUE(got.ok()) << where << ": " << got.error().text();
  for (size_t i = 0; i < wanted->size(); ++i) {
    EXPECT_TRUE(test::is_same(graph.type(graph.outputs[i].value).dtype, (*wanted)[i], (*got)[i]))
        << where << ", output " << i;
  }
}

ir::Graph parsed(std::string_view text) { return std::move(ir::parse(text)).or_throw(); }

class Sampled : public ::testing::TestWithParam<const char*> {};

// Every sample that the op's block states.
TEST_P(Sampled, HasTheBitsOfTheEngine) {
  const ir::OpDef* op = ir::Registry::global().find(GetParam());
  ASSERT_NE(op, nullptr);
  ASSERT_FALSE(op->samples.empty());
  for (size_t at = 0; at < op->samples.size(); ++at) {
    ir::test::Built built = ir::test::build(*op, op->samples[at]);
    ASSERT_TRUE(built.status.ok());
    expect_equal(built.graph, test::sizes_of(built.graph), ir::test::describe(*op, at));
  }
}

INSTANTIATE_TEST_SUITE_P(CPlan, Sampled,
                         ::testing::Values("add", "exp", "gelu", "tanh", "softmax", "layer_norm",
                                           "sum", "prod", "argmax", "matmul", "conv2d",
                                           "max_pool2d", "avg_pool2d", "gather", "concat", "pad",
                                           "qr", "solve", "det", "argsort", "linear_scan"),
                         [](const auto& sampled) { return std::string(sampled.param); });

TEST(CPlan, RunsALayerAndItsGradients) {
  const ir::Graph forward =
      parsed(R"(graph g<f32, i64>(%x: f32[b, 70], %w: f32[40, 70] param, %c: f32[40] param) {
  %0 = linear(%w, %x, %c) : f32[b, 40]
  %1 = tanh(%0) : f32[b, 40]
  %2 = square(%1) : f32[b, 40]
  %3 = mean(%2) : f32[]
  return y=%1, loss=%3
})");
  passes::DifferentiateOptions options;
  options.unit = {"loss"};
  options.wrt = {"w", "c", "x"};
  const ir::Graph graph = std::move(passes::differentiate(forward, options)).or_throw();
  for (const int64_t batch : {1, 9, 300}) {
    expect_equal(graph, {{batch, 70}, {40, 70}, {40}}, fmt::format("batch {}", batch));
  }
}

// Blocks of taps, of columns and of rows that do not end with a tile; strides of 2 by the
// reference.
TEST(CPlan, DifferentiatesConvolutions) {
  for (const char* stride : {"1, 1", "2, 2"}) {
    const int64_t out = stride[0] == '1' ? 27 : 14;
    const ir::Graph forward = parsed(fmt::format(
        R"(graph g<f32, i64>(%x: f32[2, 34, 27, 27], %w: f32[11, 34, 3, 3] param) {{
  %0 = conv2d(%x, %w, stride=({0}), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1) : f32[2, 11, {1}, {1}]
  %1 = tanh(%0) : f32[2, 11, {1}, {1}]
  %2 = mean(%1) : f32[]
  return loss=%2
}})",
        stride, out));
    passes::DifferentiateOptions options;
    options.unit = {"loss"};
    options.wrt = {"w", "x"};
    expect_equal(std::move(passes::differentiate(forward, options)).or_throw(),
                 {{2, 34, 27, 27}, {11, 34, 3, 3}}, stride);
  }
}

TEST(CPlan, RunsLoopsAndTheirGradients) {
  const ir::Graph forward = parsed(R"(graph m<f32, i64>(%h: f32[b], %x: f32[T, b], %w: f32[b]) {
  %0, %1 = scan(%h, %x, %w, carries=1, xs=1, length='T') : f32[b], f32[T, b] {
    graph step<f32, i64>(%c0: f32[b], %x0: f32[b], %k0: f32[b]) {
      %0 = multiply(%x0, %k0) : f32[b]
      %1 = add(%c0, %0) : f32[b]
      %2 = tanh(%1) : f32[b]
      return c0=%2, y0=%0
    }
  }  # model.loop
  %2 = sum(%0) : f32[]
  return last=%0, products=%1, loss=%2
}
)");
  passes::DifferentiateOptions options;
  options.unit = {"loss"};
  options.wrt = {"h", "x", "w"};
  const ir::Graph graph = std::move(passes::differentiate(forward, options)).or_throw();
  for (const int64_t length : {0, 1, 2, 7}) {
    expect_equal(graph, {{5}, {length, 5}, {5}}, fmt::format("{} steps", length));
  }
}

TEST(CPlan, SumsLongRowsAndColumnsInTheOrderOfTheEngine) {
  const ir::Graph graph = parsed(R"(graph g<f32, i64>(%x: f32[a, b]) {
  %0 = sum(%x, axis=(0,)) : f32[b]
  %1 = sum(%x, axis=(1,)) : f32[a]
  %2 = softmax(%x) : f32[a, b]
  return rows=%0, columns=%1, softmax=%2
})");
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 1}, {3, 9001}, {700, 65}, {0, 4}}) {
    expect_equal(graph, {shape}, fmt::format("{} by {}", shape[0], shape[1]));
  }
}

TEST(CPlan, TellsOfBadIndicesAsTheEngineDoes) {
  const ir::Graph graph = parsed(R"(graph g<f32, i64>(%x: f32[4, 3], %i: i64[2]) {
  %0 = gather(%x, %i) : f32[2, 3]
  return y=%0
})");
  Compiler compiler;
  const auto made = std::move(specialized(graph, {{4, 3}, {2}}, &compiler)).or_throw();
  const std::vector<float> x(12, 1.0F);
  const int64_t places[] = {1, 7};
  float y[6];
  const std::vector<const void*> in{x.data(), places};
  const std::vector<void*> out{y};
  const core::Status status = made->executable->run(in, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "index 7 is out of bounds for an axis of size 4");
}

TEST(CPlan, RefusesObjectsThatAreNone) {
  const auto missing = load("/tmp/no/such/object.so", {}, {}, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, core::Code::kDevice);
}

}  // namespace
}  // namespace mithril::c

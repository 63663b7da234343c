// Graphs as text in, Python text out.
#include "emit/python.h"

#include <random>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tensor_data.h"
#include "ir/registry.h"
#include "ir/text.h"

namespace mithril::emit {
namespace {

using testing::HasSubstr;

ir::Graph graph(std::string_view text) {
  auto parsed = ir::parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.error().text();
  return parsed.ok() ? std::move(*parsed) : ir::Graph();
}

ir::Target numpy() {
  ir::Target out;
  out.name = "numpy";
  out.keeps_whole = {"add",  "argmax",  "concat", "full", "linear", "matmul",
                     "relu", "reshape", "rfft",   "sum",  "sum_to"};
  return out;
}

std::string emitted(const ir::Graph& g) {
  auto source = python(g, numpy());
  return source.ok() ? source->text : "error: " + source.error().text();
}

TEST(Python, PrintsANodeALineWithItsPath) {
  EXPECT_EQ(emitted(graph(R"(graph mlp<f32, i64>(%x: f32[b, 4], %w: f32[4, 8] param) {
  %0 = matmul(%x, %w) : f32[b, 8]  # mlp.linear_1
  %1 = relu(%0) : f32[b, 8]  # mlp.relu_1
  return y=%1
})")),
            R"(def evaluate(v0, v1):
    v2 = ops.matmul(v0, v1)  # mlp.linear_1
    v3 = ops.relu(v2); del v2  # mlp.relu_1
    return (v3,)
)");
}

TEST(Python, WritesPointwiseOpsWithoutAFunctionFromTheirExpression) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[b]) {
  %0 = tanh(%x) : f32[b]
  %1 = square(%0) : f32[b]
  %2 = leaky_relu(%1, slope=0.2) : f32[b]
  return y=%2
})")),
            R"(def evaluate(v0):
    v1 = ops.tanh(v0)
    v2 = ops.multiply(v1, v1); del v1
    v4 = ops.where(ops.greater(v2, 0.0), v2, ops.multiply(v2, 0.2)); del v2
    return (v4,)
)");
}

TEST(Python, TakesTheInstructionWhereAFunctionHasItsName) {
  // The function `add` is the instruction; the op adds bools by "or".
  EXPECT_THAT(emitted(graph(R"(graph m<f32, i64>(%x: bool[b], %y: bool[b]) {
  %0 = add(%x, %y) : bool[b]
  return y=%0
})")),
              HasSubstr("v2 = ops.bitwise_or(v0, v1)\n"));
}

TEST(Python, PassesAttributesByName) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[b, 4]) {
  %0 = sum(%x, axis=1, keepdim=true) : f32[b, 1]
  %1 = concat(_, %0, %x, axis=-1) : f32[b, 5]
  return y=%1
})")),
            R"(def evaluate(v0):
    v1 = ops.sum(v0, axis=1, keepdim=True)
    v2 = ops.concat(input=[v1, v0], axis=-1); del v1
    return (v2,)
)");
}

TEST(Python, CastsToTheTypeThatTheEngineChose) {
  EXPECT_THAT(emitted(graph(R"(graph m<f32, i32>(%x: f32[b, 4]) {
  %0 = argmax(%x, axis=1) : i32[b]
  return y=%0
})")),
              HasSubstr("v1 = ops.astype(ops.argmax(v0, axis=1, keepdim=False), ops.int32)\n"));
}

TEST(Python, SpellsNumbersWhereTheyAreUsed) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[b]) {
  %0 = constant(value=0.5, dtype=f32) : f32[]
  %1 = multiply(%x, %0) : f32[b]
  %2 = add(%0, %0) : f32[]
  return y=%1, z=%2, half=%0
})")),
            R"(def evaluate(v0):
    v2 = ops.multiply(v0, 0.5)
    v3 = ops.add(ops.scalar(0.5, ops.float32), ops.scalar(0.5, ops.float32))
    return (v2, v3, ops.scalar(0.5, ops.float32),)
)");
}

TEST(Python, GivesNumbersTheirTypesBesideArraysOfOthers) {
  EXPECT_THAT(emitted(graph(R"(graph m<f32, i64>(%c: bool[b]) {
  %0 = constant(value=0.5, dtype=f32) : f32[]
  %1 = constant(value=2.0, dtype=f32) : f32[]
  %2 = where(%c, %0, %1) : f32[b]
  return y=%2
})")),
              HasSubstr("where(v0, ops.scalar(0.5, ops.float32), ops.scalar(2.0, ops.float32))"));
}

TEST(Python, GivesSeveralAxesAsATuple) {
  EXPECT_THAT(emitted(graph(R"(graph m<f32, i64>(%x: f32[2, 3, 4]) {
  %0 = sum(%x, axis=[0, 2], keepdim=false) : f32[3]
  return y=%0
})")),
              HasSubstr("axis=(0, 2)"));
}

TEST(Python, HandsTensorLiteralsOverBesideTheText) {
  const ir::Graph g = graph(R"(graph m<f32, i64>(%x: f32[2]) {
  %0 = constant(value=tensor<f32[2]>(1.0, 2.0)) : f32[2]
  %1 = add(%x, %0) : f32[2]
  return y=%1
})");
  auto source = python(g, numpy());
  ASSERT_TRUE(source.ok()) << source.error().text();
  EXPECT_EQ(source->text, R"(def evaluate(v0):
    v1 = C[0]
    v2 = ops.add(v0, v1); del v1
    return (v2,)
)");
  ASSERT_EQ(source->constants.size(), 1U);
  EXPECT_EQ(source->constants[0].as_tensor()->shape, std::vector<int64_t>{2});
}

TEST(Python, ReadsSizesFromTheFirstTensorThatShowsThem) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[2*N, 3], %y: f32[N]) {
  %0 = reshape(%x, shape=('N', 6)) : f32[N, 6]
  return y=%0
})")),
            R"(def evaluate(v0, v1):
    n0 = v1.shape[0]
    v2 = ops.reshape(v0, shape=(n0, 6))
    return (v2,)
)");
}

TEST(Python, InvertsLinearSizes) {
  EXPECT_THAT(emitted(graph(R"(graph m<f32, i64>(%x: f32[2*N + 3, 3]) {
  %0 = full(shape=('N', 6), value=1.0, dtype=f32) : f32[N, 6]
  return y=%0
})")),
              HasSubstr("n0 = (v0.shape[0] - 3) // 2\n"));
}

// %0 is deleted where it is made.
TEST(Python, ReadsSizesFromNoResultThatIsDeleted) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[2*N - 2]) {
  %0, %1 = rfft(%x) : f32[N], f32[N]
  %2 = full(shape=('N',), value=1.0, dtype=f32) : f32[N]
  %3 = add(%1, %2) : f32[N]
  return y=%3
})")),
            R"(def evaluate(v0):
    v1, v2 = ops.rfft(v0, axis=-1, n=None, norm=C[0]); del v1
    n0 = v2.shape[0]
    v3 = ops.full(shape=(n0,), value=1.0, dtype=ops.float32)
    v4 = ops.add(v2, v3); del v2, v3
    return (v4,)
)");
}

std::string emitted_with_splits(std::string_view text) {
  ir::Target target = numpy();
  target.keeps_whole.insert({"index", "split_with_sizes"});
  auto source = python(graph(text), target);
  return source.ok() ? source->text : "error: " + source.error().text();
}

TEST(Python, JoinsSlicesThatCoverAnAxis) {
  // In the order of places; what is used after the call is there, and the whole until its last use.
  EXPECT_EQ(emitted_with_splits(R"(graph m<f32, i64>(%x: f32[2, 6]) {
  %0 = relu(%x) : f32[2, 6]
  %1 = index(%0, index=(::, 4:6:)) : f32[2, 2]  # m.split
  %2 = relu(%1) : f32[2, 2]
  %3 = index(%0, index=(::, 0:1:)) : f32[2, 1]  # m.split
  %4 = index(%0, index=(::, 1:4:)) : f32[2, 3]  # m.split
  %5 = relu(%4) : f32[2, 3]
  return y=%2, z=%5, w=%3
})"),
            R"(def evaluate(v0):
    v1 = ops.relu(v0)
    v4, v5, v2 = ops.split_with_sizes(v1, (1, 3, 2), 1); del v1  # m.split
    v3 = ops.relu(v2); del v2
    v6 = ops.relu(v5); del v5
    return (v3, v6, v4,)
)");
}

TEST(Python, DeletesPiecesThatNothingUsesAndKeepsAWholeThatIsUsedLater) {
  EXPECT_EQ(emitted_with_splits(R"(graph m<f32, i64>(%x: f32[6]) {
  %0 = relu(%x) : f32[6]
  %1 = index(%0, index=(0:3:,)) : f32[3]
  %2 = index(%0, index=(3:6:,)) : f32[3]
  %3 = relu(%0) : f32[6]
  return y=%1, z=%3
})"),
            R"(def evaluate(v0):
    v1 = ops.relu(v0)
    v2, v3 = ops.split_with_sizes(v1, (3, 3), 0); del v3
    v4 = ops.relu(v1); del v1
    return (v2, v4,)
)");
}

TEST(Python, NamesTheSizeThatNothingShows) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[N*M]) {
  %0 = reshape(%x, shape=('N', 'M')) : f32[N, M]
  return y=%0
})")),
            "error: reshape: the size N is needed, and no input or earlier result shows it\n"
            "  help: give it in shapes=");
}

TEST(Python, ReturnsNewStatesAfterTheOutputs) {
  EXPECT_THAT(emitted(graph(R"(graph m<f32, i64>(%x: f32[4], %s: f32[4] state) {
  %0 = add(%x, %s) : f32[4]
  %1 = tanh(%0) : f32[4]
  state %s <- %0 = 0.0
  return y=%1
})")),
              HasSubstr("return (v3, v2,)\n"));
}

TEST(Python, RefusesAnOpThatNothingRuns) {
  EXPECT_EQ(emitted(graph(R"(graph m<f32, i64>(%x: f32[4, 3], %i: i64[2]) {
  %0 = gather(%x, %i) : f32[2, 3]
  return y=%0
})")),
            "error: gather: the numpy backend cannot run it: it has no function of that name");
}

// Names are labels: none of them may reach the text but in a comment, escaped.
TEST(Python, HostileNamesNeverBecomeCode) {
  const std::string evil[] = {"x\nimport os",
                              "\"); raise SystemExit  #",
                              "'''",
                              "*/ ?\?/",
                              std::string("nul\0byte", 8),
                              "\xe2\x80\xa8line",
                              "\\",
                              "v0",
                              "ops",
                              "lambda"};
  ir::Graph g = graph(R"(graph m<f32, i64>(%x: f32[b]) {
  %0 = relu(%x) : f32[b]
  return y=%0
})");
  const std::string harmless = emitted(g);
  for (const std::string& name : evil) {
    g.name = name;
    g.value(g.inputs[0]).name = name;
    g.outputs[0].name = name;
    EXPECT_EQ(emitted(g), harmless);
    core::Location place;
    place.path = name;
    g.nodes[0].location = g.add_location(place);
    const std::string with_path = emitted(g);
    EXPECT_THAT(with_path, HasSubstr("# " + ir::escape_comment(name)));
    EXPECT_EQ(std::count(with_path.begin(), with_path.end(), '\n'), 3);
    for (const char c : with_path) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 127));
    g.nodes[0].location = 0;
  }
}

std::string random_name(std::mt19937& random) {
  constexpr std::string_view kHostile = "\n\r\"'\\*/?#;\0(){}%\x80\xe2\xa8 az_.0";
  std::string out;
  const size_t size = random() % 24;
  for (size_t i = 0; i < size; ++i) out += kHostile[random() % kHostile.size()];
  return out;
}

std::string without_comments(const std::string& text) {
  std::string out;
  bool comment = false;
  for (const char c : text) {
    comment = c == '#' || (comment && c != '\n');
    if (!comment) out += c;
  }
  return std::regex_replace(out, std::regex(" +\n"), "\n");
}

TEST(Python, TenThousandHostileNamesChangeNothing) {
  constexpr int kNames = 10000;
  ir::Graph g = graph("graph m<f32, i64>(%x: f32[b]) {\n  return y=%x\n}");
  const ir::OpId op = (*ir::Registry::global().lookup("relu"))->id;
  ir::ValueId value = g.inputs[0];
  for (int i = 0; i < kNames; ++i) {
    const ir::Type type = g.type(value);
    value = g.node(g.add_node(op, {value}, {}, {type}, 0)).results[0];
  }
  g.outputs[0].value = value;
  const std::string harmless = emitted(g);
  std::mt19937 random(7);
  for (ir::Node& node : g.nodes) {
    core::Location place;
    place.path = random_name(random);
    node.location = g.add_location(place);
  }
  const std::string hostile = emitted(g);
  EXPECT_EQ(without_comments(hostile), harmless);
  for (const char c : hostile) ASSERT_TRUE(c == '\n' || (c >= ' ' && c < 127));
}

}  // namespace
}  // namespace mithril::emit

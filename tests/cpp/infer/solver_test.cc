// Covers: infer/cells.cc infer/dims.cc infer/shapes.cc infer/store.cc infer/kind.cc
// Covers: infer/propagators/*.cc
// What the solver infers, row by row: the reference's observed cases, then shapes of outputs
// given and shapes of inputs inferred.
#include "infer/solver.h"

#include <gtest/gtest.h>

#include "infer/rules_for_tests.h"

namespace mithril::infer {
namespace {

using core::HostValue;

HostValue ints(std::vector<int64_t> items) { return HostValue::ints(items); }

/// One op; shapes and values before; what must be printed after.
struct Case {
  std::string what;
  std::string op;
  std::vector<std::pair<std::string, HostValue>> attributes;
  std::vector<std::pair<std::string, std::string>> shapes;  // "input" → "2, 3"
  std::vector<std::pair<std::string, std::string>> expected;
  std::vector<std::pair<std::string, HostValue>> values = {};
  std::vector<std::string> keys = {};  // besides those with shapes and values
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.what; }

class InferenceTable : public testing::TestWithParam<Case> {};

void run(const Case& c, bool rule_first) {
  World w;
  World::Use use;
  const auto key = [&](const std::string& k) {
    for (const auto& [have, cell] : use.keys) {
      if (have == k) return;
    }
    use.keys.emplace_back(k, k);
  };
  key("output");
  for (const auto& [k, v] : c.shapes) key(k);
  for (const auto& [k, v] : c.values) key(k);
  for (const auto& [k, v] : c.expected) key(k);
  for (const auto& k : c.keys) key(k);
  use.attributes = c.attributes;
  if (rule_first) {
    ASSERT_DONE(w.use(c.op, use));
    ASSERT_DONE(w.settle());
  }
  for (const auto& [k, v] : c.shapes) ASSERT_DONE(w.shape(k, v));
  for (const auto& [k, v] : c.values) ASSERT_DONE(w.value(k, v));
  if (!rule_first) ASSERT_DONE(w.use(c.op, use));
  ASSERT_DONE(w.settle());
  ASSERT_DONE(w.solver.check_fixed_point());
  for (const auto& [k, v] : c.expected) {
    const bool value = v.empty() || v[0] != '[';
    EXPECT_EQ(value ? w.print_value(k) : w.print(k), v) << k << " of " << c.what;
  }
  const auto rebuilt = w.solver.rebuild();
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().text();
  EXPECT_EQ(rebuilt->facts(), w.solver.facts());
}

TEST_P(InferenceTable, FactsThenRule) { run(GetParam(), false); }
TEST_P(InferenceTable, RuleThenFacts) { run(GetParam(), true); }

const HostValue kNoValue;

INSTANTIATE_TEST_SUITE_P(
    Reference, InferenceTable,
    testing::Values(
        Case{"linear",
             "linear",
             {{"dimension", 3}},
             {{"input", "2, 7, 5"}},
             {{"weight", "[3, 5]"}, {"bias", "[3]"}, {"output", "[2, 7, 3]"}}},
        Case{"linear as a body",
             "linear_body",
             {{"dimension", 3}},
             {{"input", "2, 7, 5"}},
             {{"weight", "[3, 5]"}, {"bias", "[3]"}, {"output", "[2, 7, 3]"}}},
        Case{"conv2d",
             "conv2d",
             {{"out_channels", 8},
              {"kernel_size", 3},
              {"stride", 2},
              {"padding", 1},
              {"dilation", 1},
              {"groups", 1}},
             {{"input", "2, 3, 32, 32"}},
             {{"weight", "[8, 3, 3, 3]"}, {"bias", "[1, 8, 1, 1]"}, {"output", "[2, 8, 16, 16]"}}},
        Case{"max_pool2d",
             "max_pool2d",
             {{"kernel_size", 2}, {"stride", kNoValue}, {"padding", 0}, {"dilation", 1}},
             {{"input", "2, 3, 32, 32"}},
             {{"output", "[2, 3, 16, 16]"}}},
        Case{"concat",
             "concat",
             {{"axis", 1}},
             {{"input1", "2, 3"}, {"input2", "2, k"}, {"output", "2, 7"}},
             {{"input2", "[2, 4]"}}},
        Case{"polynomial_features",
             "polynomial_features",
             {{"degree", 2}},
             {{"output", "3, 5"}},
             {{"input", "[3, 2]"}}},
        Case{"pad",
             "pad",
             {{"pad_width", HostValue::tuple({ints({1, 1}), ints({0, 2})})}},
             {{"output", "5, 6"}},
             {{"input", "[3, 4]"}}},
        Case{"transpose",
             "transpose",
             {{"axes", kNoValue}},
             {{"output", "2, 3, 4"}},
             {{"input", "[4, 3, 2]"}}},
        Case{"flatten",
             "flatten",
             {{"start_dim", 1}, {"end_dim", -1}},
             {{"input", "2, 3, 4, a"}},
             {{"output", "[2, 12*a]"}}},
        Case{"squeeze",
             "squeeze",
             {},
             {{"input", "2, 1, a, 3, 1"}},
             {{"output", "[2, (V1, ...), 3]"}}},
        Case{"reshape known",
             "reshape",
             {},
             {{"input", "3, 4"}},
             {{"output", "[2, 6]"}},
             {{"shape", ints({2, -1})}}},
        Case{"reshape symbolic",
             "reshape",
             {},
             {{"input", "12, a"}},
             {{"output", "[2, 3, 2*a]"}},
             {{"shape", ints({2, 3, -1})}}},
        Case{"matmul",
             "matmul",
             {},
             {{"a", "b, 3, 4"}, {"output", "7, 3, 5"}},
             {{"b", "[(V1, ...), 4, 5]"}, {"a", "[b, 3, 4]"}}},
        Case{"where",
             "where",
             {},
             {{"cond", "3, 1"}, {"input1", "4"}},
             {{"output", "[(V1, ...), 3, 4]"}},
             {},
             {"input2"}},
        Case{"index with slice, none, ellipsis, int",
             "index",
             {},
             {{"input", "4, 5, 6"}},
             {{"output", "[2, 1, 5]"}},
             {{"index", HostValue::tuple({HostValue(core::Slice{0, 2, kNoValue}), kNoValue,
                                          HostValue(core::EllipsisValue()), 1})}}},
        Case{"index with a list",
             "index",
             {},
             {{"input", "4, 5, 6"}},
             {{"output", "[2, 2, 5, 6]"}},
             {{"index", HostValue::list({HostValue::list({0, 1}), HostValue::list({1, 2})})}}},
        Case{"to_tensor",
             "to_tensor",
             {},
             {},
             {{"output", "[2, 2]"}},
             {{"input", HostValue::list({HostValue::list({1, 2.0}), HostValue::list({3, 4})})}}},
        Case{"shape", "shape", {}, {{"input", "a, 3"}}, {{"output", "(a, 3)"}}},
        Case{"shape backwards", "shape", {}, {}, {{"input", "[2, 3]"}}, {{"output", ints({2, 3})}}},
        Case{"size", "size", {{"dim", kNoValue}}, {{"input", "5, 3"}}, {{"output", "15"}}},
        Case{
            "arange", "arange", {{"start", 0}, {"stop", 10}, {"step", 3}}, {}, {{"output", "[4]"}}},
        Case{"cross_entropy",
             "cross_entropy",
             {},
             {{"input", "8, 10"}},
             {{"target", "[8]"}, {"output", "[8]"}}},
        Case{"squared_error",
             "squared_error",
             {},
             {{"input", "8, 10"}},
             {{"output", "[(V1, ...), 8, 10]"}},
             {},
             {"target"}},
        Case{"add of ints", "add", {}, {}, {{"output", "5"}}, {{"left", 2}, {"right", 3}}}));

INSTANTIATE_TEST_SUITE_P(
    OutputGiven, InferenceTable,
    testing::Values(
        Case{"relu", "relu", {}, {{"output", "2, N"}}, {{"input", "[2, N]"}}},
        Case{"linear",
             "linear",
             {},
             {{"output", "4, 3"}, {"weight", "_, 7"}},
             {{"input", "[4, 7]"}, {"weight", "[3, 7]"}}},
        Case{"linear of any rank",
             "linear",
             {},
             {{"output", "...V, 3"}, {"weight", "_, 7"}},
             {{"input", "[(V1, ...), 7]"}}},
        Case{"linear as a body",
             "linear_body",
             {},
             {{"output", "4, 3"}, {"input", "_, 7"}},
             {{"input", "[4, 7]"}, {"weight", "[3, 7]"}, {"bias", "[3]"}}},
        Case{"transpose by axes",
             "transpose",
             {{"axes", ints({2, 0, 1})}},
             {{"output", "4, 2, 3"}},
             {{"input", "[2, 3, 4]"}}},
        Case{"transpose by negative axes",
             "transpose",
             {{"axes", ints({-1, 0})}},
             {{"output", "4, 2"}},
             {{"input", "[2, 4]"}}},
        Case{"swap_axes",
             "swap_axes",
             {{"axis1", 0}, {"axis2", -1}},
             {{"output", "4, 3, 2"}},
             {{"input", "[2, 3, 4]"}}},
        Case{"sum keeps",
             "sum",
             {{"axis", 1}, {"keepdim", true}},
             {{"output", "2, 1, 4"}},
             {{"input", "[2, u1, 4]"}}},
        Case{"sum drops",
             "sum",
             {{"axis", -1}, {"keepdim", false}},
             {{"output", "2, 3"}},
             {{"input", "[2, 3, u1]"}}},
        Case{"sum keeps what it is not said to drop",
             "sum",
             {{"axis", 0}},
             {{"input", "2, 3"}, {"output", "_, _"}},
             {{"output", "[1, 3]"}}},
        Case{"sum over two",
             "sum",
             {{"axis", ints({0, 2})}, {"keepdim", false}},
             {{"output", "5, 6"}},
             {{"input", "[u1, 5, u2, 6]"}}},
        Case{"sum over mixed axes",
             "sum",
             {{"axis", ints({0, -1})}, {"keepdim", false}},
             {{"output", "5, 6"}},
             {{"input", "[u1, 5, 6, u2]"}}},
        Case{"sum of everything",
             "sum",
             {{"axis", kNoValue}, {"keepdim", true}},
             {{"input", "..., 3, 4"}, {"output", "_, _, _"}},
             {{"input", "[u1, 3, 4]"}, {"output", "[1, 1, 1]"}}},
        Case{"reshape one unknown",
             "reshape",
             {},
             {{"input", "k, 4"}, {"output", "2, 6"}},
             {{"input", "[3, 4]"}},
             {{"shape", ints({2, -1})}}},
        Case{"flatten",
             "flatten",
             {{"start_dim", 1}, {"end_dim", -1}},
             {{"input", "_, 3, k"}, {"output", "5, 12"}},
             {{"input", "[5, 3, 4]"}}},
        Case{"squeeze an axis",
             "squeeze",
             {{"axis", 1}},
             {{"output", "2, 3"}},
             {{"input", "[2, 1, 3]"}}},
        Case{"squeeze the last axis",
             "squeeze",
             {{"axis", -1}},
             {{"output", "...V, 3"}},
             {{"input", "[(V1, ...), 3, 1]"}}},
        Case{"squeeze to what cannot be 1",
             "squeeze",
             {},
             {{"input", "2, N"}, {"output", "_"}},
             {{"input", "[2, 1]"}}},
        Case{"expand_dims",
             "expand_dims",
             {{"axis", 0}},
             {{"output", "1, 3, N"}},
             {{"input", "[3, N]"}}},
        Case{"expand_dims behind",
             "expand_dims",
             {{"axis", -1}},
             {{"output", "3, N, _"}},
             {{"input", "[3, N]"}, {"output", "[3, N, 1]"}}},
        Case{"add of two",
             "squared_error",
             {},
             {{"input", "3, 1"}, {"output", "3, 4"}},
             {{"target", "[(V1, ...), 4]"}}},
        Case{"add of two that may be 1",
             "squared_error",
             {},
             {{"input", "N"}, {"target", "M"}},
             {{"output", "[u1]"}}},
        Case{"add to what may be 1",
             "squared_error",
             {},
             {{"input", "1"}, {"output", "M"}},
             {{"target", "[...]"}}},
        Case{"add of ones",
             "squared_error",
             {},
             {{"output", "1, 1"}, {"input", "_, _"}},
             {{"input", "[1, 1]"}}},
        Case{"add to a scalar",
             "squared_error",
             {},
             {{"input", ""}, {"output", "3, 4"}},
             {{"target", "[3, 4]"}}},
        Case{"matmul of matrices",
             "matmul",
             {},
             {{"a", "_, 4"}, {"b", "_, _"}, {"output", "3, 5"}},
             {{"a", "[3, 4]"}, {"b", "[4, 5]"}}},
        Case{"matmul with a vector",
             "matmul",
             {},
             {{"a", "4"}, {"output", "2, 5"}},
             {{"b", "[2, 4, 5]"}}},
        Case{"matmul of vectors", "matmul", {}, {{"output", ""}, {"a", "6"}}, {{"b", "[6]"}}},
        Case{"concat of symbols",
             "concat",
             {{"axis", 0}},
             {{"input1", "N, 3"}, {"input2", "N, _"}, {"output", "8, _"}},
             {{"input1", "[4, 3]"}, {"input2", "[4, 3]"}, {"output", "[8, 3]"}}},
        Case{"stack",
             "stack",
             {{"axis", 1}},
             {{"output", "3, 2, 4"}},
             {{"input1", "[3, 4]"}, {"input2", "[3, 4]"}}},
        Case{"split",
             "split",
             {{"count", 2}, {"axis", 0}},
             {{"first", "3, 4"}},
             {{"input", "[6, 4]"}, {"second", "[3, 4]"}}},
        Case{"embedding",
             "embedding",
             {},
             {{"output", "2, 5, 8"}, {"weight", "100, _"}},
             {{"weight", "[100, 8]"}, {"input", "[2, 5]"}}},
        Case{"conv2d with stride 1",
             "conv2d",
             {{"out_channels", 8},
              {"kernel_size", 3},
              {"stride", 1},
              {"padding", "valid"},
              {"dilation", 1},
              {"groups", 1}},
             {{"output", "2, 8, 30, 28"}, {"weight", "_, 3, _, _"}},
             {{"input", "[2, 3, 32, 30]"}, {"bias", "[1, 8, 1, 1]"}}},
        Case{"conv2d with an even kernel that keeps sizes",
             "conv2d",
             {{"out_channels", 8},
              {"kernel_size", 2},
              {"stride", 1},
              {"padding", "same"},
              {"dilation", 1},
              {"groups", 1}},
             {{"input", "2, 3, 32, H"}},
             {{"output", "[2, 8, 32, H]"}}},
        Case{"max_pool2d with stride 1",
             "max_pool2d",
             {{"kernel_size", ints({2, 3})},
              {"stride", 1},
              {"padding", ints({0, 1})},
              {"dilation", 1}},
             {{"output", "2, 3, 31, 32"}},
             {{"input", "[2, 3, 32, 32]"}}},
        Case{"pad with an unknown amount",
             "pad",
             {{"pad_width", HostValue::tuple({ints({1, 2})})}},
             {{"output", "M"}},
             {{"input", "[M-3]"}}},
        Case{"broadcast_to",
             "broadcast_to",
             {},
             {{"output", "2, 3"}, {"input", "_"}},
             {{"shape", "(2, 3)"}},
             {{"shape", ints({2, 3})}}},
        Case{"cross_entropy",
             "cross_entropy",
             {},
             {{"output", "8, 5"}, {"input", "_, 10, _"}},
             {{"input", "[8, 10, 5]"}, {"target", "[8, 5]"}}}));

TEST(Polymorphic, OperandsStayOpenUntilTheyAreDecided) {
  World w;
  ASSERT_DONE(w.use("add", {{{"left", "left"}, {"right", "right"}, {"output", "output"}}, {}}));
  ASSERT_DONE(w.shape("left", "3, 1"));
  ASSERT_DONE(w.shape("output", "3, 4"));
  ASSERT_DONE(w.settle());
  EXPECT_FALSE(w.solver.kinds(w.cell("right")).decided());
  EXPECT_EQ(w.print_kind("right"), "tensor or bool or int or float");
  ASSERT_DONE(w.kind("right", kTensor));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("right"), "[(V1, ...), 4]");
  ASSERT_DONE(w.kind("output", kTensorInt));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print_kind("left"), "bool tensor or int tensor");
}

TEST(Polymorphic, ScalarsFoldAndSizesAreValues) {
  World w;
  // y = shape(x)[0] * 2 + 1
  ASSERT_DONE(w.shape("x", "N, 3"));
  ASSERT_DONE(w.use("shape", {{{"input", "x"}, {"output", "s"}}, {}}));
  ASSERT_DONE(w.use("item", {{{"input", "s"}, {"output", "n"}}, {{"index", 0}}}));
  ASSERT_DONE(w.use("multiply", {{{"left", "n"}, {"right", "two"}, {"output", "m"}}, {}}));
  ASSERT_DONE(w.use("add", {{{"left", "m"}, {"right", "one"}, {"output", "y"}}, {}}));
  ASSERT_DONE(w.value("two", 2));
  ASSERT_DONE(w.value("one", 1));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print_value("y"), "2*N+1");
  EXPECT_EQ(w.print_kind("y"), "int");
  ASSERT_DONE(w.value("y", 9));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("x"), "[4, 3]") << "solved backwards";
}

TEST(Values, SizesInSlicesFollowWhatIsKnown) {
  World w;
  ASSERT_DONE(w.shape("x", "N"));
  const Dim size = (*w.solver.shape(w.cell("x")))[0];
  ASSERT_DONE(w.value("part", core::Slice{1, core::SymbolicInt{size.id()}, HostValue()}));
  EXPECT_FALSE(w.solver.is_value_known(w.cell("part")));
  EXPECT_EQ(w.print_value("part"), "1:N");
  ASSERT_DONE(w.value("part", core::Slice{1, 5, HostValue()}));
  EXPECT_EQ(w.print("x"), "[5]");
  EXPECT_EQ(*w.solver.value(w.cell("part")), HostValue(core::Slice{1, 5, HostValue()}));
  const core::Status status = w.value("part", core::Slice{1, 4, HostValue()});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, core::Code::kValueConflict);
}

TEST(Sizes, EqualNormalFormsUnite) {
  World w;
  ASSERT_DONE(w.shape("x", "N, H, W"));
  ASSERT_DONE(
      w.use("flatten", {{{"input", "x"}, {"output", "a"}}, {{"start_dim", 1}, {"end_dim", -1}}}));
  ASSERT_DONE(w.use("reshape", {{{"input", "x"}, {"output", "b"}, {"shape", "s"}}, {}}));
  ASSERT_DONE(w.use("shape", {{{"input", "x"}, {"output", "dims"}}, {}}));
  ASSERT_DONE(w.use("item", {{{"input", "dims"}, {"output", "n"}}, {{"index", 0}}}));
  const CellId parts[] = {w.cell("n"), w.cell("rest")};
  ASSERT_DONE(w.value("rest", -1));
  ASSERT_DONE(w.solver.assert_items(w.cell("s"), parts, false, w.fact()));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("a"), "[N, H*W]");
  EXPECT_EQ(w.print("b"), "[N, H*W]");
  EXPECT_EQ(w.solver.shape(w.cell("a")), w.solver.shape(w.cell("b")));
  ASSERT_DONE(w.shape("b", "5, 12"));
  ASSERT_DONE(w.shape("x", "_, 3, _"));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("x"), "[5, 3, 4]");
}

TEST(Sizes, StridedWindowsLeavePossibleSizes) {
  World w;
  ASSERT_DONE(w.shape("x", "2, 3, _, 8"));
  ASSERT_DONE(
      w.use("max_pool2d", {{{"input", "x"}, {"output", "y"}},
                           {{"kernel_size", 2}, {"stride", 2}, {"padding", 0}, {"dilation", 1}}}));
  ASSERT_DONE(w.shape("y", "_, _, 5, _"));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("x"), "[2, 3, u1, 8]");
  const Dim height = (*w.solver.shape(w.cell("x")))[2];
  EXPECT_EQ(w.solver.possible_values(height), (std::vector<int64_t>{10, 11}));
}

TEST(Sizes, ContradictoryEquationsAreFound) {
  World w;
  ASSERT_DONE(w.shape("x", "N, 3"));
  ASSERT_DONE(w.use("concat", {{{"input1", "x"}, {"input2", "x"}, {"output", "y"}, {"input", "l"}},
                               {{"axis", 0}}}));
  ASSERT_DONE(w.shape("y", "7, 3"));
  EXPECT_FALSE(w.settle().ok()) << "2*N == 7";
}

TEST(Sizes, RepresentationsOverlap) {
  World w;
  ASSERT_DONE(w.shape("x", "...A, 3"));
  ASSERT_DONE(w.shape("x", "2, ...B"));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.solver.representations(w.cell("x")).size(), 2u);
  ASSERT_DONE(w.shape("y", "...A"));
  ASSERT_DONE(w.shape("y", "2, 7"));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("x"), "[2, 7, 3]");
  ASSERT_DONE(w.shape("z", "...B"));
  EXPECT_EQ(w.print("z"), "[7, 3]");
}

TEST(Sizes, SumsAreNumbersOnceTheirPartsAre) {
  World w;
  ASSERT_DONE(w.shape("x", "N, 3"));
  ASSERT_DONE(w.shape("y", "M, 3"));
  ASSERT_DONE(w.use("concat", {{{"input1", "x"}, {"input2", "y"}, {"output", "z"}, {"input", "l"}},
                               {{"axis", 0}}}));
  ASSERT_DONE(w.settle());
  ASSERT_DONE(w.shape("x", "2, _"));
  ASSERT_DONE(w.shape("y", "4, _"));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.solver.sizes(w.cell("z")), (std::vector<int64_t>{6, 3}));
}

TEST(Sizes, BroadcastsAreOpenAsLongAsOperandsAre) {
  World w;
  ASSERT_DONE(w.shape("x", "N"));
  ASSERT_DONE(w.shape("y", "M"));
  ASSERT_DONE(w.use("squared_error", {{{"input", "x"}, {"target", "y"}, {"output", "z"}}, {}}));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("z"), "[u1]");
  ASSERT_DONE(w.shape("y", "1"));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("z"), "[N]");
}

TEST(Assertions, AreRefusedByTheShapesThatTheyReach) {
  World w;
  ASSERT_DONE(w.shape("x", "...A, 3"));
  ASSERT_DONE(w.shape("x", "2, ...B"));
  ASSERT_DONE(w.shape("y", "...A"));
  EXPECT_FALSE(w.shape("y", "4").ok()) << "x would be [4, 3] and [2, ...]";
}

TEST(Kinds, OutputPrunesInputs) {
  World w;
  ASSERT_DONE(w.kind("left", kNum));
  ASSERT_DONE(w.use("add", {{{"left", "left"}, {"right", "right"}, {"output", "output"}}, {}}));
  ASSERT_DONE(w.kind("output", kScalarInt));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print_kind("left"), "bool or int");
}

TEST(Buffer, PassesEverything) {
  World w;
  ASSERT_DONE(w.use("buffer", {{{"input", "x"}, {"output", "y"}}, {}}));
  ASSERT_DONE(w.value("y", HostValue::tuple({1, HostValue("s")})));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print_value("x"), "(1, \"s\")");
}

}  // namespace
}  // namespace mithril::infer

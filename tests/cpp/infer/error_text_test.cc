// Covers: infer/explain.cc infer/propagators/arithmetic.cc infer/propagators/reduce.cc
// Covers: infer/propagators/window.cc
// Whole texts of inference errors.
#include <gtest/gtest.h>

#include "infer/rules_for_tests.h"

namespace mithril::infer {
namespace {

using core::HostValue;

/// The error of using one op on inputs of given shapes.
std::string error_of(const std::string& op,
                     const std::vector<std::pair<std::string, std::string>>& shapes,
                     const std::vector<std::pair<std::string, HostValue>>& attributes = {},
                     const std::vector<std::pair<std::string, HostValue>>& values = {}) {
  World w;
  World::Use use{{{"output", "y"}}, attributes};
  for (const auto& [key, text] : shapes) {
    EXPECT_TRUE(w.shape(key == "output" ? "y" : key, text).ok());
    if (key != "output") use.keys.emplace_back(key, key);
  }
  for (const auto& [key, value] : values) {
    EXPECT_TRUE(w.value(key, value).ok());
    use.keys.emplace_back(key, key);
  }
  core::Status status = w.use(op, use);
  if (status.ok()) status = w.settle();
  return status.ok() ? "no error" : status.error().text();
}

TEST(ErrorText, Broadcast) {
  EXPECT_EQ(error_of("squared_error", {{"input", "2, 3"}, {"target", "4, 3"}}),
            "squared_error: shapes must broadcast, got input: [2, 3] and target: [4, 3]\n"
            "  train.py:3\n"
            "    y      : [u1, 3]    <- input, train.py:1\n"
            "    input  : [2, 3]     <- input, train.py:1\n"
            "    target : [4, 3]     <- target, train.py:2");
}

TEST(ErrorText, InnerDimensions) {
  EXPECT_EQ(error_of("matmul", {{"a", "2, 3"}, {"b", "4, 5"}}).substr(0, 74),
            "matmul: inner dimensions must be equal, got a: [2, 3] and b: [4, 5]\n"
            "  trai");
}

TEST(ErrorText, Axis) {
  EXPECT_EQ(error_of("sum", {{"input", "2, 3"}}, {{"axis", 3}, {"keepdim", false}}).substr(0, 58),
            "sum: axis must be in [-2, 2), got axis: 3 for input: [2, 3");
  EXPECT_EQ(
      error_of("sum", {{"input", "2, 3"}}, {{"axis", HostValue::ints({0, -2})}, {"keepdim", false}})
          .substr(0, 62),
      "sum: axis must not repeat, got axis: (0, -2) for input: [2, 3]");
}

// The output asks for rank 2, at which both axes are the same one.
TEST(ErrorText, AxesThatMeetAtTheOnlyRank) {
  const std::vector<std::pair<std::string, std::string>> shapes{{"input", "...V"}, {"output", ""}};
  const auto sum = [&](std::vector<int64_t> axes) {
    return error_of("sum", shapes, {{"axis", HostValue::ints(axes)}, {"keepdim", false}});
  };
  EXPECT_EQ(sum({0, -1}), "no error");
  const std::string text = sum({0, -2});
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "sum: input: [(V1, ...)] and output: [] do not agree over axis: (0, -2)");
}

TEST(ErrorText, ElementCount) {
  const std::string text =
      error_of("reshape", {{"input", "2, 3"}}, {}, {{"shape", HostValue::ints({4, 2})}});
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "reshape: number of elements must not change, got input: [2, 3] and shape: (4, 2)");
}

TEST(ErrorText, Rank) {
  const std::string text = error_of("linear", {{"input", ""}});
  EXPECT_EQ(text.substr(0, text.find('\n')), "linear: input must have shape [..., k], got []");
}

TEST(ErrorText, Padding) {
  const HostValue width = HostValue::tuple({HostValue::ints({-1, 2})});
  const std::string text = error_of("pad", {{"input", "3"}}, {}, {{"pad_width", width}});
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "pad: pad_width must not be negative, got pad_width: ((-1, 2),)");
}

TEST(ErrorText, Overflow) {
  const std::string text =
      error_of("floor_divide", {}, {}, {{"left", HostValue(INT64_MIN)}, {"right", -1}});
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "floor_divide: no value for -9223372036854775808 // -1");
}

TEST(ErrorText, TwoWiresThatCannotBeOne) {
  World w;
  ASSERT_TRUE(w.shape("a", "N, 3").ok());
  ASSERT_TRUE(w.shape("b", "M, 4").ok());
  const core::Status status = w.solver.unify(w.cell("a"), w.cell("b"), w.fact("merge"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().text(),
            "cannot connect, got [N, 3] and [M, 4]\n"
            "  train.py:3\n"
            "    a : [N, 3]    <- a, train.py:1\n"
            "    b : [M, 4]    <- b, train.py:2");
  EXPECT_TRUE(w.solver.conflict().united);
}

// Their first sizes are one by the time the second ones clash: no reason for the other side.
TEST(ErrorText, SidesOfAMergeRestOnTheirOwnFacts) {
  World w;
  ASSERT_TRUE(w.shape("x", "N, 3").ok());
  ASSERT_TRUE(w.shape("x", "5, _").ok());
  ASSERT_TRUE(w.shape("z", "M, 4").ok());
  ASSERT_TRUE(w.use("relu", {{{"input", "x"}, {"output", "a"}}, {}}).ok());
  ASSERT_TRUE(w.use("relu", {{{"input", "z"}, {"output", "b"}}, {}}).ok());
  ASSERT_TRUE(w.settle().ok());
  ASSERT_FALSE(w.solver.unify(w.cell("a"), w.cell("b"), w.fact("merge")).ok());
  const Conflict& conflict = w.solver.conflict();
  ASSERT_EQ(conflict.sides.size(), 2u);
  for (const auto& [side, own] : {std::pair(0, "x"), std::pair(1, "z")}) {
    for (const FactId fact : conflict.sides[static_cast<size_t>(side)].facts) {
      const std::string said = w.solver.fact(fact).text;
      EXPECT_TRUE(said == own || said == "relu") << side << " rests on " << said;
    }
  }
}

TEST(ErrorText, ASizeThatIsNoneOfThePossible) {
  World w;
  const CellId count = w.cell("count", kScalarInt);
  ASSERT_TRUE(w.solver.assert_interval(count, {HostValue(1), HostValue(8)}, w.fact("count")).ok());
  ASSERT_TRUE(w.settle().ok());
  EXPECT_EQ(w.solver.limits(count), "in [1, 8]");
  const core::Status status = w.value("count", HostValue(9));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().text(),
            "expected a number in [1, 8], got 9\n"
            "  train.py:2\n"
            "    count : int in [1, 8]    <- count, train.py:1");
  EXPECT_EQ(w.solver.conflict().refused.allowed, "in [1, 8]");
}

TEST(ErrorText, NamesOfVariadics) {
  World w;
  const ScopeId first = w.solver.new_scope(), second = w.solver.new_scope();
  const ShapeTemplate lead{TemplateItem::variadic("lead"), TemplateItem::of(3)};
  const auto state = [&](const char* name, const ShapeTemplate& shape, ScopeId scope) {
    return w.solver.assert_shape(w.cell(name), shape, scope, w.fact(name)).ok();
  };
  ASSERT_TRUE(state("a", lead, first));
  const Mark mark = w.solver.mark();
  ASSERT_TRUE(state("b", lead, second));  // another one of that name
  EXPECT_EQ(w.print("a") + w.print("b"), "[(lead, ...), 3][(V1, ...), 3]");
  ASSERT_TRUE(w.solver.unify(w.cell("b"), w.cell("a"), w.fact()).ok());
  EXPECT_EQ(w.print("b"), "[(lead, ...), 3]");
  w.solver.undo(mark);
  ASSERT_TRUE(state("c", {TemplateItem::variadic("V7")}, second));
  EXPECT_EQ(w.print("c"), "[(V1, ...)]");
}

TEST(ErrorText, TwoShapesOfOneWire) {
  World w;
  ASSERT_TRUE(w.shape("x", "2, 3").ok());
  const core::Status status = w.shape("x", "2, 4");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().text(),
            "shapes are in conflict, got [2, 4] and [2, 3]\n"
            "  train.py:2\n"
            "    x : [2, 3]    <- x, train.py:1");
}

}  // namespace
}  // namespace mithril::infer

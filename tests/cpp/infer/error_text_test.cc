// Covers: infer/explain.cc
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

#include "core/error.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

Error inner_dimensions() {
  Error error;
  error.kind = ErrorKind::kShape;
  error.code = Code::kShapeInner;
  error.message = "matmul: inner dimensions must be equal, got a: f32[2, 3] and b: f32[4, 5]";
  return error;
}

TEST(ErrorText, IsTheMessageAloneWhenNothingElseIsKnown) {
  EXPECT_EQ(inner_dimensions().text(),
            "matmul: inner dimensions must be equal, got a: f32[2, 3] and b: f32[4, 5]");
}

TEST(ErrorText, NamesModelPathAndPlace) {
  Error error = inner_dimensions();
  error.location = {"/home/me/train.py", 14, "mlp.linear_1"};
  EXPECT_EQ(error.text(),
            "matmul: inner dimensions must be equal, got a: f32[2, 3] and b: f32[4, 5]\n"
            "  in model mlp.linear_1 (train.py:14)");
}

TEST(ErrorText, NamesThePathWithoutPlaceAndThePlaceWithoutPath) {
  Error error = inner_dimensions();
  error.message = "m";
  error.location = {"", 0, "mlp"};
  EXPECT_EQ(error.text(), "m\n  in model mlp");
  error.location = {"train.py", 14, ""};
  EXPECT_EQ(error.text(), "m\n  at train.py:14");
}

TEST(ErrorText, ListsFactsInTheirOrderAndTheHintLast) {
  Error error;
  error.message = "'head' (Linear) cannot take 'features'";
  error.facts = {{"features : [N, 512]", {"train.py", 28, "flat"}, "", 0},
                 {"W : [10, 784]", {"train.py", 31, ""}, "", 0},
                 {"d_in : 784", {"", 0, "head"}, "", 0},
                 {"given", {}, "", 0}};
  error.hint = "W has the shape for a 784-wide input";
  EXPECT_EQ(error.text(),
            "'head' (Linear) cannot take 'features'\n"
            "    features : [N, 512]     <- 'flat', train.py:28\n"
            "    W        : [10, 784]    <- train.py:31\n"
            "    d_in     : 784          <- 'head'\n"
            "    given\n"
            "  help: W has the shape for a 784-wide input");
}

TEST(ErrorText, LongFormShowsTheLineOfCodeTheChainAndTheReasons) {
  Error error;
  error.message = "'head' (Linear) cannot take 'features'";
  error.location = {"/home/me/train.py", 31, "mlp.head"};
  error.source = "model |= ml.Linear(10)(input=\"features\", weight=W)";
  error.facts = {{"features : [N, 512]", {"/home/me/train.py", 28, ""}, "Flatten 'flat'", 0},
                 {"pixels : [N, 16, 32]", {"/home/me/train.py", 20, ""}, "set_shapes", 1},
                 {"W : [10, 784]", {"/home/me/train.py", 31, ""}, "key 'W'", 0}};
  error.reasons = {"'d_in' would have to be 512 and 784"};
  error.hint = "did you mean input=\"pixels\"?";
  EXPECT_EQ(error.text(),
            "'head' (Linear) cannot take 'features'\n"
            "  train.py:31   model |= ml.Linear(10)(input=\"features\", weight=W)\n"
            "  in model mlp.head\n"
            "    features : [N, 512]       <- Flatten 'flat', train.py:28\n"
            "      pixels : [N, 16, 32]    <- set_shapes, train.py:20\n"
            "    W        : [10, 784]      <- key 'W', given here\n"
            "    'd_in' would have to be 512 and 784\n"
            "  help: did you mean input=\"pixels\"?");
}

TEST(ErrorException, SaysTheWholeText) {
  Error error = inner_dimensions();
  error.message = "m";
  error.hint = "h";
  EXPECT_STREQ(ErrorException(error).what(), "m\n  help: h");
}

TEST(Suggestion, NamesACandidateWithinTwoEdits) {
  const std::vector<std::string> ops = {"relu", "gelu", "softmax"};
  EXPECT_EQ(suggestion("relux", ops), ", did you mean 'relu'?");
  EXPECT_EQ(suggestion("sofmtax", ops), ", did you mean 'softmax'?");
  EXPECT_EQ(suggestion("sftmx", ops), ", did you mean 'softmax'?");
}

TEST(Suggestion, TakesTheNearestAndOfEqualsTheFirst) {
  EXPECT_EQ(suggestion("weigth", {"eight", "weight"}), ", did you mean 'weight'?");
  EXPECT_EQ(suggestion("aelu", {"relu", "gelu"}), ", did you mean 'relu'?");
}

TEST(Suggestion, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(suggestion("conv2d", {"relu", "softmax"}), "");
  EXPECT_EQ(suggestion("", {"a"}), "");
  EXPECT_EQ(suggestion("relu", {}), "");
  EXPECT_EQ(suggestion("relu", {"relu"}), "");
}

TEST(Suggestion, ListsTheKeysWhereNoneIsNear) {
  EXPECT_EQ(suggestion_or_keys("inptu", {"input", "u"}), ", did you mean 'input'?");
  EXPECT_EQ(suggestion_or_keys("output", {"input", "$1", "u"}), "; its keys are 'input', 'u'");
  EXPECT_EQ(suggestion_or_keys("output", {}), "");
  const std::vector<std::string> many(13, "k");
  EXPECT_EQ(suggestion_or_keys("output", many).substr(0, 22), "; its keys are 'k', 'k");
  EXPECT_EQ(suggestion_or_keys("output", many).substr(70), "'k', …");
}

TEST(Suggestion, AsksMoreOfShortNames) {
  EXPECT_EQ(suggestion("x", {"y"}), ", did you mean 'y'?");
  EXPECT_EQ(suggestion("x", {"abc"}), "");
  EXPECT_EQ(suggestion("ab", {"cd"}), "");
}

TEST(Suggestion, DoesNotMeasureHostileNames) {
  const std::string huge(1 << 20, 'x');
  EXPECT_EQ(suggestion(huge, {"x"}), "");
  EXPECT_EQ(suggestion("x", {huge}), "");
}

}  // namespace
}  // namespace mithril::core

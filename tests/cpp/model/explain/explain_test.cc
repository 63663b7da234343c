// Covers: model/explain/explain.cc model/explain/hints.cc model/explain/report.cc
// Whole texts of clashes, the chain behind a wire, legal sizes, near misses.
#include "model/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/build.h"

namespace mithril::model {
namespace {

using test::at;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Location line(int number) { return {"/home/me/train.py", number, ""}; }

Model layer(int64_t width, std::string name, int made) {
  LeafSpec spec;
  spec.attrs = {{"dimension", HostValue(width)}};
  spec.name = std::move(name);
  return Model::leaf(test::op("linear"), spec, line(made));
}

template <class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const core::ErrorException& error) {
    return error.what();
  }
  return "no error";
}

Connection key(const std::string& name, ShapeTemplate shape, int made) {
  KeySpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  return Connection::key(spec, line(made));
}

TEST(LongForm, NamesBothFactsWithTheirLines) {
  Model model;
  model.extend(layer(512, "wide", 27), at({{"input", "pixels"}, {"output", "features"}}),
               Chain::kPlain, line(28));
  const Connections head = {{"input", Argument::named("features")},
                            {"weight", Argument::of(key("W", test::sizes({10, 784}), 30))}};
  EXPECT_EQ(text_of([&] { model.extend(layer(10, "head", 31), head, Chain::kPlain, line(31)); }),
            "'head' (Linear) cannot take 'features'\n"
            "  train.py:31\n"
            "    features : [(V1, ...), 512]    <- Linear 'wide' made in line 27, train.py:28\n"
            "    W        : [10, 784]           <- key 'W', train.py:30\n"
            "    'd_in' would have to be 512 and 784\n"
            "  help: to go with 'features', 'W' must be [10, 512]");
}

TEST(LongForm, NamesTwoStatements) {
  Model model;
  model.extend(test::leaf("relu"), at({{"input", "x"}, {"output", "y"}}), Chain::kPlain, line(1));
  model.set_shapes({{"x", test::sizes({2, 3})}}, line(2));
  EXPECT_EQ(text_of([&] {
              model.set_shapes({{"y", test::sizes({3, 2})}}, line(3));
            }),
            "'y' cannot be [3, 2]\n"
            "  train.py:3\n"
            "    y : [2, 3]    <- set_shapes, train.py:2\n"
            "    y : [3, 2]    <- set_shapes, given here\n"
            "  help: the axes of 'y' are in another order: did you mean [2, 3]?");
}

TEST(Why, IsTheChainFromTheWireToWhatWasStated) {
  Model model;
  model.extend(layer(8, "first", 1), at({{"input", "x"}, {"output", "h"}}), Chain::kPlain, line(1));
  model.extend(test::leaf("relu"), at({{"input", "h"}, {"output", "y"}}), Chain::kPlain, line(2));
  model.set_shapes({{"x", test::sizes({5, 4})}}, line(3));
  std::vector<std::string> lines;
  for (const infer::Reason& reason : model.why("y")) {
    lines.push_back(reason.text + " <- " + reason.by + " " + core::to_string(reason.location));
  }
  EXPECT_THAT(
      lines, ElementsAre("y : [5, 8] <- Relu train.py:2", "h : [5, 8] <- Linear 'first' train.py:1",
                         "x : [5, 4] <- set_shapes train.py:3"));
}

TEST(LegalSizes, AreThoseWithWhichAllOthersHaveOne) {
  Model model;
  LeafSpec spec;
  spec.keys = {{"shape", KeySpec{.value = HostValue::ints({2, -1})}}};
  model.extend(Model::leaf(test::op("reshape"), spec), at({{"input", "x"}, {"output", "y"}}));
  model.set_shapes({{"x", {infer::TemplateItem::symbol("N"), infer::TemplateItem::of(3)}}});
  const std::vector<LegalSizes> found = model.legal_sizes({"x"}, 7, 1000);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].symbol, "N");
  EXPECT_THAT(found[0].sizes, ElementsAre(2, 4, 6));
  EXPECT_EQ(test::shape(model, "x"), "[N, 3]");
  EXPECT_EQ(test::code_of([&] { (void)model.legal_sizes({"x"}, 7, 2); }), core::Code::kStepLimit);
}

TEST(LegalSizes, AreNotThoseOfEmptyDataOnly) {
  Model model;
  LeafSpec spec;
  spec.keys = {{"shape", KeySpec{.value = HostValue::ints({-1, 4})}}};
  model.extend(Model::leaf(test::op("reshape"), spec), at({{"input", "x"}, {"output", "y"}}));
  using infer::TemplateItem;
  // B H elements are 4 B: H is 4, or there are no rows.
  model.set_shapes({{"x", {TemplateItem::symbol("B"), TemplateItem::symbol("H")}},
                    {"y", {TemplateItem::symbol("B"), TemplateItem::of(4)}}});
  for (const LegalSizes& found : model.legal_sizes({"x"}, 9, 1000)) {
    if (found.symbol == "H") {
      EXPECT_THAT(found.sizes, ElementsAre(4));
    } else {
      EXPECT_EQ(found.sizes.size(), 9u) << found.symbol;
    }
  }
}

TEST(NearMisses, NameReaderAndWriter) {
  Model model;
  model.extend(test::leaf("exp"), at({{"input", "pixels"}, {"output", "hidden"}}), Chain::kPlain,
               line(1));
  model.extend(test::leaf("relu"), at({{"input", "hiden"}, {"output", "y"}}), Chain::kPlain,
               line(2));
  const std::vector<NearMiss> found = model.near_misses();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].input + " " + found[0].wire, "hiden hidden");
  EXPECT_EQ(found[0].read.location, line(2));
  EXPECT_EQ(found[0].written.location, line(1));
  EXPECT_THAT(found[0].read.text, HasSubstr("read by 'input' of"));
}

TEST(NearMisses, LeaveShortNamesAndNumbersAlone) {
  Model model;
  model.extend(test::leaf("exp"), at({{"input", "x"}, {"output", "y"}}));
  model.extend(test::leaf("exp"), at({{"input", "stage1"}, {"output", "stage2"}}));
  EXPECT_THAT(model.near_misses(), IsEmpty());
}

}  // namespace
}  // namespace mithril::model

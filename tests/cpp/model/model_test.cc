// Covers: model/connection.cc model/edit/extend.cc model/keys.cc model/tree/leaf.cc
// Covers: model/tree/naming.cc model/query.cc
#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/build.h"

namespace mithril::model {
namespace {

using core::Code;
using test::at;
using test::code_of;
using test::keys;
using test::leaf;
using test::linear;
using test::message_of;
using test::Strings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// --- numbering and names (reference 2.11) -------------------------------------------------------

Model three_layers() {
  Model model;
  model.extend(linear(10));
  model.extend(leaf("relu"), {}, Chain::kCanonical);
  model.extend(linear(2), {}, Chain::kCanonical);
  return model;
}

TEST(ModelNames, NumbersFollowKeyOrder) {
  const Model model = three_layers();
  EXPECT_THAT(model.input_keys(), ElementsAre("$1", "$2", "$3", "$6", "$7"));
  EXPECT_THAT(model.internal_keys(), ElementsAre("$4", "$5"));
  EXPECT_THAT(model.latent_output_keys(), ElementsAre("$8"));
  EXPECT_EQ(model.cin().key(), "$2");
  EXPECT_EQ(model.cout().key(), "$8");
}

TEST(ModelNames, GeneratedNames) {
  EXPECT_THAT(
      three_layers().generate_keys(true, true),
      ElementsAre(Pair("$1", "$weight_0"), Pair("$2", "$input"), Pair("$3", "$bias_0"),
                  Pair("$4", "$_Linear_0_output"), Pair("$5", "$_Relu_1_output"),
                  Pair("$6", "$weight_1"), Pair("$7", "$bias_1"), Pair("$8", "$_Linear_2_output")));
}

TEST(ModelNames, NamedWires) {
  Model model;
  model.extend(linear(10), at({{"input", "x"}, {"output", "h"}}));
  model.extend(leaf("relu"), at({{"output", "y"}}), Chain::kCanonical);
  EXPECT_THAT(model.input_keys(), ElementsAre("$1", "x", "$2"));
  EXPECT_THAT(model.internal_keys(), ElementsAre("h"));
  EXPECT_THAT(model.latent_output_keys(), ElementsAre("y"));
  EXPECT_THAT(model.generate_keys(), ElementsAre(Pair("$1", "$weight"), Pair("$2", "$bias")));
}

TEST(ModelNames, TwoReadersOfOneInput) {
  Model model;
  model.extend(linear(10), at({{"input", "x"}}));
  model.extend(linear(10), at({{"input", "x"}}));
  EXPECT_THAT(model.input_keys(), ElementsAre("$1", "x", "$2", "$4", "$5"));
  EXPECT_THAT(model.latent_output_keys(), ElementsAre("$3", "$6"));
  EXPECT_EQ(model.cin().key(), "x");
  EXPECT_THAT(keys(model.couts()), ElementsAre("$3", "$6"));
  EXPECT_THAT(model.generate_keys(), ElementsAre(Pair("$1", "$weight_0"), Pair("$2", "$bias_0"),
                                                 Pair("$4", "$weight_1"), Pair("$5", "$bias_1")));
}

TEST(ModelNames, ValueAtConnectIsAnInput) {
  Model model;
  model.extend(leaf("add"),
               {{"left", Argument::named("a")}, {"right", Argument::of(HostValue(3.0))}});
  EXPECT_THAT(model.input_keys(), ElementsAre("a", "$1"));
  EXPECT_TRUE(model.is_valued("$1"));
  EXPECT_THAT(model.generate_keys(), ElementsAre(Pair("$1", "$right")));
}

TEST(ModelNames, ValueAtConstructionIsLatent) {
  Model model;
  model.extend(leaf("add", test::with_value("right", 3.0)), at({{"left", "a"}}));
  EXPECT_THAT(model.input_keys(), ElementsAre("a"));
  EXPECT_THAT(model.latent_input_keys(), ElementsAre("$1"));
  EXPECT_THAT(model.generate_keys(), ElementsAre(Pair("$1", "$_Add_0_right")));
}

TEST(ModelNames, Expressions) {
  const Connection x = test::key("x");
  LeafSpec axis = test::with_value("axis", 1);
  const Connection mean = Model::call(test::op("mean"), {Argument::of(x)}, axis);
  const Connection twice =
      Model::call(test::op("multiply"), {Argument::of(HostValue(2)), Argument::of(x)});
  const Connection y = Model::call(test::op("add"), {Argument::of(mean), Argument::of(twice)});
  const Connection unused = Model::call(test::op("add"), {Argument::of(y), Argument::of(mean)});
  Model model;
  model.extend(leaf("buffer"), {{"input", Argument::of(y)}, {"output", Argument::named("o")}});
  EXPECT_THAT(model.input_keys(), ElementsAre("x"));
  EXPECT_THAT(model.internal_keys(), ElementsAre("$3", "$5", "$6"));
  EXPECT_THAT(model.latent_input_keys(), ElementsAre("$1", "$2", "$4"));
  EXPECT_THAT(model.latent_output_keys(), ElementsAre("o"));
  EXPECT_THAT(model.submodel_names(), ElementsAre("Mean", "Multiply", "Add", "Buffer"));
  const auto names = model.generate_keys();
  EXPECT_EQ(names[0].second, "$_Mean_0_axis");
  EXPECT_EQ(names[1].second, "$_Mean_0_keepdim");
  EXPECT_EQ(names[2].second, "$_Mean_0_output");
  EXPECT_EQ(names[3].second, "$_Multiply_1_left");
  EXPECT_EQ(y.key(), "$6");
  EXPECT_TRUE(unused.pending());
}

TEST(ModelNames, SubmodelNames) {
  Model model;
  model.extend(linear(2, "Linear_0"));
  model.extend(linear(2));
  model.extend(linear(2));
  model.extend(leaf("relu"));
  EXPECT_THAT(model.submodel_names(), ElementsAre("Linear_0", "Linear_1", "Linear_2", "Relu"));
  EXPECT_EQ(code_of([&] { model.extend(linear(2, "Linear_0")); }), Code::kNameTaken);
}

// --- `+=` (reference 2.6, K13) ------------------------------------------------------------------

TEST(ModelChain, AddWithBothFreeNamesThem) {
  Model model;
  model.extend(linear(10));
  const std::string before = model.dump();
  const auto chain = [&] { model.extend(leaf("add"), {}, Chain::kCanonical); };
  EXPECT_EQ(code_of(chain), Code::kCanonical);
  EXPECT_THAT(message_of(chain), HasSubstr("got 2: 'left', 'right'"));
  EXPECT_EQ(model.dump(), before);
}

TEST(ModelChain, AddWithOneGiven) {
  Model model;
  model.extend(linear(10));
  model.extend(leaf("add"), at({{"right", "r"}}), Chain::kCanonical);
  EXPECT_EQ(model.wiring(model.submodels()[1])[0].second.key(), "$4");
  model.extend(leaf("add"), at({{"left", "l"}}), Chain::kCanonical);
  EXPECT_EQ(model.wiring(model.submodels()[2])[1].second.key(), "$5");
}

TEST(ModelChain, AllGivenIsPlain) {
  Model model;
  model.extend(linear(10));
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}}), Chain::kCanonical);
  EXPECT_THAT(keys(model.couts()), ElementsAre("$4", "$5"));
  EXPECT_EQ(code_of([&] { model.extend(leaf("relu"), {}, Chain::kCanonical); }), Code::kCanonical);
}

TEST(ModelChain, ExplicitRelu) {
  Model model;
  model.extend(linear(10), at({{"output", "h"}}));
  model.extend(leaf("relu"), at({{"input", "h"}, {"output", "y"}}), Chain::kCanonical);
  EXPECT_EQ(model.cout().key(), "y");
}

TEST(ModelChain, OmittedCountsAsNotGiven) {
  Model model;
  model.extend(linear(10));
  model.extend(leaf("relu"), {{"input", Argument::omitted()}}, Chain::kCanonical);
  EXPECT_EQ(model.cout().key(), "$5");
  EXPECT_THAT(model.internal_keys(), ElementsAre("$4"));
}

// --- errors (reference 2.14) --------------------------------------------------------------------

TEST(ModelErrors, Structure) {
  Model model;
  EXPECT_EQ(code_of([&] { model.extend(model); }), Code::kModelFrozen);
  const Model relu = leaf("relu");
  model.extend(relu, at({{"input", "x"}, {"output", "y"}}));
  EXPECT_EQ(code_of([&] { model.extend(relu); }), Code::kModelFrozen);
  Model grown = relu;
  EXPECT_EQ(code_of([&] { grown.extend(leaf("relu")); }), Code::kModelFrozen);
  Model frozen = leaf("relu");
  EXPECT_EQ(code_of([&] { frozen.extend(leaf("relu")); }), Code::kModelFrozen);
  EXPECT_EQ(code_of([&] { model.extend(leaf("relu"), at({{"inptu", "x"}})); }), Code::kKeyUnknown);
  EXPECT_THAT(message_of([&] {
                model.extend(leaf("relu"), at({{"inptu", "x"}}));
              }),
              HasSubstr("did you mean 'input'?"));
}

TEST(ModelErrors, Writers) {
  Model model;
  model.extend(leaf("relu"), at({{"input", "x"}, {"output", "y"}}));
  EXPECT_EQ(code_of([&] { model.extend(leaf("relu"), at({{"output", "y"}})); }), Code::kMultiWrite);
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), {{"output", Argument::of(HostValue(1))}});
            }),
            Code::kValueArgument);
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), at({{"output", ""}}));
            }),
            Code::kNameReserved);
  EXPECT_THAT(message_of([&] {
                model.extend(leaf("relu"), at({{"input", "a"}, {"output", "b"}, {"input", "c"}}));
              }),
              HasSubstr("key 'input' is given twice"));
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), at({{"output", "input"}}));
            }),
            Code::kNameReserved);
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), at({{"input", "$9"}}));
            }),
            Code::kNameReserved);
}

TEST(ModelErrors, Cycles) {
  Model model;
  model.extend(leaf("relu"), at({{"input", "a"}, {"output", "b"}}));
  const std::string before = model.dump();
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), at({{"input", "b"}, {"output", "a"}}));
            }),
            Code::kCycle);
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), at({{"input", "c"}, {"output", "c"}}));
            }),
            Code::kCycle);
  EXPECT_EQ(model.dump(), before);
  model.extend(leaf("relu"), at({{"input", "z"}, {"output", "a"}}));  // reverse order is allowed
  EXPECT_THAT(model.internal_keys(), ElementsAre("a"));
  EXPECT_THAT(model.input_keys(), ElementsAre("z"));
}

TEST(ModelErrors, ForeignConnection) {
  Model model, other;
  model.extend(leaf("relu"), at({{"input", "a"}, {"output", "b"}}));
  other.extend(leaf("relu"), at({{"input", "a"}, {"output", "b"}}));
  EXPECT_EQ(code_of([&] {
              model.extend(leaf("relu"), {{"input", Argument::of(other.connection("b"))}});
            }),
            Code::kForeign);
  EXPECT_EQ(code_of([&] { model.connection("q"); }), Code::kKeyUnknown);
}

TEST(ModelErrors, ConflictUndoesEverything) {
  Model model;
  model.extend(linear(10), at({{"input", "x"}, {"output", "h"}}));
  model.set_shapes({{"x", test::sizes({4, 8})}});
  const std::string before = model.dump();
  const Model next = linear(3);
  LeafSpec spec;
  KeySpec weight;
  weight.shape = test::sizes({3, 99});
  spec.keys = {{"weight", weight}};
  const Model clashing = leaf("linear", spec);
  const Connection fresh = test::key("q");
  EXPECT_THROW(
      model.extend(clashing, {{"input", Argument::named("h")}, {"output", Argument::of(fresh)}}),
      core::ErrorException);
  EXPECT_EQ(model.dump(), before);
  EXPECT_FALSE(clashing.is_submodel());
  EXPECT_FALSE(fresh.attached());
  model.extend(next, {{"input", Argument::named("h")}, {"output", Argument::of(fresh)}});
  EXPECT_EQ(fresh.key(), "q");
  EXPECT_EQ(test::shape(model, "q"), "[4, 3]");
}

TEST(ModelErrors, BothFactsHaveTheirLines) {
  const auto line = [](int number) { return Location{"train.py", number, ""}; };
  Model model("mlp");
  LeafSpec ten;
  ten.attrs = {{"dimension", HostValue(10)}};
  model.extend(Model::leaf(test::op("linear"), ten, line(28)),
               at({{"input", "x"}, {"output", "h"}}), Chain::kPlain, line(28));
  KeySpec weight;
  weight.name = "W";
  weight.shape = test::sizes({3, 784});
  ten.name = "head";
  const Connections head = {{"input", Argument::named("h")},
                            {"weight", Argument::of(Connection::key(weight, line(31)))}};
  const Model child = Model::leaf(test::op("linear"), ten, line(30));
  try {
    model.extend(child, head, Chain::kPlain, line(31));
    FAIL() << "the shapes clash";
  } catch (const core::ErrorException& error) {
    EXPECT_THAT(error.error().text(), HasSubstr("  train.py:31\n  in model mlp.head"));
    EXPECT_THAT(error.error().text(), HasSubstr("Linear 'head' made in line 30"));
    EXPECT_THAT(error.error().text(), HasSubstr("W : [3, 784]"));
  }
}

// --- inference ----------------------------------------------------------------------------------

TEST(ModelInference, LinearChain) {
  Model model;
  model.extend(linear(10), at({{"input", "x"}, {"weight", "w"}}));
  model.extend(leaf("relu"), {}, Chain::kCanonical);
  model.extend(linear(2), at({{"output", "y"}}), Chain::kCanonical);
  model.set_shapes({{"x", test::sizes({5, 7})}});
  EXPECT_EQ(test::shape(model, "w"), "[10, 7]");
  EXPECT_EQ(test::shape(model, "y"), "[5, 2]");
}

TEST(ModelInference, SettersOnSubmodelsReachTheOutermostSolver) {
  Model inner;
  inner.extend(linear(3), at({{"input", "x"}, {"output", "y"}}));
  Model outer;
  outer.extend(inner, at({{"x", "a"}, {"y", "b"}}));
  inner.set_shapes({{"x", test::sizes({2, 4})}});
  EXPECT_EQ(test::shape(outer, "a"), "[2, 4]");
  EXPECT_EQ(test::shape(outer, "b"), "[2, 3]");
  EXPECT_EQ(test::shape(outer, inner.connection("y")), "[2, 3]");
}

TEST(ModelInference, LeafAlone) {
  Model relu = leaf("relu");
  relu.set_shapes({{"input", test::sizes({3})}});
  EXPECT_EQ(test::shape(relu, "output"), "[3]");
}

// --- setters ------------------------------------------------------------------------------------

TEST(ModelSetters, Values) {
  Model model;
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}, {"output", "c"}}));
  EXPECT_THAT(keys(model.cins()), ElementsAre("a", "b"));
  model.set_values({{"b", HostValue(2.0)}});
  EXPECT_THAT(keys(model.cins()), ElementsAre("a"));
  model.set_values({{"b", HostValue(2.0)}});
  EXPECT_EQ(code_of([&] { model.set_values({{"b", HostValue(3.0)}}); }), Code::kValueConflict);
  EXPECT_EQ(code_of([&] { model.set_values({{"c", HostValue(3.0)}}); }), Code::kValueArgument);
}

TEST(ModelSetters, CanonicalSets) {
  Model model;
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}, {"output", "c"}}));
  model.set_cin({"b"});
  EXPECT_EQ(model.cin().key(), "b");
  model.set_cin({});
  EXPECT_THAT(model.cins(), IsEmpty());
  EXPECT_EQ(code_of([&] { model.set_cin({"c"}); }), Code::kCanonical);
  model.set_cin({"c", "a"}, false);
  EXPECT_EQ(model.cin().key(), "a");
  EXPECT_EQ(code_of([&] { model.set_cout({"a"}); }), Code::kCanonical);
  EXPECT_EQ(code_of([&] { model.set_cout({"q"}); }), Code::kKeyUnknown);
}

TEST(ModelSetters, ExposeAndRename) {
  Model model;
  model.extend(linear(2), at({{"input", "x"}}));
  EXPECT_EQ(code_of([&] { model.expose_keys({"$3"}); }), Code::kKeyUnknown);
  model.expose_keys({}, {{"y", "$3"}});
  EXPECT_THAT(model.output_keys(), ElementsAre("y"));
  model.extend(leaf("relu"), {}, Chain::kCanonical);
  EXPECT_EQ(model.kind("y"), KeyKind::kOutput);  // read and exposed
  model.rename_key("y", "z");
  EXPECT_THAT(model.output_keys(), ElementsAre("z"));
  EXPECT_EQ(code_of([&] { model.rename_key("z", "x"); }), Code::kNameTaken);
}

TEST(ModelSetters, Merge) {
  Model model;
  model.extend(leaf("relu"), at({{"input", "a"}, {"output", "b"}}));
  model.extend(leaf("relu"), at({{"input", "c"}, {"output", "d"}}));
  EXPECT_EQ(code_of([&] { model.merge_connections({"a", "c"}); }), Code::kNameTaken);
  EXPECT_EQ(code_of([&] { model.merge_connections({"b", "d"}, "e"); }), Code::kMultiWrite);
  EXPECT_EQ(code_of([&] { model.merge_connections({"a", "b"}, "e"); }), Code::kCycle);
  model.set_shapes({{"a", test::sizes({3})}});
  model.merge_connections({"a", "c"}, "e");
  EXPECT_THAT(model.input_keys(), ElementsAre("e"));
  EXPECT_EQ(test::shape(model, "d"), "[3]");
  EXPECT_EQ(code_of([&] { model.merge_connections({"b", "e"}, "f"); }), Code::kCycle);
}

TEST(ModelSetters, State) {
  Model model;
  model.extend(leaf("add"), at({{"left", "x"}, {"right", "s"}, {"output", "y"}}));
  model.bind_state("s", "y", HostValue(0.0));
  EXPECT_THAT(model.input_keys(), ElementsAre("x"));
  EXPECT_EQ(model.states().size(), 1u);
  EXPECT_EQ(code_of([&] { model.bind_state("s", "y"); }), Code::kNameTaken);
}

// --- functional use -----------------------------------------------------------------------------

TEST(ModelCall, Create) {
  const Connection x = test::key("x");
  const Connection h = Model::call(linear(4), {{"input", Argument::of(x)}}).front();
  const Connection y = Model::call(test::op("relu"), {Argument::of(h)});
  const Model model = Model::create({}, {{"out", y}});
  EXPECT_THAT(model.input_keys(), ElementsAre("$1", "x", "$2"));
  EXPECT_THAT(model.output_keys(), ElementsAre("out"));
  EXPECT_TRUE(model.is_frozen());
  EXPECT_EQ(h.key(), "$3");
}

TEST(ModelCall, PositionalOrder) {
  EXPECT_THAT(linear(3).connect_order(), ElementsAre("input", "weight", "bias"));
  EXPECT_THAT(three_layers().connect_order(), ElementsAre("$2", "$1", "$3", "$6", "$7"));
}

TEST(ModelCall, TwoModels) {
  Model a, b;
  a.extend(leaf("relu"), at({{"input", "x"}, {"output", "y"}}));
  b.extend(leaf("relu"), at({{"input", "x"}, {"output", "y"}}));
  EXPECT_EQ(code_of([&] {
              Model::call(test::op("add"),
                          {Argument::of(a.connection("y")), Argument::of(b.connection("y"))});
            }),
            Code::kForeign);
}

TEST(ModelCall, Sequences) {
  Model model;
  model.extend(leaf("relu"), at({{"input", "x"}, {"output", "y"}}));
  model.extend(
      leaf("buffer"),
      {{"input", Argument::sequence(
                     {Argument::of(model.connection("y")), Argument::of(HostValue(3))}, false)},
       {"output", Argument::named("t")}});
  EXPECT_THAT(model.submodel_names(), ElementsAre("Relu", "ToTuple", "Buffer"));
  EXPECT_EQ(model.kinds("t"), infer::kTupleKind);
}

TEST(ModelCall, WireOfSubmodel) {
  Model model;
  const Model first = linear(4);
  model.extend(first);
  model.extend(leaf("relu"), {{"input", Argument::of(first.connection("output"))}});
  EXPECT_THAT(model.internal_keys(), ElementsAre("$4"));
}

// --- sizes of models ----------------------------------------------------------------------------

TEST(ModelDepth, NestAndChain) {
  Model inner;
  inner.extend(leaf("relu"), at({{"input", "x"}, {"output", "y"}}));
  for (int i = 0; i < 10000; ++i) {
    Model outer;
    outer.extend(inner, at({{"x", "x"}, {"y", "y"}}));
    inner = outer;
  }
  inner.set_shapes({{"x", test::sizes({2})}});
  EXPECT_EQ(test::shape(inner, "y"), "[2]");
  Model chain;
  for (int i = 0; i < 2000; ++i) chain.extend(leaf("relu"), {}, Chain::kCanonical);
  EXPECT_EQ(chain.submodel_count(), 2000u);
  Connection wire = test::key("x");
  for (int i = 0; i < 2000; ++i) wire = Model::call(test::op("relu"), {Argument::of(wire)});
  Model used;
  used.extend(leaf("relu"), {{"input", Argument::of(wire)}});
  EXPECT_EQ(used.submodel_count(), 2001u);
}

// --- taking in results of calls -----------------------------------------------------------------

TEST(ModelTake, TakesInWhatResultsNeedAndExposesNamedOnes) {
  Model model;
  model.extend(linear(2), at({{"input", "x"}, {"output", "y"}}));
  const auto squared = Model::call(leaf("square"), {{"input", Argument::named("y")}});
  const auto mean = Model::call(leaf("mean"), {{"input", Argument::of(squared[0])}});
  model.take({{"cost", mean[0]}, {"", squared[0]}});
  EXPECT_THAT(model.output_keys(), ElementsAre("cost"));
  EXPECT_EQ(model.submodel_count(), 3U);
  EXPECT_TRUE(squared[0].attached());
}

TEST(ModelTake, FailuresLeaveModelAndChildrenAsTheyWere) {
  Model model;
  model.extend(linear(2), at({{"input", "x"}, {"output", "y"}}));
  const Model square = leaf("square");
  const auto result = Model::call(square, {{"input", Argument::named("y")}}, {}, Claim::kWhenUsed);
  const std::string before = model.dump();
  EXPECT_THAT(message_of([&] { model.take({{"x", result[0]}}); }), HasSubstr("exists already"));
  EXPECT_EQ(model.dump(), before);
  EXPECT_FALSE(square.is_submodel());
  model.take({{"z", result[0]}});
  EXPECT_TRUE(square.is_submodel());
}

TEST(ModelSources, InputsThatAWireIsComputedFrom) {
  Model inner;
  inner.extend(linear(2), at({{"input", "a"}, {"weight", "w"}, {"bias", "b"}, {"output", "y"}}));
  inner.extend(leaf("relu"), at({{"input", "a"}, {"output", "z"}}));
  inner.expose_keys({"y", "z"});
  Model model;
  model.extend(inner, at({{"a", "x"}, {"w", "w"}, {"b", "b"}, {"y", "y"}, {"z", "z"}}));
  EXPECT_THAT(model.sources("y"), ElementsAre("w", "x", "b"));
  EXPECT_THAT(model.sources("z"), ElementsAre("x"));
  EXPECT_THAT(model.sources("w"), ElementsAre("w"));
}

}  // namespace
}  // namespace mithril::model

// Covers: model/flatten/flat_*.cc
#include "model/flatten/flatten.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "model/build.h"

namespace mithril::model {
namespace {

using core::Code;
using test::at;
using test::leaf;
using test::linear;
using test::Strings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FlatGraph flat(const Model& model, const FlattenOptions& options = {}) {
  return flatten(model, options).or_throw();
}

Code failure(const Model& model, const FlattenOptions& options = {}) {
  auto result = flatten(model, options);
  return result.ok() ? Code::kInternal : result.error().code;
}

Strings names(const FlatGraph& graph, ir::Role role) {
  Strings out;
  for (const FlatKey& key : graph.keys) {
    if (key.role == role) out.push_back(key.name);
  }
  return out;
}

ShapeTemplate symbolic(std::string name, int64_t size) {
  return {infer::TemplateItem::symbol(std::move(name)), infer::TemplateItem::of(size)};
}

Model mlp() {
  Model model("mlp");
  model.extend(linear(8), at({{"input", "x"}}));
  model.extend(leaf("relu"), {}, Chain::kCanonical);
  model.extend(linear(2), at({{"output", "y"}}), Chain::kCanonical);
  return model;
}

TEST(Flatten, Mlp) {
  const FlatGraph graph = flat(mlp(), {.shapes = {{"x", symbolic("b", 4)}}});
  EXPECT_EQ(ir::print(graph.graph),
            "graph mlp(%weight_0: float[8, 4] param, %x: float[b, 4], %bias_0: float[8] param, "
            "%weight_1: float[2, 8] param, %bias_1: float[2] param) {\n"
            "  %0 = linear(%weight_0, %x, %bias_0, dimension=8) : float[b, 8]  # mlp.linear_0\n"
            "  %1 = relu(%0) : float[b, 8]  # mlp.relu\n"
            "  %2 = linear(%weight_1, %1, %bias_1, dimension=2) : float[b, 2]  # mlp.linear_1\n"
            "  return y=%2\n"
            "}\n");
  EXPECT_THAT(graph.outputs, ElementsAre("y"));
  EXPECT_THAT(graph.output_differentiable, ElementsAre(true));
  EXPECT_EQ(graph.keys[0].fan_in, infer::Dim(4));
  EXPECT_EQ(graph.keys[2].fan_in, infer::Dim(4));
  EXPECT_EQ(graph.keys[3].init.kind, ir::Init::Kind::kUniformFanIn);
  EXPECT_EQ(graph.keys[3].path, "mlp.linear_1.weight");
}

TEST(Flatten, UnknownRankIsDeferred) {
  const FlatGraph graph = flat(mlp());
  EXPECT_TRUE(graph.deferred());
  EXPECT_THAT(graph.unknown_ranks, ElementsAre("x"));
  EXPECT_THAT(names(graph, ir::Role::kParam),
              ElementsAre("weight_0", "bias_0", "weight_1", "bias_1"));
  EXPECT_EQ(graph.keys[0].shape_text, "[8, u1]");
  EXPECT_TRUE(graph.graph.nodes.empty());
}

TEST(Flatten, DataDecideKindsThatNothingElseDoes) {
  Model model("sum");
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}, {"output", "y"}}));
  const Config<ShapeTemplate> shapes = {{"a", test::sizes({2})}, {"b", test::sizes({2})}};
  const FlatGraph usual = flat(model, {.shapes = shapes});
  EXPECT_EQ(usual.keys[0].kinds, infer::kFloating);
  EXPECT_EQ(usual.keys[0].open_kinds, infer::kTensor);
  const FlatGraph given =
      flat(model, {.shapes = shapes,
                   .element_kinds = {{"a", 0, core::Kind::kBool}, {"b", 0, core::Kind::kInt}}});
  EXPECT_EQ(given.keys[0].kinds, infer::kTensorBool);
  EXPECT_EQ(given.keys[1].kinds, infer::kTensorInt);
  const FlatGraph trained = flat(
      model,
      {.trainable_keys = {{"a"}}, .shapes = shapes, .element_kinds = {{"a", 0, core::Kind::kInt}}});
  EXPECT_EQ(trained.keys[0].kinds, infer::kFloating);
  EXPECT_EQ(trained.keys[0].open_kinds, infer::kNoKind);
}

TEST(Flatten, UnnamedSizesAreNumbered) {
  const FlatGraph graph = flat(
      mlp(), {.shapes = {{"x", {infer::TemplateItem::unknown(), infer::TemplateItem::unknown()}}}});
  EXPECT_THAT(ir::print(graph.graph),
              HasSubstr("%weight_0: float[8, u1] param, %x: float[u2, u1]"));
}

TEST(Flatten, LongNames) {
  const FlatGraph graph =
      flat(mlp(), {.shapes = {{"x", test::sizes({3, 4})}}, .short_names = false});
  EXPECT_THAT(names(graph, ir::Role::kParam),
              ElementsAre("linear_0_weight", "linear_0_bias", "linear_1_weight", "linear_1_bias"));
}

TEST(Flatten, NestedLongNamesAndPaths) {
  Model inner("", "Block");
  inner.extend(linear(3, "head"), at({{"input", "in"}, {"output", "out"}}));
  Model outer;
  outer.extend(inner, at({{"in", "x"}, {"out", "y"}}));
  const FlatGraph graph =
      flat(outer, {.shapes = {{"x", test::sizes({3, 4})}}, .short_names = false});
  EXPECT_THAT(names(graph, ir::Role::kParam), ElementsAre("block_head_weight", "block_head_bias"));
  EXPECT_THAT(ir::print(graph.graph), HasSubstr("# block.head"));
}

TEST(Flatten, ScalarsAndLiteralsAreNoInputs) {
  Model model;
  model.extend(leaf("multiply"), {{"left", Argument::named("x")},
                                  {"right", Argument::of(HostValue(2.0))},
                                  {"output", Argument::named("h")}});
  auto data = std::make_shared<core::TensorData>();
  data->dtype = core::DType::kAnyFloat;
  data->shape = {2};
  data->bytes.resize(16);
  model.extend(leaf("add"), {{"left", Argument::named("h")},
                             {"right", Argument::of(HostValue(data))},
                             {"output", Argument::named("y")}});
  const FlatGraph graph = flat(model, {.shapes = {{"x", test::sizes({3, 2})}}});
  EXPECT_THAT(names(graph, ir::Role::kData), ElementsAre("x"));
  const std::string text = ir::print(graph.graph);
  EXPECT_THAT(text, HasSubstr("multiply(%x, right=2.0)"));
  EXPECT_THAT(text, HasSubstr("constant(value="));
}

TEST(Flatten, OnlyWhatOutputsNeed) {
  Model model;
  model.extend(linear(8), at({{"input", "x"}, {"output", "a"}}));
  model.extend(linear(8), at({{"input", "x"}, {"output", "b"}}));
  model.expose_keys({"b"});
  const FlatGraph graph = flat(model, {.shapes = {{"x", test::sizes({3, 4})}}});
  EXPECT_EQ(graph.graph.nodes.size(), 1u);
  EXPECT_THAT(names(graph, ir::Role::kParam), ElementsAre("weight_1", "bias_1"));
}

TEST(Flatten, UnnamedOutputsTakeTheirOrigin) {
  Model model;
  model.extend(leaf("relu"), at({{"input", "x"}}));
  model.extend(leaf("relu"), at({{"input", "x"}}));
  const FlatGraph graph = flat(model, {.shapes = {{"x", test::sizes({3})}}});
  EXPECT_THAT(graph.outputs, ElementsAre("output", "_output"));
  EXPECT_THAT(graph.output_differentiable, ElementsAre(false, false));
}

TEST(Flatten, GradientsEndAtOpsWithoutOne) {
  Model model;
  model.extend(linear(8), at({{"input", "x"}, {"output", "h"}}));
  model.extend(leaf("stop_gradient"), at({{"input", "h"}, {"output", "fixed"}}));
  model.extend(leaf("relu"), at({{"input", "h"}, {"output", "y"}}));
  const FlatGraph graph = flat(model, {.shapes = {{"x", test::sizes({3, 4})}}});
  EXPECT_THAT(graph.outputs, ElementsAre("fixed", "y"));
  EXPECT_THAT(graph.output_differentiable, ElementsAre(false, true));
}

TEST(Flatten, Roles) {
  Model model;
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}, {"output", "y"}}));
  const Config<ShapeTemplate> shapes = {{"a", test::sizes({2})}, {"b", test::sizes({2})}};
  EXPECT_THAT(names(flat(model, {.shapes = shapes}), ir::Role::kData), ElementsAre("a", "b"));
  EXPECT_THAT(names(flat(model, {.trainable_keys = {"b"}, .shapes = shapes}), ir::Role::kParam),
              ElementsAre("b"));
  model.set_differentiability({{"a", true}});
  EXPECT_THAT(names(flat(model, {.shapes = shapes}), ir::Role::kParam), ElementsAre("a"));
  EXPECT_THAT(names(flat(model, {.data_keys = {"a"}, .shapes = shapes}), ir::Role::kParam),
              IsEmpty());
}

TEST(Flatten, InputsOfDiscardedOutputsStayWhereAnOpReadsThose) {
  Model model;
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}, {"output", "z"}}));
  model.extend(leaf("relu"), at({{"input", "z"}, {"output", "w"}}));
  model.extend(leaf("relu"), at({{"input", "c"}, {"output", "y"}}));
  model.expose_keys({"z", "w", "y"});
  const Config<ShapeTemplate> shapes = {
      {"a", test::sizes({2})}, {"b", test::sizes({2})}, {"c", test::sizes({3})}};
  const FlatGraph kept = flat(model, {.discard_keys = {"z", "w"}, .shapes = shapes});
  EXPECT_THAT(kept.outputs, ElementsAre("y"));
  EXPECT_THAT(names(kept, ir::Role::kData), ElementsAre("a", "b", "c"));
  const FlatGraph dropped =
      flat(model, {.discard_keys = {"z", "w"}, .shapes = shapes, .drops_discarded = true});
  EXPECT_THAT(names(dropped, ir::Role::kData), ElementsAre("c"));
}

TEST(Flatten, OptionErrors) {
  const Model model = mlp();
  EXPECT_EQ(failure(model, {.trainable_keys = {"q"}}), Code::kKeyUnknown);
  EXPECT_EQ(failure(model, {.trainable_keys = {"$1"}}), Code::kKeyUnknown);
  EXPECT_EQ(failure(model, {.trainable_keys = {"y"}}), Code::kKeyUnknown);
  EXPECT_EQ(failure(model, {.data_keys = {"x"}, .trainable_keys = {"x"}}), Code::kValueArgument);
  EXPECT_EQ(failure(model, {.data_keys = {"x"}, .constants = {{"x", HostValue(1.0)}}}),
            Code::kValueArgument);
  EXPECT_EQ(failure(model, {.discard_keys = {"q"}}), Code::kKeyUnknown);
  EXPECT_EQ(failure(model, {.data_keys = {"q"}, .strict = true}), Code::kKeyUnknown);
  EXPECT_EQ(
      failure(model, {.shapes = {{"x", test::sizes({3, 4})}, {"weight_1", test::sizes({2, 9})}}}),
      Code::kShapeConflict);
  const FlatGraph graph = flat(model, {.data_keys = {"target", "xx"}});
  EXPECT_THAT(graph.ignored_keys, ElementsAre("target", "xx"));
  EXPECT_EQ(graph.warnings[0].category, "UnusedKeyWarning");
  EXPECT_THAT(graph.warnings[1].text, HasSubstr("did you mean 'x'?"));
}

TEST(Flatten, NeverChangesTheModel) {
  const Model model = mlp();
  model.solve();
  const std::string before = model.dump();
  flat(model, {.shapes = {{"x", test::sizes({3, 4})}}});
  failure(model, {.shapes = {{"x", test::sizes({3, 4})}, {"weight_1", test::sizes({2, 9})}}});
  EXPECT_EQ(model.dump(), before);
}

TEST(Flatten, EmptyModelAndNoOutputs) {
  const FlatGraph graph = flat(Model());
  EXPECT_EQ(graph.warnings.at(0).category, "EmptyModelWarning");
  EXPECT_THAT(graph.outputs, IsEmpty());
  Model model;
  model.extend(leaf("relu"), at({{"input", "x"}}));
  model.set_cout({});
  EXPECT_EQ(failure(model), Code::kKeyMissing);
  EXPECT_EQ(failure(model.submodels()[0]), Code::kModelFrozen);
}

TEST(Flatten, BatchNormState) {
  Model model;
  model.extend(leaf("batch_norm2d"),
               at({{"input", "x"}, {"running_mean", "m"}, {"running_var", "v"}, {"output", "y"}}));
  EXPECT_THAT(model.input_keys(), ElementsAre("x", "m", "v", "$1", "$2"));
  const Config<ShapeTemplate> shapes = {{"x", test::sizes({2, 3, 4, 4})}};
  const FlatGraph eval = flat(model, {.shapes = shapes});
  EXPECT_THAT(names(eval, ir::Role::kParam), ElementsAre("m", "v", "weight", "bias"));
  EXPECT_FALSE(eval.keys[1].trainable);
  EXPECT_EQ(eval.keys[2].initial, HostValue(1.0));
  EXPECT_TRUE(eval.graph.states.empty());
  const FlatGraph train = flat(model, {.shapes = shapes, .mode = Mode::kTrain});
  EXPECT_THAT(names(train, ir::Role::kState), ElementsAre("m", "v"));
  EXPECT_THAT(ir::print(train.graph), HasSubstr("state %m <- %1 = 0.0"));
}

TEST(Flatten, DropoutKey) {
  Model model;
  model.extend(leaf("dropout"), at({{"input", "x"}}));
  model.extend(leaf("dropout"), {}, Chain::kCanonical);
  const Config<ShapeTemplate> shapes = {{"x", test::sizes({2, 3})}};
  EXPECT_TRUE(flat(model, {.shapes = shapes}).graph.states.empty());
  const FlatGraph train = flat(model, {.shapes = shapes, .mode = Mode::kTrain});
  EXPECT_THAT(names(train, ir::Role::kState), ElementsAre("rng_key"));
  const std::string text = ir::print(train.graph);
  EXPECT_THAT(text, HasSubstr("state %rng_key <- %3 = \"key\""));
  EXPECT_THAT(text, HasSubstr("dropout(%0, %1"));
}

TEST(Flatten, BoundState) {
  Model model;
  model.extend(leaf("add"), at({{"left", "x"}, {"right", "s"}, {"output", "y"}}));
  model.bind_state("s", "y", HostValue(0.0));
  model.expose_keys({"y"});
  const FlatGraph graph =
      flat(model, {.shapes = {{"x", test::sizes({2})}, {"s", test::sizes({2})}}});
  EXPECT_THAT(names(graph, ir::Role::kState), ElementsAre("s"));
  EXPECT_THAT(ir::print(graph.graph), HasSubstr("state %s <- %0 = 0.0"));
}

TEST(Flatten, ListsDissolve) {
  Model model;
  model.extend(leaf("concat"),
               {{"input", Argument::sequence(
                              {Argument::of(test::key("a")), Argument::of(test::key("b"))}, true)},
                {"output", Argument::named("y")}});
  const FlatGraph graph =
      flat(model, {.shapes = {{"a", test::sizes({2, 3})}, {"b", test::sizes({1, 3})}}});
  EXPECT_THAT(ir::print(graph.graph), HasSubstr("%0 = concat(_, %a, %b) : float[3, 3]"));
}

TEST(Flatten, KnownIndex) {
  Model model;
  model.extend(leaf("index"), {{"input", Argument::named("x")},
                               {"index", Argument::of(HostValue(1))},
                               {"output", Argument::named("y")}});
  const FlatGraph graph = flat(model, {.shapes = {{"x", test::sizes({4, 3})}}});
  EXPECT_THAT(ir::print(graph.graph), HasSubstr("index(%x, index=1) : float[3]"));
}

TEST(Flatten, PiecesOfASplit) {
  LeafSpec split;
  split.keys = {{"split_size", KeySpec{.value = HostValue(2)}},
                {"axis", KeySpec{.value = HostValue(0)}}};
  const Connection x = test::key("x");
  const Connection list = Model::call(test::op("split"), {Argument::of(x)}, split);
  const Connection second =
      Model::call(test::op("index"), {Argument::of(list), Argument::of(HostValue(1))});
  const Model model = Model::create({}, {{"y", second}});
  const FlatGraph graph = flat(model, {.shapes = {{"x", test::sizes({4, 3})}}});
  EXPECT_THAT(ir::print(graph.graph), HasSubstr("return y=%1"));
  EXPECT_EQ(graph.graph.type(graph.graph.outputs[0].value).shape,
            (ir::Shape{infer::Dim(2), infer::Dim(3)}));
}

// A size that no op tells forward, for a weight gives it, is stated for those who read the wire.
TEST(Flatten, SizesThatOnlyTheSolverKnows) {
  Model model;
  model.extend(leaf("flatten"), test::at({{"input", "x"}, {"output", "f"}}));
  LeafSpec spec;
  spec.attrs = {{"dimension", HostValue(5)}};
  model.extend(Model::leaf(test::op("linear"), spec), test::at({{"input", "f"}, {"weight", "w"}}));
  using infer::TemplateItem;
  model.set_shapes(
      {{"x", {TemplateItem::symbol("n"), TemplateItem::symbol("s"), TemplateItem::symbol("t")}},
       {"w", test::sizes({5, 12})}});
  const FlatGraph graph = flat(model);
  EXPECT_THAT(ir::print(graph.graph),
              HasSubstr("  %0 = flatten(%x) : float[n, s*t]  # flatten\n"
                        "  %1 = known_sizes(%0, sizes=(none, 12), wire=\"f\") : float[n, 12]"));
}

TEST(Flatten, ShapesOfUnknownSizes) {
  const Connection x = test::key("x");
  const Connection shape = Model::call(test::op("shape"), {Argument::of(x)});
  const Connection rows =
      Model::call(test::op("index"), {Argument::of(shape), Argument::of(HostValue(0))});
  Model model;
  model.extend(
      leaf("reshape"),
      {{"input", Argument::of(x)},
       {"shape", Argument::sequence({Argument::of(rows), Argument::of(HostValue(-1))}, false)},
       {"output", Argument::named("y")}});
  const FlatGraph graph = flat(model, {.shapes = {{"x", symbolic("b", 6)}}});
  EXPECT_THAT(ir::print(graph.graph), HasSubstr(": float[b, 6]"));
}

TEST(Flatten, ShapesOfBroadcastSizes) {
  Model model;
  model.extend(leaf("add"), at({{"left", "a"}, {"right", "b"}, {"output", "c"}}));
  const Connection shape = Model::call(test::op("shape"), {Argument::of(model.connection("c"))});
  const Connection rows =
      Model::call(test::op("index"), {Argument::of(shape), Argument::of(HostValue(0))});
  model.extend(leaf("reshape"),
               {{"input", Argument::named("c")},
                {"shape", Argument::sequence({Argument::of(HostValue(2)), Argument::of(rows),
                                              Argument::of(HostValue(3))},
                                             false)},
                {"output", Argument::named("y")}});
  const FlatGraph graph =
      flat(model, {.shapes = {{"a", symbolic("n", 6)}, {"b", symbolic("m", 6)}}});
  EXPECT_THAT(ir::print(graph.graph), HasSubstr(": float[2, broadcast(n, m), 3]"));
}

TEST(Flatten, ChainAndNest) {
  Model chain;
  Model inner;
  inner.extend(leaf("relu"), at({{"input", "x"}, {"output", "y"}}));
  for (int i = 0; i < 10000; ++i) {
    Model outer;
    outer.extend(inner, at({{"x", "x"}, {"y", "y"}}));
    inner = outer;
  }
  EXPECT_EQ(flat(inner, {.shapes = {{"x", test::sizes({2})}}}).graph.nodes.size(), 1u);
  chain.extend(leaf("relu"), at({{"input", "x"}}));
  for (int i = 0; i < 5000; ++i) chain.extend(leaf("relu"), {}, Chain::kCanonical);
  EXPECT_EQ(flat(chain, {.shapes = {{"x", test::sizes({2})}}}).graph.nodes.size(), 5001u);
}

}  // namespace
}  // namespace mithril::model

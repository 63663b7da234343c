#include "model/snapshot.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "model/build.h"
#include "model/flatten/flatten.h"

namespace mithril::model {
namespace {

using test::at;
using test::leaf;
using test::linear;
using test::sizes;

Model network() {
  Model model;
  model.extend(linear(3, "first"), at({{"input", "x"}, {"output", "h"}}));
  LeafSpec spec;
  spec.name = "act";
  model.extend(leaf("relu", std::move(spec)), at({{"input", "h"}, {"output", "y"}}));
  model.expose_keys({"y"});
  return model;
}

void replace_activation(Model& model) { model.replace(model.submodel("act"), leaf("tanh")); }

std::string graph_of(const Model& model) {
  FlattenOptions options;
  options.shapes = {{"x", sizes({2, 4})}};
  return ir::print(flatten(model, options).or_throw().graph);
}

TEST(Snapshot, SharesTheTreeUntilThatChanges) {
  Model model = network();
  const Snapshot snapshot(model);
  const std::string before = model.dump();
  EXPECT_EQ(snapshot.model().dump(), before);
  model.set_shapes({{"x", sizes({2, 4})}});
  EXPECT_EQ(snapshot.model().dump(), before);
  EXPECT_NE(model.dump(), before);
}

TEST(Snapshot, StaysAsItIsThroughEveryKindOfChange) {
  Model model = network();
  const Snapshot snapshot(model);
  const std::string before = model.dump(), graph = graph_of(model);
  replace_activation(model);
  model.rename_key("x", "z");
  model.extend(leaf("sin"), at({{"input", "y"}, {"output", "s"}}));
  model.freeze();
  Model outer;
  outer.extend(model, at({{"z", "in"}}));
  EXPECT_EQ(snapshot.model().dump(), before);
  EXPECT_EQ(graph_of(snapshot.model()), graph);
}

TEST(Snapshot, AFailedChangeLeavesItAlone) {
  Model model = network();
  const Snapshot snapshot(model);
  const std::string before = model.dump();
  EXPECT_THROW(model.rename_key("x", "h"), core::ErrorException);
  EXPECT_EQ(snapshot.model().dump(), before);
  EXPECT_EQ(model.dump(), before);
}

TEST(Snapshot, ASecondOneIsOfTheChangedTree) {
  Model model = network();
  const Snapshot first(model);
  replace_activation(model);
  const Snapshot second(model);
  model.set_shapes({{"x", sizes({2, 4})}});
  EXPECT_NE(graph_of(first.model()).find("relu"), std::string::npos);
  EXPECT_NE(graph_of(second.model()).find("tanh"), std::string::npos);
  EXPECT_EQ(graph_of(second.model()).find("relu"), std::string::npos);
}

TEST(Snapshot, OutlivesTheModel) {
  std::optional<Snapshot> snapshot;
  {
    Model model = network();
    snapshot.emplace(model);
    replace_activation(model);
  }
  EXPECT_NE(graph_of(snapshot->model()).find("relu"), std::string::npos);
}

TEST(Snapshot, FindsWiresOfBeforeTheChange) {
  Model model = network();
  const Snapshot snapshot(model);
  const Connection h = model.connection("h"), weight = model.connection_at("first.weight");
  EXPECT_TRUE(snapshot.wire(h).same_wire(snapshot.model().connection("h")));
  model.extend(linear(2, "zeroth"), at({{"output", "x"}}));
  model.rename_key("h", "hidden");
  replace_activation(model);
  replace_activation(model);
  EXPECT_EQ(h.key(), "hidden");
  EXPECT_TRUE(snapshot.wire(h).same_wire(snapshot.model().connection("h")));
  EXPECT_TRUE(snapshot.wire(weight).same_wire(snapshot.model().connection_at("first.weight")));
  EXPECT_TRUE(snapshot.wire(model.connection("y")).same_wire(snapshot.model().connection("y")));
}

TEST(Snapshot, FindsWiresInATreeThatAnotherTook) {
  Model model = network();
  const Snapshot snapshot(model);
  Model outer;
  for (int i = 0; i < 40; ++i) outer.extend(leaf("sin"), at({{"input", "a"}}));
  outer.extend(model, at({{"x", "a"}, {"y", "b"}}));
  EXPECT_TRUE(snapshot.wire(model.connection("h")).same_wire(snapshot.model().connection("h")));
  EXPECT_EQ(snapshot.part(model), snapshot.model());
  EXPECT_EQ(snapshot.part(model.submodel("act")), snapshot.model().submodel("act"));
  EXPECT_EQ(snapshot.part(outer), std::nullopt);
  EXPECT_THROW(snapshot.wire(outer.connection("b")), core::ErrorException);
}

TEST(Snapshot, RefusesWiresThatCameLater) {
  Model model = network();
  const Snapshot snapshot(model);
  model.extend(leaf("sin"), at({{"input", "y"}, {"output", "s"}}));
  try {
    snapshot.wire(model.connection("s"));
    FAIL();
  } catch (const core::ErrorException& failure) {
    EXPECT_EQ(failure.error().kind, core::ErrorKind::kKey);
    EXPECT_EQ(failure.error().message,
              "connection 's' does not belong to Model as it was compiled");
  }
  const Model other = network();
  EXPECT_THROW(snapshot.wire(other.connection("h")), core::ErrorException);
}

TEST(Snapshot, KeepsVariadicNamesOfItsOwn) {
  std::optional<Snapshot> snapshot;
  {
    Model model;
    LeafSpec spec;
    spec.count = 3;
    model.extend(leaf("concat", std::move(spec)),
                 at({{"input1", "a"}, {"input2", "b"}, {"input3", "c"}, {"output", "y"}}));
    model.expose_keys({"y"});
    snapshot.emplace(model);
    model.set_shapes({{"a", sizes({2, 4})}});
  }
  FlattenOptions options;
  options.shapes = {{"a", sizes({2, 4})}, {"b", sizes({2, 3, 1})}, {"c", sizes({2, 1})}};
  const auto refused = flatten(snapshot->model(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, core::ErrorKind::kShape) << refused.error().message;
}

}  // namespace
}  // namespace mithril::model

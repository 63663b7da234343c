// How parameters start, on the level of the engine: patterns, who counts first, calls taken back.
#include <gtest/gtest.h>

#include "model/build.h"
#include "model/flatten/flatten.h"

namespace mithril::model {
namespace {

using test::leaf;

/// "ones", or the number that all elements are.
std::string start(const Model& model, const std::string& name) {
  FlattenOptions options;
  const FlatGraph flat = flatten(model, options).or_throw();
  for (const FlatKey& key : flat.keys) {
    if (key.name != name) continue;
    if (key.initial) return to_string(*key.initial);
    return std::string(ir::Init::kNames[static_cast<size_t>(key.init.kind)]);
  }
  return "no key";
}

Model linear(std::vector<Initializer> initializers = {}) {
  Model model;
  Model layer = leaf("linear");
  layer.set_initializers(initializers);
  model.extend(layer, test::at({{"input", "x"}, {"weight", "w"}, {"bias", "b"}, {"output", "y"}}));
  return model;
}

TEST(Initializers, LayersSayHowTheyStart) {
  EXPECT_EQ(start(linear(), "w"), "uniform_fan_in");
  EXPECT_EQ(start(linear({{"weight", "zeros"}}), "w"), "zeros");
  EXPECT_EQ(start(linear({{"weight", "zeros"}}), "b"), "uniform_fan_in");
  EXPECT_EQ(start(linear({{"weight", 0.5}}), "w"), "0.5");
}

TEST(Initializers, PatternsFitNames) {
  for (const char* pattern : {"*", "weight", "w*", "*t", "w*g*t", "**", "*weight*", "*e*i*"}) {
    EXPECT_EQ(start(linear({{pattern, "ones"}}), "w"), "ones") << pattern;
  }
  for (const char* pattern : {"", "eight", "weigh", "weightt", "w*gh", "*w", "*h*w*"}) {
    EXPECT_THROW(linear({{pattern, "ones"}}), core::ErrorException) << pattern;
  }
}

TEST(Initializers, LaterAndOuterOnesCountFirst) {
  Model model = linear({{"*", "zeros"}, {"weight", "ones"}});
  EXPECT_EQ(start(model, "w"), "ones");
  EXPECT_EQ(start(model, "b"), "zeros");
  model.set_initializers({{"*", "normal"}});
  EXPECT_EQ(start(model, "w"), "normal");
  model.set_initializers({{"w", 2.0}});
  EXPECT_EQ(start(model, "w"), "2.0");
  model.set_initializers({{"*", "zeros"}});  // said again, it is the last
  EXPECT_EQ(start(model, "w"), "zeros");
}

TEST(Initializers, ARefusedCallChangesNothing) {
  Model model = linear();
  model.set_initializers({{"w", "zeros"}});
  const std::string before = model.dump();
  const std::vector<std::vector<Initializer>> refused = {{{"w", "ones"}, {"nowhere", "ones"}},
                                                         {{"w", "ones"}, {"b", "none"}},
                                                         {{"w", true}},
                                                         {{"w", HostValue()}},
                                                         {{"y", "ones"}},
                                                         {{"x", "ones"}}};
  for (const auto& initializers : refused) {
    EXPECT_THROW(model.set_initializers(initializers), core::ErrorException);
  }
  EXPECT_EQ(model.dump(), before);
  EXPECT_EQ(start(model, "w"), "zeros");
}

TEST(Initializers, WhatIsComputedIsNoParameter) {
  Model made;
  made.extend(leaf("relu"), test::at({{"input", "v"}, {"output", "w"}}));
  made.extend(leaf("linear"), test::at({{"input", "x"}, {"weight", "w"}, {"output", "y"}}));
  EXPECT_THROW(made.set_initializers({{"w", "ones"}}), core::ErrorException);
}

}  // namespace
}  // namespace mithril::model

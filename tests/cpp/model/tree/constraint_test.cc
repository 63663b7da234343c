// Constraints of users on the level of the engine: propagation, order, undoing, exceptions.
#include <stdexcept>

#include <gtest/gtest.h>

#include "infer/relation.h"
#include "model/build.h"

namespace mithril::model {
namespace {

using test::leaf;

Model two_relus() {
  Model model;
  model.extend(leaf("relu"), test::at({{"input", "x"}, {"output", "y"}}));
  model.extend(leaf("relu"), test::at({{"input", "z"}, {"output", "t"}}));
  return model;
}

core::Status tie_rows(infer::Relation& relation) {
  if (!relation.rank(0) || !relation.rank(1)) return {};
  relation.finish();
  return relation.tie(0, 0, 1, 0);
}

ShapeTemplate shape(std::vector<int64_t> sizes) {
  ShapeTemplate out;
  for (const int64_t size : sizes) {
    out.push_back(size < 0 ? infer::TemplateItem::unknown() : infer::TemplateItem::of(size));
  }
  return out;
}

std::string printed(const Model& model, const std::string& key) {
  infer::ShapeNames names;
  return model.print_shape(key, names);
}

TEST(Constraint, RelatesWires) {
  Model model = two_relus();
  EXPECT_EQ(model.add_constraint({"rows", {"x", "z"}, {}, tie_rows}), 0u);
  model.set_shapes({{"x", shape({4, 2})}, {"z", shape({-1, 3})}});
  EXPECT_EQ(printed(model, "t"), "[4, 3]");
  ASSERT_EQ(model.constraints().size(), 1u);
  EXPECT_EQ(model.constraints()[0].name, "rows");
  EXPECT_EQ(model.constraints()[0].keys, (std::vector<std::string>{"x", "z"}));
}

TEST(Constraint, MovesWithItsModel) {
  Model inner = two_relus();
  inner.add_constraint({"", {"x", "z"}, {}, tie_rows});
  Model outer;
  for (int i = 0; i < 40; ++i) outer.extend(leaf("relu"));
  outer.extend(inner, test::at({{"x", "a"}, {"z", "b"}}));
  outer.set_shapes({{"a", shape({4, 2})}, {"b", shape({-1, 3})}});
  EXPECT_EQ(printed(outer, "b"), "[4, 3]");
  EXPECT_EQ(inner.constraints()[0].keys, (std::vector<std::string>{"x", "z"}));
}

TEST(Constraint, WaitsForOthers) {
  Model model = two_relus();
  int runs = 0;
  const uint32_t first = model.add_constraint({"", {"x"}, {}, [](infer::Relation& relation) {
                                                 if (relation.rank(0)) relation.finish();
                                                 return core::Status();
                                               }});
  model.add_constraint({"", {"z"}, {first}, [&runs](infer::Relation& relation) {
                          ++runs;
                          relation.finish();
                          return core::Status();
                        }});
  EXPECT_EQ(runs, 0);
  model.set_shapes({{"x", shape({2})}});
  EXPECT_EQ(runs, 1);
}

TEST(Constraint, AnExceptionPassesThroughAndNothingChanges) {
  Model model = two_relus();
  model.add_constraint({"", {"x"}, {}, [](infer::Relation& relation) -> core::Status {
                          if (relation.rank(0)) throw std::runtime_error("mine");
                          return {};
                        }});
  const std::string before = model.dump();
  EXPECT_THROW(model.set_shapes({{"x", shape({2})}}), std::runtime_error);
  EXPECT_EQ(model.dump(), before);
}

TEST(Constraint, CannotChangeItsModel) {
  Model model = two_relus();
  model.add_constraint({"", {"x"}, {}, [&model](infer::Relation& relation) -> core::Status {
                          if (relation.rank(0)) model.set_cout({});
                          return {};
                        }});
  const std::string before = model.dump();
  EXPECT_THROW(model.set_shapes({{"x", shape({2})}}), core::ErrorException);
  EXPECT_EQ(model.dump(), before);
}

TEST(Constraint, BadArguments) {
  Model model = two_relus();
  const std::string before = model.dump();
  EXPECT_THROW(model.add_constraint({"", {}, {}, tie_rows}), core::ErrorException);
  EXPECT_THROW(model.add_constraint({"", {"nope"}, {}, tie_rows}), core::ErrorException);
  EXPECT_THROW(model.add_constraint({"", {"x"}, {0}, tie_rows}), core::ErrorException);
  EXPECT_EQ(model.dump(), before);
}

}  // namespace
}  // namespace mithril::model

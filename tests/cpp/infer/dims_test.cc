// Bounds and values of integers, and sizes that are expressions.
#include <gtest/gtest.h>

#include "infer/rules_for_tests.h"
#include "infer/solver.h"

namespace mithril::infer {
namespace {

/// An int from `low` to `high`.
core::Status within(World& w, const std::string& name, int64_t low, int64_t high) {
  MITHRIL_RETURN_IF_ERROR(w.kind(name, kScalarInt));
  MITHRIL_RETURN_IF_ERROR(w.solver.assert_interval(w.cell(name), {low, high}, w.fact(name)));
  return w.settle();
}
std::string limits(World& w, const std::string& name) { return w.solver.limits(w.cell(name)); }

TEST(Bounds, RefuseWhatIsOutside) {
  for (const auto& [value, fits] : {std::pair{-1, false}, {0, true}, {100, true}, {101, false}}) {
    World w;
    ASSERT_DONE(within(w, "n", 0, 100));
    EXPECT_EQ(w.value("n", value).ok(), fits) << value;
  }
}

TEST(Bounds, WiderOnesSayNothing) {
  World w;
  ASSERT_DONE(within(w, "n", 0, 100));
  ASSERT_DONE(within(w, "n", -5, 200));
  EXPECT_EQ(limits(w, "n"), "in [0, 100]");
}

TEST(Bounds, FewValuesAreListed) {
  World w;
  ASSERT_DONE(within(w, "n", 2, 4));
  EXPECT_EQ(limits(w, "n"), "2, 3 or 4");
}

TEST(Bounds, EqualSizesShareThem) {
  World w;
  ASSERT_DONE(w.shape("x", "N"));
  ASSERT_DONE(within(w, "n", 0, 100));
  ASSERT_DONE(w.use("size", {{{"input", "x"}, {"output", "n"}}, {{"dim", 0}}}));
  ASSERT_DONE(w.settle());
  EXPECT_FALSE(w.shape("x", "101").ok());
}

TEST(Expressions, TellTheirSymbolsAtOnce) {
  World w;
  ASSERT_DONE(w.shape("x", "N"));
  ASSERT_DONE(w.use("size", {{{"input", "x"}, {"output", "n"}}, {{"dim", 0}}}));
  ASSERT_DONE(w.value("two", 2));
  ASSERT_DONE(w.use("multiply", {{{"left", "n"}, {"right", "two"}, {"output", "m"}}, {}}));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print_value("m"), "2*N");
  const Mark mark = w.solver.mark();
  EXPECT_FALSE(w.value("m", 7).ok());
  w.solver.undo(mark);
  ASSERT_DONE(w.value("m", 8));
  EXPECT_EQ(w.print("x"), "[4]");
}

}  // namespace
}  // namespace mithril::infer

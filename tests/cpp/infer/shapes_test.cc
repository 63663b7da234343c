// Covers: infer/cells.cc
// Ranks and representations of shapes, and wires that become one.
#include <gtest/gtest.h>

#include "infer/rules_for_tests.h"
#include "infer/solver.h"

namespace mithril::infer {
namespace {

TEST(Representations, TrailingSizesMeet) {
  World w;
  ASSERT_DONE(w.shape("x", "...A, 2, 3"));
  ASSERT_DONE(w.shape("x", "...B, n, k"));
  ASSERT_DONE(w.shape("y", "n, k"));
  EXPECT_EQ(w.print("y"), "[2, 3]");
}

TEST(Wires, WhoWaitsForAShapeHearsOfThatOfAJoinedWire) {
  World w;
  ASSERT_DONE(
      w.use("embedding", {{{"weight", "weight"}, {"input", "input"}, {"output", "output"}}, {}}));
  ASSERT_DONE(w.settle());
  ASSERT_DONE(w.shape("table", "100, 8"));
  ASSERT_DONE(w.settle());
  ASSERT_DONE(w.solver.unify(w.cell("weight"), w.cell("table"), w.fact()));
  ASSERT_DONE(w.settle());
  EXPECT_EQ(w.print("output"), "[(V1, ...), 8]");
}

/// A wire of at most three dimensions, of which nothing else is known.
void bound_rank(World& w, const std::string& name) {
  ASSERT_DONE(
      w.use("squared_error", {{{"input", name}, {"target", "open"}, {"output", "of three"}}, {}}));
  ASSERT_DONE(w.shape("of three", "_, _, _"));
  ASSERT_DONE(w.settle());
}

TEST(Ranks, JoinedWiresHaveThoseOfBoth) {
  World w;
  ASSERT_DONE(w.shape("four", "2, 3, 4, 5, ...C"));
  bound_rank(w, "x");
  const core::Status status = w.solver.unify(w.cell("four"), w.cell("x"), w.fact());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "cannot connect, got [2, 3, 4, 5, (C, ...)] and [...]");
}

TEST(Ranks, WhatIsLeftOfASequenceHasWhatIsLeftOfItsRanks) {
  World w;
  bound_rank(w, "x");
  ASSERT_DONE(w.shape("target", "_, 5, 6, ...B"));
  const core::Status status =
      w.use("cross_entropy", {{{"input", "x"}, {"target", "target"}, {"output", "y"}}, {}});
  ASSERT_FALSE(status.ok()) << "x = [n, c, ...] leaves one dimension, target = [n, ...] needs two";
  EXPECT_EQ(status.error().message,
            "cross_entropy: target must have shape [n, ...], got [u1, 5, 6, (B, ...)]");
}

}  // namespace
}  // namespace mithril::infer

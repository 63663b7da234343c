// Covers: infer/trail.cc
// Undo is exact, facts do not depend on order, explanations name the user's lines.
#include <algorithm>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "infer/rules_for_tests.h"
#include "infer/solver.h"

namespace mithril::infer {
namespace {

using core::HostValue;
using Step = std::function<core::Status(World&)>;

/// A random composition: ops over a few wires with few sizes, so that some clash.
std::vector<Step> random_steps(std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<Step> steps;
  const std::string wires[] = {"a", "b", "c", "d", "e", "f", "g"};
  const auto wire = [&] { return wires[pick(7)]; };
  const std::string items[] = {"1", "2", "3", "6", "N", "M", "_"};
  const size_t count = 4 + pick(6);
  for (size_t i = 0; i < count; ++i) {
    const std::string x = wire(), y = wire(), z = wire();
    switch (pick(9)) {
      case 0:
      case 1: {
        std::string shape;
        const size_t rank = 1 + pick(3);
        for (size_t k = 0; k < rank; ++k) {
          shape += (k > 0 ? ", " : "") + (pick(6) == 0 && k == 0 ? "...V" : items[pick(7)]);
        }
        steps.push_back([=](World& w) { return w.shape(x, shape); });
        break;
      }
      case 2:
        steps.push_back([=](World& w) {
          return w.use("squared_error", {{{"input", x}, {"target", y}, {"output", z}}, {}});
        });
        break;
      case 3:
        steps.push_back([=](World& w) {
          return w.use("matmul", {{{"a", x}, {"b", y}, {"output", z}}, {}});
        });
        break;
      case 4: {
        const int64_t axis = static_cast<int64_t>(pick(3)) - 1;
        const bool keep = pick(2) == 0;
        steps.push_back([=](World& w) {
          return w.use("sum", {{{"input", x}, {"output", y}}, {{"axis", axis}, {"keepdim", keep}}});
        });
        break;
      }
      case 5:
        steps.push_back([=](World& w) {
          return w.use("transpose", {{{"input", x}, {"output", y}}, {{"axes", HostValue()}}});
        });
        break;
      case 6:
        steps.push_back([=](World& w) {
          return w.use("linear_body",
                       {{{"input", x}, {"weight", y}, {"bias", "bias"}, {"output", z}}, {}});
        });
        break;
      case 7:
        steps.push_back([=](World& w) {
          return w.use("flatten",
                       {{{"input", x}, {"output", y}}, {{"start_dim", 1}, {"end_dim", -1}}});
        });
        break;
      default:
        steps.push_back([=](World& w) {
          return w.use("relu", {{{"input", x}, {"output", y}}, {}});
        });
    }
  }
  return steps;
}

void make_wires(World& w) {
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "bias"}) w.cell(name);
}

/// What does not depend on names of unknowns: kinds, ranks, known sizes, equal dims.
std::string canonical(World& w) {
  std::string out;
  std::vector<Dim> seen;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "bias"}) {
    const CellId cell = w.cell(name);
    out += std::string(name) + ": " + to_string(w.solver.kinds(cell)) + " " +
           std::to_string(w.solver.possible_ranks(cell));
    if (const auto shape = w.solver.shape(cell)) {
      for (const Dim dim : *shape) {
        const auto it = std::find(seen.begin(), seen.end(), dim);
        if (dim.known()) {
          out += " " + std::to_string(dim.value());
        } else {
          out += " #" + std::to_string(it - seen.begin());
          if (it == seen.end()) seen.push_back(dim);
          for (const int64_t v : w.solver.possible_values(dim)) out += "|" + std::to_string(v);
        }
      }
    }
    out += "\n";
  }
  return out;
}

TEST(Transaction, FailedOperationsLeaveTheStoreBitIdentical) {
  std::mt19937 random(11);
  int failures = 0;
  for (int round = 0; round < 1000; ++round) {
    World w;
    make_wires(w);
    for (const Step& step : random_steps(random)) {
      const std::string before = w.solver.dump();
      const Mark mark = w.solver.mark();
      core::Status status = step(w);
      if (status.ok()) status = w.settle();
      if (status.ok() && random() % 4 != 0) {
        w.solver.release(mark);
        continue;
      }
      failures += !status.ok();
      w.solver.undo(mark);
      ASSERT_EQ(w.solver.dump(), before) << "round " << round;
    }
  }
  EXPECT_GT(failures, 100) << "the compositions must clash now and then";
}

TEST(Transaction, NestedMarksUndoInTurn) {
  World w;
  make_wires(w);
  ASSERT_TRUE(w.shape("a", "N, 3").ok());
  const std::string first = w.solver.dump();
  const Mark outer = w.solver.mark();
  ASSERT_TRUE(w.use("relu", {{{"input", "a"}, {"output", "b"}}, {}}).ok());
  ASSERT_TRUE(w.settle().ok());
  const std::string second = w.solver.dump();
  const Mark inner = w.solver.mark();
  ASSERT_TRUE(w.shape("b", "5, _").ok());
  ASSERT_TRUE(w.settle().ok());
  w.solver.undo(inner);
  EXPECT_EQ(w.solver.dump(), second);
  const Mark again = w.solver.mark();
  ASSERT_TRUE(w.shape("b", "6, _").ok());
  ASSERT_TRUE(w.settle().ok());
  w.solver.release(again);
  EXPECT_EQ(w.print("a"), "[6, 3]");
  w.solver.undo(outer);
  EXPECT_EQ(w.solver.dump(), first);
}

TEST(Transaction, SizesSequencesAndNamesAreAsBefore) {
  World w;
  ASSERT_TRUE(w.shape("a", "N, ...V").ok());
  const std::string before = w.solver.dump();
  for (const char* fact : {"5, ...V", "_, 2, 3", "M, ...W"}) {
    const Mark mark = w.solver.mark();
    ASSERT_TRUE(w.shape("a", fact).ok());
    w.solver.undo(mark);
    EXPECT_EQ(w.solver.dump(), before) << fact;
  }
}

TEST(Transaction, AnExpressionIsOfNoSizeAfterUndoThatWasOfNoneBefore) {
  World w;
  const auto flatten = [&w](const std::string& input, const std::string& output) {
    return w.use("flatten",
                 {{{"input", input}, {"output", output}}, {{"start_dim", 0}, {"end_dim", -1}}});
  };
  ASSERT_TRUE(w.shape("x", "N, H, W").ok());
  ASSERT_TRUE(flatten("x", "all").ok());
  ASSERT_TRUE(w.settle().ok());  // N*H*W is a size, N*H is only a part of it
  const std::string before = w.solver.dump();
  const Mark mark = w.solver.mark();
  ASSERT_TRUE(w.shape("y", "N, H").ok());
  ASSERT_TRUE(flatten("y", "rows").ok());
  ASSERT_TRUE(w.settle().ok());
  EXPECT_EQ(w.print("rows"), "[N*H]");
  w.solver.undo(mark);
  EXPECT_EQ(w.solver.dump(), before);
}

TEST(Order, FactsAreEqualForEveryOrderInWhichNoCallFails) {
  std::mt19937 random(5);
  int compared = 0;
  for (int round = 0; round < 1500; ++round) {
    std::vector<Step> steps = random_steps(random);
    std::string expected;
    for (int order = 0; order < 4; ++order) {
      World w;
      make_wires(w);
      bool ok = true;
      for (const Step& step : steps) {
        ok = ok && step(w).ok() && w.settle().ok();
        if (!ok) break;
      }
      if (ok) {
        ASSERT_TRUE(w.solver.check_fixed_point().ok()) << "round " << round;
        const std::string facts = canonical(w);
        if (expected.empty()) {
          expected = facts;
        } else {
          ++compared;
          ASSERT_EQ(facts, expected) << "round " << round;
        }
        const auto rebuilt = w.solver.rebuild();
        ASSERT_TRUE(rebuilt.ok());
        ASSERT_EQ(rebuilt->facts(), w.solver.facts());
      }
      std::shuffle(steps.begin(), steps.end(), random);
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(Transaction, ClonesAreIndependent) {
  World w;
  make_wires(w);
  ASSERT_TRUE(w.shape("a", "N, 3").ok());
  ASSERT_TRUE(w.use("relu", {{{"input", "a"}, {"output", "b"}}, {}}).ok());
  ASSERT_TRUE(w.settle().ok());
  const std::string before = w.solver.dump();
  Solver copy = w.solver.clone();
  const FactId fact = copy.new_fact({}, "shapes=");
  ASSERT_TRUE(copy.assert_shape(w.cell("a"), {TemplateItem::of(4), TemplateItem::of(3)},
                                copy.new_scope(), fact)
                  .ok());
  ASSERT_TRUE(copy.propagate().ok());
  EXPECT_EQ(copy.print_shape(w.cell("b")), "[4, 3]");
  EXPECT_EQ(w.solver.dump(), before);
}

TEST(Why, NamesTheLinesBehindAFact) {
  World w;
  ASSERT_TRUE(w.shape("x", "2, 3").ok());                                    // line 1
  ASSERT_TRUE(w.shape("other", "7").ok());                                   // line 2
  ASSERT_TRUE(w.use("relu", {{{"input", "x"}, {"output", "y"}}, {}}).ok());  // line 3
  ASSERT_TRUE(
      w.use("transpose", {{{"input", "y"}, {"output", "z"}}, {{"axes", HostValue()}}}).ok());
  ASSERT_TRUE(w.settle().ok());
  std::vector<int> lines;
  for (const Reason& reason : w.solver.why(w.cell("z"))) lines.push_back(reason.location.line);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<int>{1, 3, 4}));
  EXPECT_FALSE(w.solver.why_dim(w.cell("z"), 0).empty());
}

}  // namespace
}  // namespace mithril::infer

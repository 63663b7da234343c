// Covers: model/outline/outline_parts.cc model/outline/outline_loop.cc
// Covers: model/outline/outline_branches.cc
#include "model/outline/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril::model {
namespace {

using ::testing::HasSubstr;

ir::Graph parsed(std::string_view text) { return std::move(ir::parse(text)).or_throw(); }

// As if one model had made all nodes.
core::Result<ir::Graph> outlined(std::string_view text) {
  ir::Graph graph = parsed(text);
  Owners owners{std::vector<int64_t>(graph.nodes.size(), 0), [](int64_t, int64_t) { return true; }};
  return outline(std::move(graph), std::move(owners));
}

void expect_outlined(std::string_view before, std::string_view after) {
  const ir::Graph out = std::move(outlined(before)).or_throw();
  EXPECT_EQ(ir::print(out), after);
  const core::Status status = ir::verify(out);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

std::string refusal(std::string_view text) {
  const auto out = outlined(text);
  return out.ok() ? "" : out.error().message;
}

TEST(Outline, GraphsWithoutLoopsStay) {
  constexpr std::string_view kPlain = R"(graph m<f32, i64>(%x: f32[b]) {
  %0 = exp(%x) : f32[b]
  return y=%0
}
)";
  expect_outlined(kPlain, kPlain);
}

// What does not depend on the step stays outside, numbers go inside.
TEST(Outline, TakesWhatLiesBetweenMarks) {
  expect_outlined(R"(graph m<f32, i64>(%h: f32[b], %x: f32[T, b], %w: f32[b]) {
  %0 = scan_enter(%h, loop=7) : f32[b]
  %1 = scan_slice(%x, length='T', loop=7) : f32[b]
  %2 = exp(%w) : f32[b]
  %3 = multiply(%1, %2) : f32[b]
  %4 = constant(value=2.0, dtype=f32) : f32[]
  %5 = multiply(%0, %4) : f32[b]
  %6 = add(%5, %3) : f32[b]
  %7 = scan_stack(%3, _, %6, length='T', loop=7) : f32[T, b]
  %8 = scan_exit(%6, %h, _, %6, length='T', loop=7) : f32[b]
  %9 = exp(%8) : f32[b]
  return y=%7, last=%9
}
)",
                  R"(graph m<f32, i64>(%h: f32[b], %x: f32[T, b], %w: f32[b]) {
  %0 = exp(%w) : f32[b]
  %1 = constant(value=2.0, dtype=f32) : f32[]
  %2, %3 = scan(%h, %x, %0, carries=1, xs=1, length='T') : f32[b], f32[T, b] {
    graph step<f32, i64>(%c0: f32[b], %x0: f32[b], %k0: f32[b]) {
      %0 = multiply(%x0, %k0) : f32[b]
      %1 = constant(value=2.0, dtype=f32) : f32[]
      %2 = multiply(%c0, %1) : f32[b]
      %3 = add(%2, %0) : f32[b]
      return c0=%3, y0=%0
    }
  }
  %4 = exp(%2) : f32[b]
  return y=%3, last=%4
}
)");
}

// A loop waits for what its later ends read, and readers of its first end wait for it.
TEST(Outline, PutsTheLoopBehindAllThatItReads) {
  expect_outlined(R"(graph m<f32, i64>(%h: f32[], %x: f32[3], %w: f32[]) {
  %0 = scan_slice(%x, length=3, loop=1) : f32[]
  %1 = scan_stack(%0, length=3, loop=1, reverse=true) : f32[3]
  %2 = exp(%1) : f32[3]
  %3 = exp(%w) : f32[]
  %4 = multiply(%0, %3) : f32[]
  %5 = scan_stack(%4, length=3, index=1, loop=1, reverse=true) : f32[3]
  return a=%2, b=%5
}
)",
                  R"(graph m<f32, i64>(%h: f32[], %x: f32[3], %w: f32[]) {
  %0 = exp(%w) : f32[]
  %1, %2 = scan(%x, %0, xs=1, reverse=true, length=3) : f32[3], f32[3] {
    graph step<f32, i64>(%x0: f32[], %k0: f32[]) {
      %0 = multiply(%x0, %k0) : f32[]
      return y0=%x0, y1=%0
    }
  }
  %3 = exp(%1) : f32[3]
  return a=%3, b=%2
}
)");
}

TEST(Outline, InnerLoopsBecomePartsOfSteps) {
  expect_outlined(R"(graph m<f32, i64>(%h: f32[]) {
  %0 = scan_enter(%h, loop=1) : f32[]
  %1 = scan_enter(%0, loop=2) : f32[]
  %2 = exp(%1) : f32[]
  %3 = scan_exit(%2, %0, _, %2, length=3, loop=2) : f32[]
  %4 = scan_exit(%3, %h, _, %3, length=2, loop=1) : f32[]
  return y=%4
}
)",
                  R"(graph m<f32, i64>(%h: f32[]) {
  %0 = scan(%h, carries=1, length=2) : f32[] {
    graph step<f32, i64>(%c0: f32[]) {
      %0 = scan(%c0, carries=1, length=3) : f32[] {
        graph step<f32, i64>(%c0: f32[]) {
          %0 = exp(%c0) : f32[]
          return c0=%0
        }
      }
      return c0=%0
    }
  }
  return y=%0
}
)");
}

TEST(Outline, RefusesWhatIsNoLoop) {
  EXPECT_THAT(refusal(R"(graph m<f32, i64>(%h: f32[]) {
  %0 = scan_enter(%h, loop=1) : f32[]
  return y=%0
}
)"),
              HasSubstr("a loop has no end"));
  EXPECT_THAT(refusal(R"(graph m<f32, i64>(%x: f32[3]) {
  %0 = scan_slice(%x, length=3, loop=1) : f32[]
  %1 = exp(%0) : f32[]
  %2 = scan_stack(%1, length=3, loop=1) : f32[3]
  return y=%2, inside=%1
}
)"),
              HasSubstr("a value of one step (exp) is read outside of the loop"));
}

// What both branches read, and what somebody else reads, is computed before the choice.
TEST(Outline, TakesIntoABranchWhatOnlyThatBranchReads) {
  expect_outlined(R"(graph m<f32, i64>(%x: f32[b], %p: bool[]) {
  %0 = exp(%x) : f32[b]
  %1 = sqrt(%0) : f32[b]
  %2 = tanh(%0) : f32[b]
  %3 = negate(%2) : f32[b]
  %4 = sin(%x) : f32[b]
  %5 = cond_join(%1, %3, %p, loop=3) : f32[b]
  %6 = cond_join(%x, %4, %p, index=1, loop=3) : f32[b]
  return y=%5, z=%6, kept=%4
}
)",
                  R"(graph m<f32, i64>(%x: f32[b], %p: bool[]) {
  %0 = exp(%x) : f32[b]
  %1 = sin(%x) : f32[b]
  %2, %3 = cond(%0, %x, %1, %p) : f32[b], f32[b] {
    graph taken<f32, i64>(%k0: f32[b], %k1: f32[b], %k2: f32[b]) {
      %0 = sqrt(%k0) : f32[b]
      return y0=%0, y1=%k1
    }
  } {
    graph other<f32, i64>(%k0: f32[b], %k1: f32[b], %k2: f32[b]) {
      %0 = tanh(%k0) : f32[b]
      %1 = negate(%0) : f32[b]
      return y0=%1, y1=%k2
    }
  }
  return y=%2, z=%3, kept=%1
}
)");
}

TEST(Outline, LeavesOutsideWhatAnotherModelMade) {
  ir::Graph graph = parsed(R"(graph m<f32, i64>(%x: f32[], %p: bool[]) {
  %0 = exp(%x) : f32[]
  %1 = cond_join(%0, %x, %p, loop=3) : f32[]
  return y=%1
}
)");
  Owners owners{{0, 3}, [](int64_t leaf, int64_t) { return leaf == 3; }};
  const ir::Graph out = std::move(outline(std::move(graph), std::move(owners))).or_throw();
  EXPECT_THAT(ir::print(out), HasSubstr("%0 = exp(%x)"));
}

// The condition and the body are two regions of the same inputs.
TEST(Outline, MakesAWhileLoop) {
  expect_outlined(R"(graph m<f32, i64>(%x: f32[], %limit: f32[], %w: f32[]) {
  %0 = scan_enter(%x, loop=1) : f32[]
  %1 = less(%0, %limit) : bool[]
  %2 = multiply(%0, %w) : f32[]
  %3 = while_exit(%x, %x, %1, %2, loop=1) : f32[]
  return y=%3
}
)",
                  R"(graph m<f32, i64>(%x: f32[], %limit: f32[], %w: f32[]) {
  %0 = while_loop(%x, %limit, %w, carries=1) : f32[] {
    graph condition<f32, i64>(%c0: f32[], %k0: f32[], %k1: f32[]) {
      %0 = less(%c0, %k0) : bool[]
      return go=%0
    }
  } {
    graph step<f32, i64>(%c0: f32[], %k0: f32[], %k1: f32[]) {
      %0 = multiply(%c0, %k1) : f32[]
      return c0=%0
    }
  }
  return y=%0
}
)");
}

}  // namespace
}  // namespace mithril::model

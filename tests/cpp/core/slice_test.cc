#include "core/slice.h"

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

using Bound = std::optional<int64_t>;
constexpr Bound none = std::nullopt;
constexpr int64_t big = int64_t{1} << 62;

struct Row {
  Bound start, stop;
  int64_t step, size, first, last, length;
};

// From CPython 3.11: slice(start, stop, step).indices(size), and the length of their range.
const Row kRows[] = {
    // clang-format off
      {1, -7, 1, 2, 1, 0, 0},
      {0, -5, -3, 5, 0, 0, 0},
      {big, 5, 3, 0, 0, 0, 0},
      {-5, none, -2, 5, 0, -1, 1},
      {-7, none, -3, 2, -1, -1, 0},
      {-big, 2, -7, 0, -1, -1, 0},
      {-2, none, 1, 0, 0, 0, 0},
      {big, 7, 1, 5, 5, 5, 0},
      {big, 2, -2, 0, -1, -1, 0},
      {7, 2, -3, 5, 4, 2, 1},
      {7, 2, -1, 1, 0, 0, 0},
      {big, 2, -3, 2, 1, 1, 0},
      {none, 5, 7, 0, 0, 0, 0},
      {1, big, -1, 0, -1, -1, 0},
      {-big, -2, 7, 5, 0, 3, 1},
      {7, big, 3, 2, 2, 2, 0},
      {-1, -7, -3, 6, 5, -1, 2},
      {5, -7, 1, 5, 5, 0, 0},
      {2, -big, -2, 5, 2, -1, 2},
      {big, 1, -1, 6, 5, 1, 4},
      {-big, big, -1, 0, -1, -1, 0},
      {-5, big, 7, 0, 0, 0, 0},
      {1, 7, -2, 2, 1, 1, 0},
      {-5, -big, 1, 5, 0, 0, 0},
      {none, -1, -7, 6, 5, 5, 0},
      {-7, 5, 2, 1, 0, 1, 1},
      {7, 2, 1, 1, 1, 1, 0},
      {7, 7, 3, 5, 5, 5, 0},
      {7, -2, -7, 2, 1, 0, 1},
      {-5, -1, 7, 6, 1, 5, 1},
      {-big, none, -2, 6, -1, -1, 0},
      {1, 7, 7, 1, 1, 1, 0},
      {5, none, -3, 2, 1, -1, 1},
      {-7, 7, 3, 6, 0, 6, 2},
      {5, -5, -1, 5, 4, 0, 4},
      {-2, none, 7, 6, 4, 6, 1},
      {-7, -7, -1, 5, -1, -1, 0},
      {-7, none, 3, 1, 0, 1, 1},
      {7, -7, 2, 0, 0, 0, 0},
      {7, -1, 1, 0, 0, 0, 0},
      {0, none, -3, 0, -1, -1, 0},
      {-1, 2, -1, 0, -1, -1, 0},
      {-7, 1, -1, 2, -1, 1, 0},
      {0, 1, 2, 2, 0, 1, 1},
      {7, 1, -1, 2, 1, 1, 0},
      {-5, -big, -1, 5, 0, -1, 1},
      {-5, 0, 1, 2, 0, 0, 0},
      {5, -2, -2, 1, 0, -1, 1},
      {-1, 0, -1, 6, 5, 0, 5},
      {2, -7, -2, 0, -1, -1, 0},
      {2, none, -2, 1, 0, -1, 1},
      {none, -big, 2, 5, 0, 0, 0},
      {-big, 7, -2, 6, -1, 5, 0},
      {2, big, 7, 5, 2, 5, 1},
      {2, 7, 1, 5, 2, 5, 3},
      {big, -7, -1, 5, 4, -1, 5},
      {none, -big, -1, 1, 0, -1, 1},
      {2, none, -1, 0, -1, -1, 0},
      {0, -1, -1, 1, 0, 0, 0},
      {5, -7, -1, 1, 0, -1, 1},
    // clang-format on
};

HostValue value_of(Bound bound) { return bound ? HostValue(*bound) : HostValue(); }

TEST(Slice, TakesWhatPythonTakes) {
  for (const Row& row : kRows) {
    const Slice slice{value_of(row.start), value_of(row.stop), HostValue(row.step)};
    SCOPED_TRACE(to_string(HostValue(slice)) + " of " + std::to_string(row.size));
    for (const SliceIndices& taken :
         {slice_indices(row.start, row.stop, row.step, row.size), slice_indices(slice, row.size)}) {
      EXPECT_EQ(taken.start, row.first);
      EXPECT_EQ(taken.stop, row.last);
      EXPECT_EQ(taken.step, row.step);
      EXPECT_EQ(taken.length, row.length);
    }
  }
}

TEST(Slice, StepsByOneWhereNoneIsWritten) {
  EXPECT_EQ(slice_indices(Slice{HostValue(1), HostValue(), HostValue()}, 4).length, 3);
}

TEST(Slice, StepsBefore) {
  EXPECT_EQ(steps_before(-1, 2), 0);
  EXPECT_EQ(steps_before(0, 2), 0);
  EXPECT_EQ(steps_before(5, 2), 3);
  EXPECT_EQ(steps_before(5, -2), 3);
  EXPECT_EQ(steps_before(INT64_MAX, INT64_MIN), 1);
}

}  // namespace
}  // namespace mithril::core

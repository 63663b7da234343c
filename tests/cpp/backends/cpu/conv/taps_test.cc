#include "backends/cpu/conv/taps.h"

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

using cpu::Isa;
using cpu::Tap;

template <class T>
class Taps : public ::testing::Test {};
TYPED_TEST_SUITE(Taps, Reals);

// Every instruction set against the definition; planes and results end at guard pages.
TYPED_TEST(Taps, AreWhatTheDefinitionSays) {
  using T = TypeParam;
  std::mt19937_64 random(7);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t planes = 1 + below(3), height = 1 + below(9), width = 1 + below(70);
    const int64_t rows = 1 + below(9), columns = 1 + below(70), gap = below(3);
    const Guarded<T> from(static_cast<size_t>(planes * height * width), trial % 2 == 0);
    const auto count = static_cast<size_t>((planes - 1) * (rows * columns + gap) + rows * columns);
    const Guarded<T> to(count, trial % 2 == 0);
    fill_random(from, random);
    const Tap<T> tap{from.data(),
                     planes,
                     height,
                     width,
                     below(16) - 6,
                     1 + below(3),
                     below(width + 30) - 20,
                     1 + below(3),
                     to.data(),
                     rows * columns + gap,
                     rows,
                     columns};
    fill_nan(to);
    for (int64_t c = 0; c < planes; ++c) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t q = 0; q < columns; ++q) {
          const int64_t row = tap.row + r * tap.row_step;
          const int64_t column = tap.column + q * tap.column_step;
          const bool inside = row >= 0 && row < height && column >= 0 && column < width;
          to.data()[c * tap.to_step + r * columns + q] =
              inside ? from.data()[(c * height + row) * width + column] : T(0);
        }
      }
    }
    const std::vector<T> expected = to.copy();
    for (const Isa isa : supported_isas()) {
      fill_nan(to);
      cpu::copy_taps<T>(isa)(tap);
      ASSERT_EQ(first_difference(to.copy(), expected), -1)
          << name(isa) << " " << planes << "x" << height << "x" << width << " to " << rows << "x"
          << columns << " from " << tap.row << " " << tap.column << " by " << tap.row_step << " "
          << tap.column_step;
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

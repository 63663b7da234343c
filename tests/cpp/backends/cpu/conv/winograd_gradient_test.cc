#include "backends/cpu/conv/winograd_gradient.h"

#include "backends/cpu/conv/winograd_case.h"
#include "backends/cpu/reference/reference.h"

namespace mithril::testing_support {
namespace {

// dw in float64.
std::vector<double> gradient(const WinogradCase& c, const std::vector<double>& x,
                             const std::vector<double>& dy) {
  std::vector<double> dw(c.w.size());
  cpu::reference_kernels(cpu::detect_isa())
      .f64.conv2d_dw(&c.d, x.data(), dy.data(), dw.data(), 0, ref_conv2d_dw_units(&c.d));
  return dw;
}

TEST(WinogradGradient, LiesWithinItsBoundForAnyThreads) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no vectors";
  const WinogradCase cases[] = {
      make_case(1, 16, 8, 8, 16, 1, 1, 1, 1, 1),     // whole tiles
      make_case(2, 17, 9, 7, 19, 1, 1, 1, 1, 2),     // ends of tiles, of vectors
      make_case(3, 5, 6, 11, 3, 0, 0, 0, 0, 3),      // no padding
      make_case(1, 20, 5, 6, 40, 2, 3, 1, 0, 4),     // uneven padding
      make_case(1, 8, 1, 30, 8, 1, 1, 1, 1, 5),      // one row
      make_case(1, 16, 4, 4, 16, 5, 5, 5, 5, 6),     // windows of padding alone
      make_case(2, 70, 7, 7, 130, 1, 1, 1, 1, 7),    // parts of channels and filters
      make_case(3, 16, 46, 43, 20, 1, 1, 1, 1, 8),   // blocks of tiles, sums of one part
      make_case(20, 80, 14, 14, 66, 1, 1, 1, 1, 9),  // blocks, several parts
      make_case(1, 1, 3, 3, 1, 0, 0, 0, 0, 10),      // one number of dy
  };
  for (const WinogradCase& c : cases) {
    SCOPED_TRACE(c.d.c_in);
    const auto expected = gradient(c, widened(c.x), widened(c.dy));
    const auto magnitude = gradient(c, magnitudes(c.x), magnitudes(c.dy));
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 4}) {
      SCOPED_TRACE(threads);
      const plan::Step step = cpu::make_winograd_gradient(c.d, threads).or_throw();
      const auto whole = run(step, c.x, c.dy, c.w.size(), step.units);
      EXPECT_EQ(run(step, c.x, c.dy, c.w.size(), step.units, true), whole);
      EXPECT_EQ(run(step, c.x, c.dy, c.w.size(), 1), whole);
      if (threads == 1) {
        first = whole;
        expect_near(whole, expected, magnitude);
      }
      EXPECT_EQ(whole, first);
    }
  }
}

TEST(WinogradGradient, IsPreferredWhereItSavesTime) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no vectors";
  const auto preferred = [](int64_t channels, int64_t size, int64_t images) {
    return cpu::prefers_winograd_gradient(
        {images, 1, channels, size, size, channels, size, size, 3, 3, 1, 1, 1, 1, 1, 1});
  };
  EXPECT_TRUE(preferred(64, 56, 1));
  EXPECT_TRUE(preferred(512, 7, 8));
  EXPECT_FALSE(preferred(512, 3, 1));    // nine numbers of dy, 36 sums
  EXPECT_FALSE(preferred(3, 224, 1));    // too few channels for whole vectors
  EXPECT_FALSE(preferred(16, 1100, 1));  // a row of tiles is longer than a block
}

}  // namespace
}  // namespace mithril::testing_support

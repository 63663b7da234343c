#include "reference/support.h"

namespace mithril::testing_support {
namespace {

TEST(ReferenceCopy, TransposesFlipsAndBroadcasts) {
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    const int32_t x[] = {1, 2, 3, 4, 5, 6};  // [2, 3]
    int32_t y[6] = {};
    const ref_copy_dims transpose = {2, {3, 2}, {1, 3}, {2, 1}};
    kernels.copy(&transpose, 4, x, y, 0, kernels.copy_units(&transpose));
    EXPECT_EQ(std::vector<int32_t>(y, y + 6), (std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
    const ref_copy_dims flip = {2, {2, 3}, {3, -1}, {3, 1}};
    kernels.copy(&flip, 4, x + 2, y, 0, kernels.copy_units(&flip));
    EXPECT_EQ(std::vector<int32_t>(y, y + 6), (std::vector<int32_t>{3, 2, 1, 6, 5, 4}));
    const ref_copy_dims spread = {2, {2, 3}, {0, 1}, {3, 1}};
    kernels.copy(&spread, 4, x, y, 0, kernels.copy_units(&spread));
    EXPECT_EQ(std::vector<int32_t>(y, y + 6), (std::vector<int32_t>{1, 2, 3, 1, 2, 3}));
  }
}

TEST(ReferenceCopy, EveryElementSizeBetweenGuards) {
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    for (const int64_t size : {1, 2, 3, 4, 8, 16}) {
      for (const bool at_end : {false, true}) {
        const size_t bytes = static_cast<size_t>(2 * 3 * 4 * size);
        const Guarded<unsigned char> x(bytes, at_end), y(bytes, at_end);
        for (size_t i = 0; i < bytes; ++i) x.data()[i] = static_cast<unsigned char>(i * 7);
        // [2, 3, 4] -> [4, 3, 2] and back
        const ref_copy_dims there = {3, {2, 3, 4}, {12, 4, 1}, {1, 2, 6}};
        const ref_copy_dims back = {3, {2, 3, 4}, {1, 2, 6}, {12, 4, 1}};
        const Guarded<unsigned char> z(bytes, at_end);
        for (int64_t unit = 0; unit < kernels.copy_units(&there); ++unit) {
          kernels.copy(&there, size, x.data(), y.data(), unit, unit + 1);
        }
        EXPECT_NE(x.copy(), y.copy());
        kernels.copy(&back, size, y.data(), z.data(), 0, kernels.copy_units(&back));
        EXPECT_EQ(x.copy(), z.copy());
      }
    }
  }
}

TEST(ReferenceCopy, ScalarsAndEmptyOnes) {
  const double x = 3;
  double y = 0;
  const ref_copy_dims scalar = {0, {}, {}, {}};
  EXPECT_EQ(ref_copy_units(&scalar), 1);
  ref_copy(&scalar, 8, &x, &y, 0, 1);
  EXPECT_EQ(y, 3);
  const ref_copy_dims empty = {2, {0, 3}, {3, 1}, {3, 1}};
  EXPECT_EQ(ref_copy_units(&empty), 0);
  const ref_copy_dims thin = {2, {2, 0}, {0, 1}, {0, 1}};
  ref_copy(&thin, 8, nullptr, nullptr, 0, ref_copy_units(&thin));
}

}  // namespace
}  // namespace mithril::testing_support

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

template <class T>
class ReferenceGatherGrad : public ::testing::Test {};
TYPED_TEST_SUITE(ReferenceGatherGrad, Reals);

TYPED_TEST(ReferenceGatherGrad, AddsInRisingOrder) {
  using T = TypeParam;
  const T big = std::ldexp(T{1}, 60);
  for (const auto& kernels : kernel_builds<T>()) {
    const int32_t index[] = {1, 1, 1, -2};
    const T dy[] = {big, 1, -big, 5};  // (big + 1) - big = 0, any other order gives 1
    T dx[2] = {7, 7};
    const ref_gather_dims d = {1, 2, 1, 4, -2};
    EXPECT_EQ(kernels.gather_grad_i32(&d, index, dy, dx, 0, 2), -1);
    EXPECT_EQ(dx[0], 5);
    EXPECT_EQ(dx[1], 0);
  }
}

TYPED_TEST(ReferenceGatherGrad, AnySplitOfRowsIsTheSame) {
  using T = TypeParam;
  std::mt19937_64 random(7);
  const ref_gather_dims d = {3, 5, 7, 11, 0};
  for (const auto& kernels : kernel_builds<T>()) {
    const Guarded<T> dy(3 * 11 * 7), dx(3 * 5 * 7);
    fill_random(dy, random);
    std::vector<int64_t> index;
    for (int i = 0; i < 11; ++i) index.push_back(static_cast<int64_t>(random() % 5));
    std::vector<T> expected(dx.size());
    for (int64_t at = 0; at < 3 * 11 * 7; ++at) {
      const auto row = static_cast<int64_t>(index[static_cast<size_t>(at / 7 % 11)]);
      expected[static_cast<size_t>((at / 77 * 5 + row) * 7 + at % 7)] += dy[at];
    }
    for (const int64_t step : {1, 2, 5, 7, 15}) {
      fill_nan(dx);
      for (int64_t unit = 0; unit < 15; unit += step) {
        const int64_t end = std::min<int64_t>(15, unit + step);
        EXPECT_EQ(
            kernels.gather_grad_i64(&d, index.data(), dy.data(), dx.data() + unit * 7, unit, end),
            -1);
      }
      EXPECT_EQ(first_difference(dx.copy(), expected), -1) << step;
    }
  }
}

TYPED_TEST(ReferenceGatherGrad, BadIndicesAreReportedAndLeftOut) {
  using T = TypeParam;
  for (const auto& kernels : kernel_builds<T>()) {
    const int64_t index[] = {0, 9, -1};
    const T dy[] = {1, 2, 3};
    const Guarded<T> dx(2);
    const ref_gather_dims d = {1, 2, 1, 3, 0};
    EXPECT_EQ(kernels.gather_grad_i64(&d, index, dy, dx.data(), 0, 2), 1);
    EXPECT_EQ(dx.copy(), (std::vector<T>{1, 0}));
    const ref_gather_dims empty = {1, 0, 1, 3, 0};
    EXPECT_EQ(kernels.gather_grad_i64(&empty, index, dy, nullptr, 0, 1), 0);
  }
}

}  // namespace
}  // namespace mithril::testing_support

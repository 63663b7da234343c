#include "reference/support.h"

namespace mithril::testing_support {
namespace {

template <class T>
class ReferencePool2d : public ::testing::Test {};
TYPED_TEST_SUITE(ReferencePool2d, Reals);

constexpr ref_pool2d_dims kSimple = {1, 2, 4, 1, 2, 2, 2, 2, 2, 0, 0, 1, 1};

TYPED_TEST(ReferencePool2d, MaximumGolden) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const auto& kernels : kernel_builds<T>()) {
    const T x[] = {1, 7, -3, -2, 7, 2, -2, nan};
    const T dy[] = {10, 20};
    T y[2], dx[8];
    kernels.max_pool2d(&kSimple, x, y, 0, 1);
    EXPECT_EQ(y[0], 7);
    EXPECT_TRUE(std::isnan(y[1]));
    kernels.max_pool2d_grad(&kSimple, x, dy, dx, 0, 1);
    // a tie: all to the first; NaN takes its window
    EXPECT_EQ(std::vector<T>(dx, dx + 8), (std::vector<T>{0, 10, 0, 0, 0, 0, 0, 20}));
  }
}

TYPED_TEST(ReferencePool2d, PaddingNeverWins) {
  using T = TypeParam;
  // 3 wide, 2 of padding on the left, windows of 2: the first window is padding alone
  const ref_pool2d_dims d = {1, 1, 3, 1, 4, 1, 2, 1, 1, 0, 2, 1, 1};
  for (const auto& kernels : kernel_builds<T>()) {
    const T x[] = {-5, -6, -std::numeric_limits<T>::infinity()};
    const T dy[] = {1, 2, 4, 8};
    T y[4], dx[3];
    kernels.max_pool2d(&d, x, y, 0, 1);
    EXPECT_EQ(std::vector<T>(y, y + 4),
              (std::vector<T>{-std::numeric_limits<T>::infinity(), -5, -5, -6}));
    kernels.max_pool2d_grad(&d, x, dy, dx, 0, 1);
    EXPECT_EQ(std::vector<T>(dx, dx + 3), (std::vector<T>{6, 8, 0}));
  }
}

TYPED_TEST(ReferencePool2d, AverageGolden) {
  using T = TypeParam;
  const ref_pool2d_dims padded = {1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1};
  for (const auto& kernels : kernel_builds<T>()) {
    const T x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const T dy[] = {4, 8};
    T y[4], dx[8];
    kernels.avg_pool2d(&kSimple, x, y, 0, 1);
    EXPECT_EQ(std::vector<T>(y, y + 2), (std::vector<T>{3.5, 5.5}));
    kernels.avg_pool2d_grad(&kSimple, dy, dx, 0, 1);
    EXPECT_EQ(std::vector<T>(dx, dx + 8), (std::vector<T>{1, 1, 2, 2, 1, 1, 2, 2}));
    kernels.avg_pool2d(&padded, x, y, 0, 1);  // padding is counted
    EXPECT_EQ(std::vector<T>(y, y + 4), (std::vector<T>{0.25, 0.5, 0.75, 1}));
  }
}

// Against windows gathered one by one, with overlap, dilation and asymmetric padding.
TYPED_TEST(ReferencePool2d, EqualsWindowsOneByOne) {
  using T = TypeParam;
  std::mt19937_64 random(6);
  const ref_pool2d_dims cases[] = {{3, 7, 9, 4, 5, 3, 3, 2, 2, 1, 1, 1, 1},
                                   {2, 6, 6, 4, 4, 2, 2, 1, 1, 0, 0, 2, 2},
                                   {1, 5, 4, 5, 3, 2, 3, 1, 1, 0, 1, 1, 1},
                                   {0, 5, 4, 4, 2, 2, 3, 1, 1, 0, 0, 1, 1},
                                   {2, 3, 3, 0, 2, 4, 2, 1, 1, 0, 0, 1, 1}};
  for (const auto& kernels : kernel_builds<T>()) {
    for (const ref_pool2d_dims& d : cases) {
      for (const bool at_end : {false, true}) {
        const int64_t inputs = d.planes * d.h_in * d.w_in, outputs = d.planes * d.h_out * d.w_out;
        const Guarded<T> x(inputs, at_end), y(outputs, at_end), mean(outputs, at_end);
        const Guarded<T> dy(outputs, at_end), dx(inputs, at_end), dmean(inputs, at_end);
        fill_random(x, random);
        fill_random(dy, random);
        for (const auto* out : {&y, &mean, &dx, &dmean}) fill_nan(*out);
        for (int64_t plane = 0; plane < d.planes; ++plane) {
          kernels.max_pool2d(&d, x.data(), y.data(), plane, plane + 1);
          kernels.avg_pool2d(&d, x.data(), mean.data(), plane, plane + 1);
          kernels.max_pool2d_grad(&d, x.data(), dy.data(), dx.data(), plane, plane + 1);
          kernels.avg_pool2d_grad(&d, dy.data(), dmean.data(), plane, plane + 1);
        }
        std::vector<T> want_dx(x.size()), want_dmean(x.size());
        for (int64_t at = 0; at < outputs; ++at) {
          const int64_t ow = at % d.w_out, oh = at / d.w_out % d.h_out;
          const int64_t plane = at / d.w_out / d.h_out;
          std::vector<size_t> window;
          for (int64_t tap = 0; tap < d.kh * d.kw; ++tap) {
            const int64_t ih = oh * d.stride_h + tap / d.kw * d.dilation_h - d.pad_top;
            const int64_t iw = ow * d.stride_w + tap % d.kw * d.dilation_w - d.pad_left;
            if (ih < 0 || ih >= d.h_in || iw < 0 || iw >= d.w_in) continue;
            window.push_back(static_cast<size_t>((plane * d.h_in + ih) * d.w_in + iw));
          }
          T sum = 0;
          const T share = dy[at] / static_cast<T>(d.kh * d.kw);
          for (const size_t i : window) sum += x.data()[i];
          for (const size_t i : window) want_dmean[i] += share;
          ASSERT_TRUE(same_bits(mean[at], sum / static_cast<T>(d.kh * d.kw)));
          const auto best = std::max_element(window.begin(), window.end(), [&](size_t a, size_t b) {
            return x.data()[a] < x.data()[b];
          });
          ASSERT_NE(best, window.end());
          ASSERT_EQ(y[at], x.data()[*best]);
          want_dx[*best] += dy[at];
        }
        EXPECT_EQ(first_difference(dx.copy(), want_dx), -1);
        EXPECT_EQ(first_difference(dmean.copy(), want_dmean), -1);
      }
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

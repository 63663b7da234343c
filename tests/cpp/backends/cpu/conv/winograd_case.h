// What tests of convolution by tiles share: random operands, runs between guard pages, the bound.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "plan/steps.h"
#include "reference/support.h"

namespace mithril::testing_support {

struct WinogradCase {
  ref_conv2d_dims d;
  std::vector<float> x, w, dy;
};

// 3x3, step 1: images channels h w filters pads.
inline WinogradCase make_case(int64_t images, int64_t channels, int64_t h, int64_t w,
                              int64_t filters, int64_t top, int64_t left, int64_t below,
                              int64_t right, unsigned seed) {
  const int64_t h_out = h + top + below - 2, w_out = w + left + right - 2;
  WinogradCase c{
      {images, 1, channels, h, w, filters, h_out, w_out, 3, 3, 1, 1, top, left, 1, 1}, {}, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& out, int64_t count) {
    out.resize(static_cast<size_t>(count));
    for (float& value : out) value = normal(random);
  };
  fill(c.x, images * channels * h * w);
  fill(c.w, filters * channels * 9);
  fill(c.dy, images * filters * h_out * w_out);
  return c;
}

inline std::vector<double> widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

inline std::vector<double> magnitudes(const std::vector<float>& x) {
  std::vector<double> out = widened(x);
  for (double& value : out) value = std::abs(value);
  return out;
}

// In ranges of `chunk` units, the last range first; `is_dirty`: scratch memory is full of NaN.
inline std::vector<float> run(const plan::Step& step, const std::vector<float>& left,
                              const std::vector<float>& right, size_t count, int64_t chunk,
                              bool is_dirty = false) {
  const Guarded<float> out(count), first(left.size()), second(right.size());
  std::copy(left.begin(), left.end(), first.data());
  std::copy(right.begin(), right.end(), second.data());
  fill_nan(out);
  const Guarded<char> scratch((step.scratch_bytes + 63) / 64 * 64);
  if (is_dirty) std::fill_n(scratch.data(), step.scratch_bytes, '\xFF');
  void* buffers[] = {first.data(), second.data(), out.data()};
  plan::ErrorSlot slot;
  const plan::KernelArgs args{buffers,        nullptr, nullptr, step.data.get(),
                              scratch.data(), 0,       &slot,   nullptr};
  for (int64_t end = step.units; end > 0; end -= chunk) {
    EXPECT_EQ(step.kernel(args, std::max<int64_t>(0, end - chunk), end), plan::KernelStatus::kOk);
  }
  return out.copy();
}

// The stated bound: 16 roundings of the sum of magnitudes, the largest of all results.
inline void expect_near(const std::vector<float>& got, const std::vector<double>& expected,
                        const std::vector<double>& magnitude) {
  ASSERT_EQ(got.size(), expected.size());
  const double most = *std::max_element(magnitude.begin(), magnitude.end());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 16 * 0x1p-24 * most) << i;
  }
}

}  // namespace mithril::testing_support

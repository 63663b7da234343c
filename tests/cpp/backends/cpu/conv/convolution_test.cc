#include "backends/cpu/conv/convolution.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "backends/cpu/reference/reference.h"

namespace mithril::cpu {
namespace {

template <class T>
std::vector<T> random_values(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  std::vector<T> out(static_cast<size_t>(count));
  for (T& x : out) x = uniform(generator);
  return out;
}

// Runs a step in two ranges of units, out of order, over aligned scratch.
template <class T>
std::vector<T> run(core::Result<plan::Step> made, const std::vector<T>& a, const std::vector<T>& b,
                   int64_t count) {
  const plan::Step step = std::move(made).or_throw();
  std::vector<T> out(static_cast<size_t>(count), T(-77));
  void* buffers[] = {const_cast<T*>(a.data()), const_cast<T*>(b.data()), out.data()};
  void* scratch = std::aligned_alloc(64, (step.scratch_bytes + 63) / 64 * 64);
  plan::ErrorSlot slot;
  const plan::KernelArgs args{buffers, nullptr, nullptr, step.data.get(),
                              scratch, 0,       &slot,   nullptr};
  const int64_t half = step.units / 2;
  EXPECT_EQ(step.kernel(args, half, step.units), plan::KernelStatus::kOk);
  EXPECT_EQ(step.kernel(args, 0, half), plan::KernelStatus::kOk);
  std::free(scratch);
  return out;
}

template <class T>
void expect_equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0);
}

template <class T>
const RealKernels<T>& reference();
template <>
const RealKernels<float>& reference<float>() {
  return reference_kernels(detect_isa()).f32;
}
template <>
const RealKernels<double>& reference<double>() {
  return reference_kernels(detect_isa()).f64;
}

template <class T>
void check(const ref_conv2d_dims& d, core::DType dtype, int threads) {
  const int64_t x_count = d.batch * d.groups * d.c_in * d.h_in * d.w_in;
  const int64_t w_count = d.groups * d.c_out * d.c_in * d.kh * d.kw;
  const int64_t y_count = d.batch * d.groups * d.c_out * d.h_out * d.w_out;
  const auto x = random_values<T>(x_count, 1);
  const auto w = random_values<T>(w_count, 2);
  const auto dy = random_values<T>(y_count, 3);
  const RealKernels<T>& kernels = reference<T>();

  std::vector<T> y(static_cast<size_t>(y_count));
  kernels.conv2d(&d, x.data(), w.data(), y.data(), 0, d.batch * d.groups * d.c_out * d.h_out);
  expect_equal_bits(run(make_convolution(d, dtype, threads, nullptr, nullptr), x, w, y_count), y);
  const auto* constant = reinterpret_cast<const std::byte*>(w.data());
  expect_equal_bits(run(make_convolution(d, dtype, threads, constant, nullptr), x, w, y_count), y);

  std::vector<T> dw(static_cast<size_t>(w_count));
  kernels.conv2d_dw(&d, x.data(), dy.data(), dw.data(), 0, ref_conv2d_dw_units(&d));
  expect_equal_bits(run(make_weight_gradient(d, dtype, threads), x, dy, w_count), dw);

  std::vector<T> dx(static_cast<size_t>(x_count));
  kernels.conv2d_dx(&d, dy.data(), w.data(), dx.data(), 0, d.batch * d.groups * d.c_in * d.h_in);
  expect_equal_bits(run(make_input_gradient(d, dtype, threads), dy, w, x_count), dx);
}

// Fields: batch groups c_in h_in w_in c_out h_out w_out kh kw strides pads dilations.
TEST(Convolution, EqualsTheReferenceToTheBit) {
  const ref_conv2d_dims cases[] = {
      {3, 1, 2, 6, 7, 5, 6, 7, 3, 3, 1, 1, 1, 1, 1, 1},          // padding "same"
      {2, 2, 3, 9, 8, 4, 4, 7, 3, 2, 2, 1, 1, 0, 1, 1},          // groups, stride
      {2, 1, 40, 12, 11, 33, 10, 7, 3, 3, 1, 1, 1, 0, 1, 2},     // k > 256, dilation
      {5, 1, 8, 7, 7, 16, 7, 7, 1, 1, 1, 1, 0, 0, 1, 1},         // pointwise
      {2, 2, 300, 5, 9, 20, 5, 9, 1, 1, 1, 1, 0, 0, 1, 1},       // pointwise, groups, k > 256
      {2, 1, 8, 7, 7, 6, 4, 4, 1, 1, 2, 2, 0, 0, 1, 1},          // pointwise, stride
      {2, 1, 3, 7, 7, 6, 9, 9, 1, 1, 1, 1, 1, 1, 1, 1},          // pointwise, padding
      {2, 1, 3, 7, 7, 6, 8, 8, 1, 1, 1, 1, 0, 0, 1, 1},          // pointwise, padding behind
      {1, 1, 1, 4, 40, 1, 3, 41, 2, 2, 1, 1, 0, 1, 1, 1},        // one channel, wide rows
      {2, 1, 3, 5, 5, 2, 9, 9, 3, 3, 1, 1, 3, 3, 1, 1},          // windows of padding alone
      {3, 2, 3, 6, 7, 4, 6, 7, 3, 3, 1, 1, 1, 1, 1, 1},          // groups
      {2, 1, 3, 9, 10, 4, 5, 5, 3, 3, 2, 2, 1, 1, 1, 1},         // phases
      {2, 2, 5, 11, 8, 3, 3, 3, 3, 4, 4, 3, 1, 2, 1, 1},         // phases without taps
      {3, 1, 3, 11, 13, 4, 4, 4, 3, 3, 2, 3, 0, 1, 2, 2},        // dilated, strides that share it
      {1, 1, 90, 14, 14, 40, 7, 7, 3, 3, 2, 2, 1, 1, 1, 1},      // phases, k > 256
      {1, 1, 3, 2, 2, 4, 1, 1, 2, 2, 5, 5, 0, 0, 1, 1},          // strides beyond the input
      {35, 1, 1, 3, 3, 2, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},         // units of several images
      {1, 1, 4, 120, 130, 3, 120, 130, 3, 3, 1, 1, 1, 1, 1, 1},  // several products an image
      {43, 2, 18, 9, 9, 7, 5, 5, 3, 3, 2, 2, 1, 1, 1, 1},        // phases of images side by side
      {24, 1, 20, 4, 4, 17, 2, 2, 1, 1, 2, 2, 0, 0, 1, 1},       // the same, pointwise
      {2, 3, 30, 16, 16, 50, 16, 16, 1, 1, 1, 1, 0, 0, 1, 1},    // few positions, many filters
      {1, 2, 60, 34, 34, 40, 33, 33, 2, 2, 1, 1, 0, 0, 1, 1},    // few positions in the last block
      {1, 1, 20, 6, 6, 130, 6, 6, 3, 3, 1, 1, 1, 1, 1, 1},       // filters shared by threads
  };
  for (const ref_conv2d_dims& d : cases) {
    for (const int threads : {1, 3}) {
      check<float>(d, core::DType::kFloat32, threads);
      check<double>(d, core::DType::kFloat64, threads);
    }
  }
}

TEST(Convolution, LeavesEmptyProductsToTheReference) {
  ref_conv2d_dims d{1, 1, 1, 4, 4, 1, 4, 4, 1, 1, 1, 1, 0, 0, 1, 1};
  EXPECT_TRUE(fits_convolution(d));
  d.batch = 0;
  EXPECT_FALSE(fits_convolution(d));
}

}  // namespace
}  // namespace mithril::cpu

#include "reference/conv_cases.h"

namespace mithril::testing_support {
namespace {

template <class T>
class ReferenceConv2dDx : public ::testing::Test {};
TYPED_TEST_SUITE(ReferenceConv2dDx, Reals);

TYPED_TEST(ReferenceConv2dDx, Golden) {
  for (const auto& kernels : kernel_builds<TypeParam>()) {
    const TypeParam dy[] = {1, 10, 100, 1000};
    const TypeParam w[] = {1, 2, 3, 4};
    TypeParam dx[9] = {};
    const ref_conv2d_dims d = {1, 1, 1, 3, 3, 1, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1};
    kernels.conv2d_dx(&d, dy, w, dx, 0, 3);
    EXPECT_EQ(std::vector<TypeParam>(dx, dx + 9),
              (std::vector<TypeParam>{1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}));
  }
}

// The definition, from the side of the input: (o, kh, kw), taps off the grid left out.
template <class T>
std::vector<std::pair<T, T>> products_at(const ref_conv2d_dims& d, const Guarded<T>& dy,
                                         const Guarded<T>& w, int64_t at) {
  const int64_t iw = at % d.w_in, ih = at / d.w_in % d.h_in;
  const int64_t plane = at / d.w_in / d.h_in;
  const int64_t c = plane % d.c_in, group = plane / d.c_in % d.groups;
  const int64_t n = plane / d.c_in / d.groups;
  std::vector<std::pair<T, T>> products;
  for (int64_t tap = 0; tap < d.c_out * d.kh * d.kw; ++tap) {
    const int64_t j = tap % d.kw, i = tap / d.kw % d.kh;
    const int64_t o = group * d.c_out + tap / d.kw / d.kh;
    const int64_t up = ih + d.pad_top - i * d.dilation_h;
    const int64_t left = iw + d.pad_left - j * d.dilation_w;
    if (up % d.stride_h != 0 || left % d.stride_w != 0) continue;
    const int64_t oh = up / d.stride_h, ow = left / d.stride_w;
    const bool inside = oh >= 0 && oh < d.h_out && ow >= 0 && ow < d.w_out;
    const int64_t from = ((n * d.groups * d.c_out + o) * d.h_out + oh) * d.w_out + ow;
    products.push_back({inside ? dy[from] : T{0}, w[((o * d.c_in + c) * d.kh + i) * d.kw + j]});
  }
  return products;
}

TYPED_TEST(ReferenceConv2dDx, EqualsTheOrderWrittenOut) {
  using T = TypeParam;
  std::mt19937_64 random(4);
  for (const auto& kernels : kernel_builds<T>()) {
    for (const ref_conv2d_dims& d : conv_cases()) {
      for (const bool at_end : {false, true}) {
        const Guarded<T> dx(x_size(d), at_end), w(w_size(d), at_end), dy(y_size(d), at_end);
        fill_random(dy, random);
        fill_random(w, random);
        fill_nan(dx);
        const int64_t units = d.batch * d.groups * d.c_in * d.h_in;
        kernels.conv2d_dx(&d, dy.data(), w.data(), dx.data(), 0, units / 2);
        kernels.conv2d_dx(&d, dy.data(), w.data(), dx.data(), units / 2, units);
        std::vector<double> exact(dx.size());  // by the forward's own products
        each_product(d, [&](int64_t from, int64_t weight, int64_t to) {
          if (to >= 0) exact[static_cast<size_t>(to)] += double{dy[from]} * double{w[weight]};
        });
        for (size_t i = 0; i < dx.size(); ++i) {
          const T expected = canonical_sum(products_at(d, dy, w, static_cast<int64_t>(i)));
          ASSERT_TRUE(same_bits(dx.data()[i], expected));
          ASSERT_NEAR(dx.data()[i], exact[i], 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

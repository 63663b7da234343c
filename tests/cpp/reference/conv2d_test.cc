#include "reference/conv_cases.h"

namespace mithril::testing_support {
namespace {

template <class T>
class ReferenceConv2d : public ::testing::Test {};
TYPED_TEST_SUITE(ReferenceConv2d, Reals);

TYPED_TEST(ReferenceConv2d, Golden) {
  for (const auto& kernels : kernel_builds<TypeParam>()) {
    const TypeParam x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const TypeParam w[] = {1, 0, 0, -1};
    TypeParam y[4] = {};
    const ref_conv2d_dims d = {1, 1, 1, 3, 3, 1, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1};
    kernels.conv2d(&d, x, w, y, 0, 2);
    EXPECT_EQ(std::vector<TypeParam>(y, y + 4), (std::vector<TypeParam>{-4, -4, -4, -4}));
  }
}

TYPED_TEST(ReferenceConv2d, EqualsTheOrderWrittenOut) {
  using T = TypeParam;
  std::mt19937_64 random(3);
  for (const auto& kernels : kernel_builds<T>()) {
    for (const ref_conv2d_dims& d : conv_cases()) {
      for (const bool at_end : {false, true}) {
        const Guarded<T> x(x_size(d), at_end), w(w_size(d), at_end), y(y_size(d), at_end);
        fill_random(x, random);
        fill_random(w, random);
        fill_nan(y);
        const int64_t units = d.batch * d.groups * d.c_out * d.h_out;
        kernels.conv2d(&d, x.data(), w.data(), y.data(), 0, units / 2);
        kernels.conv2d(&d, x.data(), w.data(), y.data(), units / 2, units);
        std::vector<std::vector<std::pair<T, T>>> products(y.size());
        each_product(d, [&](int64_t to, int64_t weight, int64_t from) {
          products[static_cast<size_t>(to)].push_back({from < 0 ? T{0} : x[from], w[weight]});
        });
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_TRUE(same_bits(y.data()[i], canonical_sum(products[i])));
          ASSERT_NEAR(y.data()[i], exact_sum(products[i]), 1e-4);
        }
      }
    }
  }
}

TYPED_TEST(ReferenceConv2d, PaddingIsAProductWithZero) {
  using T = TypeParam;
  for (const auto& kernels : kernel_builds<T>()) {
    const T x[] = {1}, w[] = {std::numeric_limits<T>::infinity(), 1};
    T y[2] = {};
    const ref_conv2d_dims d = {1, 1, 1, 1, 1, 1, 1, 2, 1, 2, 1, 1, 0, 1, 1, 1};
    kernels.conv2d(&d, x, w, y, 0, 1);
    EXPECT_TRUE(std::isnan(y[0]));  // inf * +0
    EXPECT_TRUE(std::isinf(y[1]));
  }
}

}  // namespace
}  // namespace mithril::testing_support

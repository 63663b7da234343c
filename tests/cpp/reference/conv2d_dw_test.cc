#include "reference/conv_cases.h"

namespace mithril::testing_support {
namespace {

template <class T>
class ReferenceConv2dDw : public ::testing::Test {};
TYPED_TEST_SUITE(ReferenceConv2dDw, Reals);

TYPED_TEST(ReferenceConv2dDw, Golden) {
  for (const auto& kernels : kernel_builds<TypeParam>()) {
    const TypeParam x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const TypeParam dy[] = {1, 0, 0, 1};
    TypeParam dw[4] = {};
    const ref_conv2d_dims d = {1, 1, 1, 3, 3, 1, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1};
    kernels.conv2d_dw(&d, x, dy, dw, 0, ref_conv2d_dw_units(&d));
    EXPECT_EQ(std::vector<TypeParam>(dw, dw + 4), (std::vector<TypeParam>{6, 8, 12, 14}));
  }
}

TYPED_TEST(ReferenceConv2dDw, EqualsTheOrderWrittenOut) {
  using T = TypeParam;
  std::mt19937_64 random(5);
  for (const auto& kernels : kernel_builds<T>()) {
    for (const ref_conv2d_dims& d : conv_cases()) {
      for (const bool at_end : {false, true}) {
        const Guarded<T> x(x_size(d), at_end), dw(w_size(d), at_end), dy(y_size(d), at_end);
        fill_random(x, random);
        fill_random(dy, random);
        fill_nan(dw);
        const int64_t units = ref_conv2d_dw_units(&d);
        kernels.conv2d_dw(&d, x.data(), dy.data(), dw.data(), 0, units / 2);
        kernels.conv2d_dw(&d, x.data(), dy.data(), dw.data(), units / 2, units);
        // outputs come in rising (n, o, oh, ow), so each weight meets its products in order
        std::vector<std::vector<std::pair<T, T>>> products(dw.size());
        each_product(d, [&](int64_t to, int64_t weight, int64_t from) {
          products[static_cast<size_t>(weight)].push_back({from < 0 ? T{0} : x[from], dy[to]});
        });
        for (size_t i = 0; i < dw.size(); ++i) {
          ASSERT_TRUE(same_bits(dw.data()[i], canonical_sum(products[i])));
          ASSERT_NEAR(dw.data()[i], exact_sum(products[i]), 1e-3);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

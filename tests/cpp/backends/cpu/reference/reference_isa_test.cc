#include "backends/cpu/reference/reference.h"
#include "reference/support.h"

namespace mithril::testing_support {
namespace {

// NaN, infinities, zeros of both signs, subnormals: the builds agree on all of them.
TEST(ReferenceBuilds, AgreeOnSpecialValues) {
  using Limits = std::numeric_limits<float>;
  const float special[] = {0.0f,
                           -0.0f,
                           1.0f,
                           -3.5f,
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::denorm_min(),
                           -Limits::min(),
                           Limits::max(),
                           Limits::quiet_NaN()};
  std::mt19937_64 random(8);
  for (int round = 0; round < 50; ++round) {
    const Guarded<float> a(5 * 300), b(300 * 37);
    for (const auto* values : {&a, &b}) {
      fill_random(*values, random);
      for (int i = 0; i < 20; ++i) {
        values->data()[random() % values->size()] = special[random() % std::size(special)];
      }
    }
    ref_matmul_dims d{};
    d.m = 5, d.n = 37, d.k = 300;
    d.a_row = 300, d.a_col = 1, d.b_row = 37, d.b_col = 1, d.c_row = 37, d.c_col = 1;
    std::vector<float> first;
    for (const auto& kernels : kernel_builds<float>()) {
      const Guarded<float> c(5 * 37);
      kernels.matmul(&d, a.data(), b.data(), c.data(), 0, 5);
      if (first.empty()) first = c.copy();
      ASSERT_EQ(first_difference(c.copy(), first), -1);
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

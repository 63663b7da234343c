#include <limits>
#include <numeric>

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

// NaN is the largest element; equal ones stay in order.
std::vector<int64_t> places(const std::vector<double>& x, bool falling) {
  std::vector<int64_t> out(x.size());
  std::iota(out.begin(), out.end(), 0);
  const auto less = [&](int64_t i, int64_t j) {
    const double a = x[static_cast<size_t>(i)], b = x[static_cast<size_t>(j)];
    return std::isnan(b) ? !std::isnan(a) : a < b;
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](int64_t i, int64_t j) { return falling ? less(j, i) : less(i, j); });
  return out;
}

// Few values, so that many are equal.
double any_of_seven(std::mt19937_64& random) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kValues[] = {
      std::numeric_limits<double>::quiet_NaN(), -kInf, kInf, 0.0, -0.0, 1.0, -2.5};
  return kValues[random() % 7];
}

TEST(ReferenceSort, IsStableAndNaNIsTheLargest) {
  std::mt19937_64 random(1);
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    for (int64_t n = 1; n < 40; ++n) {
      for (const bool falling : {false, true}) {
        const ref_axis_dims d = {.outer = 1, .n = n, .inner = 2, .falling = falling};
        const Guarded<double> x(static_cast<size_t>(2 * n));
        const Guarded<int64_t> y(static_cast<size_t>(2 * n)), scratch(static_cast<size_t>(2 * n));
        for (int64_t i = 0; i < 2 * n; ++i) x[i] = any_of_seven(random);
        kernels.axis_f64.argsort(&d, 8, x.data(), y.data(), scratch.data(), 0, 2);
        for (int64_t column = 0; column < 2; ++column) {
          std::vector<double> line;
          std::vector<int64_t> found;
          for (int64_t i = 0; i < n; ++i) {
            line.push_back(x[2 * i + column]);
            found.push_back(y[2 * i + column]);
          }
          EXPECT_EQ(found, places(line, falling)) << n << " falling " << falling;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

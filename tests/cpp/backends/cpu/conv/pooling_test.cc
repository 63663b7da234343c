// Covers: backends/cpu/conv/pooling_isa.cc backends/cpu/conv/pooling.h
#include "backends/cpu/conv/pooling.h"

#include <limits>
#include <span>

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

template <class T>
struct Parts;
template <>
struct Parts<float> {
  static const cpu::Pools<float>& of(const cpu::PoolTable& table) { return table.f32; }
  static const cpu::RealKernels<float>& of(const cpu::ReferenceKernels& all) { return all.f32; }
};
template <>
struct Parts<double> {
  static const cpu::Pools<double>& of(const cpu::PoolTable& table) { return table.f64; }
  static const cpu::RealKernels<double>& of(const cpu::ReferenceKernels& all) { return all.f64; }
};

template <class T>
class Pooling : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Pooling, Types, );

// Windows of any step, dilation and padding, over numbers among which are ties, both zeros,
// infinities and NaN; operands end at guard pages.
TYPED_TEST(Pooling, EqualsTheReferenceToTheBit) {
  using T = TypeParam;
  std::mt19937_64 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const T inf = std::numeric_limits<T>::infinity();
  const T special[] = {T(0), T(-0.0), inf, -inf, std::numeric_limits<T>::quiet_NaN(), T(1)};
  for (int run = 0; run < 400; ++run) {
    ref_pool2d_dims d{};
    d.planes = pick(1, 3);
    d.h_in = pick(1, 9), d.w_in = pick(1, 70);
    d.kh = pick(1, 4), d.kw = pick(1, 4);
    d.stride_h = pick(1, 3), d.stride_w = pick(1, 4);
    d.dilation_h = pick(1, 2), d.dilation_w = pick(1, 3);
    d.pad_top = pick(0, 5), d.pad_left = pick(0, 5);
    d.h_out = pick(1, 9), d.w_out = pick(1, run % 8 == 0 ? 150 : 40);
    const Guarded<T> x(static_cast<size_t>(d.planes * d.h_in * d.w_in), run % 2 == 0);
    const Guarded<T> y(static_cast<size_t>(d.planes * d.h_out * d.w_out));
    const Guarded<T> dx(x.size()), dy(y.size(), run % 2 == 0);
    fill_random(x, random);
    fill_random(dy, random);
    for (T& value : std::span(x.data(), x.size())) {
      if (random() % 4 == 0) value = special[random() % std::size(special)];
    }
    for (const cpu::Isa isa : supported_isas()) {
      const auto& pools = Parts<T>::of(cpu::pools(isa));
      const auto& reference = Parts<T>::of(cpu::reference_kernels(isa));
      const auto compare = [&](auto expected, auto got) {
        expected(&d, x.data(), y.data(), 0, d.planes);
        const std::vector<T> wanted = y.copy();
        fill_nan(y);
        got(&d, x.data(), y.data(), 1, d.planes);
        got(&d, x.data(), y.data(), 0, 1);
        ASSERT_EQ(first_difference(y.copy(), wanted), -1) << run << " " << cpu::name(isa);
      };
      compare(reference.max_pool2d, pools.max);
      compare(reference.avg_pool2d, pools.average);
      std::fill(dx.data(), dx.data() + dx.size(), T(-7));
      reference.max_pool2d_grad(&d, x.data(), dy.data(), dx.data(), 0, d.planes);
      const std::vector<T> wanted = dx.copy();
      fill_nan(dx);
      pools.max_gradient(&d, x.data(), dy.data(), dx.data(), 1, d.planes);
      pools.max_gradient(&d, x.data(), dy.data(), dx.data(), 0, 1);
      ASSERT_EQ(first_difference(dx.copy(), wanted), -1) << run << " " << cpu::name(isa);
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

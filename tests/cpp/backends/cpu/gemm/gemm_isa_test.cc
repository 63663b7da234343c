// Micro-kernels are tested as products in backends/cpu/gemm/gemm_test.cc; here is packing.
#include "backends/cpu/gemm/gemm_tile.h"
#include "reference/support.h"

namespace mithril::testing_support {
namespace {

#if defined(__x86_64__)

template <class T>
const cpu::GemmParts<T>& parts(cpu::Isa isa) {
  const cpu::GemmFallback& found = isa == cpu::Isa::kAvx512 ? cpu::avx512::kGemm : cpu::avx2::kGemm;
  if constexpr (std::is_same_v<T, float>) {
    return found.f32;
  } else {
    return found.f64;
  }
}

template <class T>
class GemmPack : public ::testing::Test {
 protected:
  void check(cpu::Isa isa, int64_t lanes, int64_t width, int64_t depth, int64_t lane_step,
             int64_t depth_step) {
    const int64_t reach = (lanes - 1) * lane_step + (depth - 1) * depth_step + 1;
    const Guarded<T> from(static_cast<size_t>(reach)), to(static_cast<size_t>(depth * width));
    fill_random(from, random_);
    fill_nan(to);
    parts<T>(isa).pack({from.data(), lane_step, depth_step, lanes, depth, to.data(), width, width});
    std::vector<T> expected;
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t l = 0; l < width; ++l) {
        expected.push_back(l < lanes ? from[l * lane_step + p * depth_step] : T(0));
      }
    }
    ASSERT_EQ(first_difference(to.copy(), expected), -1)
        << static_cast<int>(isa) << ": " << lanes << " of " << width << ", " << depth << " deep";
  }
  std::mt19937_64 random_{5};
};
TYPED_TEST_SUITE(GemmPack, Reals);

TYPED_TEST(GemmPack, PutsLanesSideBySide) {
  for (const cpu::Isa isa : supported_isas()) {
    if (isa == cpu::Isa::kGeneric) continue;
    for (const int64_t depth : {1, 3, 4, 8, 15, 16, 17, 33}) {
      for (int64_t lanes = 1; lanes <= 40; ++lanes) {
        for (const int64_t width : {lanes, (lanes + 15) / 16 * 16}) {
          this->check(isa, lanes, width, depth, 1, lanes + 2);
          this->check(isa, lanes, width, depth, depth + 1, 1);
          this->check(isa, lanes, width, depth, 2 * depth, 2);
          this->check(isa, lanes, width, depth, 1, 1);  // rows that lie in each other
        }
      }
    }
  }
}

#endif

}  // namespace
}  // namespace mithril::testing_support

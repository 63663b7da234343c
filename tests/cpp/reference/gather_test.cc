#include "reference/support.h"

namespace mithril::testing_support {
namespace {

TEST(ReferenceGather, Golden) {
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    const int16_t x[] = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60};  // [2, 3, 2]
    const int32_t index[] = {2, 0, -1};
    int16_t y[12] = {};
    const ref_gather_dims d = {2, 3, 2, 3, -3};
    EXPECT_EQ(kernels.gather_i32(&d, sizeof(int16_t), x, index, y, 0, 6), -1);
    EXPECT_EQ(std::vector<int16_t>(y, y + 12),
              (std::vector<int16_t>{5, 6, 1, 2, 5, 6, 50, 60, 10, 20, 50, 60}));
  }
}

TEST(ReferenceGather, BadIndicesAreReportedAndNeverRead) {
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    const ref_gather_dims d = {1, 2, 1, 4, 0};
    const Guarded<double> x(2), y(4);
    x[0] = 1, x[1] = 2;
    for (const int64_t bad : {int64_t{2}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
      const int64_t index[] = {1, 0, bad, bad};
      EXPECT_EQ(kernels.gather_i64(&d, 8, x.data(), index, y.data(), 0, 4), 2);
      EXPECT_EQ(y.copy(), (std::vector<double>{2, 1, 0, 0}));
      EXPECT_EQ(kernels.gather_i64(&d, 8, x.data(), index, y.data(), 0, 2), -1);
    }
    const int32_t index[] = {0, INT32_MIN, 0, INT32_MAX};
    EXPECT_EQ(kernels.gather_i32(&d, 8, x.data(), index, y.data(), 0, 4), 1);
  }
}

TEST(ReferenceGather, EmptyTableAndEmptyIndex) {
  for (const cpu::Isa isa : supported_isas()) {
    const auto& kernels = cpu::reference_kernels(isa);
    const Guarded<float> none(0), y(1);
    const int64_t index[] = {0};
    const ref_gather_dims no_rows = {1, 0, 1, 1, 0};
    EXPECT_EQ(kernels.gather_i64(&no_rows, 4, none.data(), index, y.data(), 0, 1), 0);
    const ref_gather_dims no_index = {3, 2, 1, 0, 0};
    EXPECT_EQ(kernels.gather_i64(&no_index, 4, none.data(), index, none.data(), 0, 0), -1);
  }
}

}  // namespace
}  // namespace mithril::testing_support

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

TEST(ReferenceMatmulInteger, MultipliesAndWraps) {
  for (const cpu::Isa isa : supported_isas()) {
    ref_matmul_dims d{};
    d.m = 2, d.n = 2, d.k = 2;
    d.a_row = 2, d.a_col = 1, d.b_row = 2, d.b_col = 1, d.c_row = 2, d.c_col = 1;
    const int32_t a[] = {INT32_MAX, 1, -3, 4};
    const int32_t b[] = {2, 5, 1, INT32_MIN};
    int32_t c[4] = {9, 9, 9, 9};
    cpu::reference_kernels(isa).matmul_i32(&d, a, b, c, 0, 2);
    // 2^32 - 2 + 1 = -1; 5 * (2^31 - 1) - 2^31 = 2^33 - 5; -6 + 4; -15 + 4 * -2^31
    EXPECT_EQ(std::vector<int32_t>(c, c + 4), (std::vector<int32_t>{-1, -5, -2, -15}));
    const int64_t e[] = {INT64_MAX, 1, -3, 4};
    const int64_t f[] = {2, 5, 1, INT64_MIN};
    int64_t g[4] = {};
    cpu::reference_kernels(isa).matmul_i64(&d, e, f, g, 0, 2);
    EXPECT_EQ(std::vector<int64_t>(g, g + 4), (std::vector<int64_t>{-1, -5, -2, -15}));
  }
}

}  // namespace
}  // namespace mithril::testing_support

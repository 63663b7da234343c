#include "reference/support.h"

namespace mithril::testing_support {
namespace {

template <class T>
class ReferenceMatmul : public ::testing::Test {};
TYPED_TEST_SUITE(ReferenceMatmul, Reals);

ref_matmul_dims row_major(int64_t m, int64_t n, int64_t k) {
  ref_matmul_dims d{};
  d.m = m, d.n = n, d.k = k;
  d.a_row = k, d.a_col = 1, d.b_row = n, d.b_col = 1, d.c_row = n, d.c_col = 1;
  return d;
}

TYPED_TEST(ReferenceMatmul, Golden) {
  for (const auto& kernels : kernel_builds<TypeParam>()) {
    const TypeParam a[] = {1, 2, 3, 4, 5, 6};
    const TypeParam b[] = {7, 8, 9, 10, 11, 12};
    TypeParam c[4] = {};
    const ref_matmul_dims d = row_major(2, 2, 3);
    kernels.matmul(&d, a, b, c, 0, 2);
    EXPECT_EQ(std::vector<TypeParam>(c, c + 4), (std::vector<TypeParam>{58, 64, 139, 154}));
  }
}

// Row-major, then each operand transposed, all sizes around the widths of the loops.
TYPED_TEST(ReferenceMatmul, EqualsTheOrderWrittenOut) {
  using T = TypeParam;
  std::mt19937_64 random(1);
  for (const auto& kernels : kernel_builds<T>()) {
    for (const int64_t k : {0, 1, 7, 255, 256, 257, 600}) {
      for (const int64_t n : {1, 31, 32, 33, 70}) {
        for (int layout = 0; layout < 4; ++layout) {
          const int64_t m = 3;
          ref_matmul_dims d = row_major(m, n, k);
          if ((layout & 1) != 0) d.a_row = 1, d.a_col = m;
          if ((layout & 2) != 0) d.b_row = 1, d.b_col = k;
          const bool at_end = n % 2 == 0;
          const Guarded<T> a(m * k, at_end), b(k * n, at_end), c(m * n, at_end);
          fill_random(a, random);
          fill_random(b, random);
          fill_nan(c);
          kernels.matmul(&d, a.data(), b.data(), c.data(), 0, 1);
          kernels.matmul(&d, a.data(), b.data(), c.data(), 1, m);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              std::vector<std::pair<T, T>> products;
              for (int64_t p = 0; p < k; ++p) {
                products.push_back({a[i * d.a_row + p * d.a_col], b[p * d.b_row + j * d.b_col]});
              }
              ASSERT_TRUE(same_bits(c[i * n + j], canonical_sum(products)));
              ASSERT_NEAR(c[i * n + j], exact_sum(products), 1e-4);
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(ReferenceMatmul, BatchesBroadcast) {
  using T = TypeParam;
  std::mt19937_64 random(2);
  for (const auto& kernels : kernel_builds<T>()) {
    ref_matmul_dims d = row_major(2, 5, 4);
    d.batch_rank = 2;  // [3, 2]; a lacks the first axis, b the second
    d.batch[0] = 3, d.batch[1] = 2;
    d.a_batch[0] = 0, d.a_batch[1] = 8;
    d.b_batch[0] = 20, d.b_batch[1] = 0;
    d.c_batch[0] = 20, d.c_batch[1] = 10;
    const Guarded<T> a(16), b(60), c(60);
    fill_random(a, random);
    fill_random(b, random);
    kernels.matmul(&d, a.data(), b.data(), c.data(), 0, 12);
    for (int64_t x = 0; x < 3; ++x) {
      for (int64_t y = 0; y < 2; ++y) {
        Guarded<T> one(10);
        const ref_matmul_dims single = row_major(2, 5, 4);
        kernels.matmul(&single, a.data() + 8 * y, b.data() + 20 * x, one.data(), 0, 2);
        const T* part = c.data() + 20 * x + 10 * y;
        EXPECT_EQ(std::vector<T>(part, part + 10), one.copy());
      }
    }
  }
}

// The first block is stored: a sum of -0 stays -0 only if it is not added to +0.
TYPED_TEST(ReferenceMatmul, FirstBlockIsStored) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  for (const auto& kernels : kernel_builds<T>()) {
    const T a[] = {tiny};
    const T b[] = {-tiny};
    T c[] = {1};
    const ref_matmul_dims d = row_major(1, 1, 1);
    kernels.matmul(&d, a, b, c, 0, 1);
    EXPECT_EQ(c[0], 0);
    EXPECT_TRUE(std::signbit(c[0]));
  }
}

TYPED_TEST(ReferenceMatmul, ZeroSizes) {
  using T = TypeParam;
  for (const auto& kernels : kernel_builds<T>()) {
    const Guarded<T> none(0), c(6);
    fill_nan(c);
    ref_matmul_dims d = row_major(2, 3, 0);
    kernels.matmul(&d, none.data(), none.data(), c.data(), 0, 2);
    EXPECT_EQ(c.copy(), std::vector<T>(6, 0));
    d = row_major(0, 3, 4);
    kernels.matmul(&d, none.data(), none.data(), none.data(), 0, 0);
    d = row_major(2, 0, 4);
    kernels.matmul(&d, none.data(), none.data(), none.data(), 0, 2);
  }
}

}  // namespace
}  // namespace mithril::testing_support

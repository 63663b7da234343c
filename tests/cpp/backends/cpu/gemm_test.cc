#include "backends/cpu/gemm.h"

#include <vector>

#include <gtest/gtest.h>

namespace mithril::cpu {
namespace {

TEST(GemmTiling, CoversEachElementOnce) {
  for (const int64_t m : {0, 1, 83, 84, 85, 500}) {
    for (const int64_t n : {0, 1, 255, 256, 257, 1000}) {
      for (const int threads : {1, 2, 7}) {
        const GemmDims d{m, n, 500, 500, 1, n, 1, n};
        std::vector<int> count(static_cast<size_t>(m * n));
        const GemmTiling tiling = tile_gemm(d, threads);
        for (int64_t unit = 0; unit < tiling.units(); ++unit) {
          const GemmRange range = tiling.range(d, unit);
          ASSERT_LT(range.row_begin, range.row_end);
          ASSERT_LT(range.col_begin, range.col_end);
          for (int64_t i = range.row_begin; i < range.row_end; ++i) {
            for (int64_t j = range.col_begin; j < range.col_end; ++j) {
              ++count[static_cast<size_t>(i * n + j)];
            }
          }
        }
        EXPECT_EQ(count, std::vector<int>(count.size(), 1)) << m << " " << n << " " << threads;
      }
    }
  }
}

TEST(GemmTiling, SmallProductsAreOneUnit) {
  EXPECT_EQ(tile_gemm({32, 10, 32, 32, 1, 10, 1, 10}, 16).units(), 1);
  EXPECT_EQ(tile_gemm({512, 512, 512, 512, 1, 512, 1, 512}, 1).units(), 1);
  EXPECT_GE(tile_gemm({512, 512, 512, 512, 1, 512, 1, 512}, 2).units(), 2);
  EXPECT_GE(tile_gemm({1, 4096, 4096, 4096, 1, 4096, 1, 4096}, 4).units(), 4);
}

}  // namespace
}  // namespace mithril::cpu

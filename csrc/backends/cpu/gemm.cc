#include "backends/cpu/gemm.h"

#include <algorithm>

namespace mithril::cpu {

namespace {

constexpr int64_t kRowStep = 84;                      // a multiple of both tile heights (14 and 6)
constexpr int64_t kColStep = 256;                     // whole panels
constexpr double kSmallestUnit = 2.0 * 64 * 64 * 64;  // flops; about 3 us

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

const GemmKernels& gemm_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kGemm;
  if (isa == Isa::kAvx512) return avx512::kGemm;
#endif
  static_cast<void>(isa);
  return generic::kGemm;
}

GemmRange GemmTiling::range(const GemmDims& dims, int64_t unit) const {
  const int64_t row = unit / col_units * rows;
  const int64_t col = unit % col_units * cols;
  return {row, std::min(dims.m, row + rows), col, std::min(dims.n, col + cols)};
}

GemmTiling tile_gemm(const GemmDims& dims, int threads) {
  GemmTiling tiling;
  if (dims.m == 0 || dims.n == 0) return tiling;
  const double flops = 2.0 * static_cast<double>(dims.m) * static_cast<double>(dims.n) *
                       static_cast<double>(std::max<int64_t>(dims.k, 1));
  const double affordable = std::max(1.0, flops / kSmallestUnit);
  const auto wanted =
      static_cast<int64_t>(std::min(affordable, threads == 1 ? 1.0 : 4.0 * threads));
  // Rows first: B is then packed once for all columns of a unit.
  const int64_t row_units = std::min(wanted, ceil_div(dims.m, kRowStep));
  tiling.rows = ceil_div(dims.m, row_units);
  if (row_units > 1) tiling.rows = ceil_div(tiling.rows, kRowStep) * kRowStep;
  tiling.row_units = ceil_div(dims.m, tiling.rows);
  const int64_t left = ceil_div(wanted, tiling.row_units);
  const int64_t col_units = std::min(left, ceil_div(dims.n, kColStep));
  tiling.cols = ceil_div(dims.n, col_units);
  if (col_units > 1) tiling.cols = ceil_div(tiling.cols, kColStep) * kColStep;
  tiling.col_units = ceil_div(dims.n, tiling.cols);
  return tiling;
}

}  // namespace mithril::cpu

// What products with packed weights are put together from, on one instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mithril::cpu {

/// A core::PackedMatrix as kernels see it.
struct PackedPanels {
  const std::byte* data;
  int64_t panel_bytes, scale_bytes;
  int64_t depth;    // rows of the matrix: k of the product
  int64_t columns;  // of the product: n
};

/// y[rows, n] = x[rows, k] W for the columns of panels [begin, end). Steps in elements. Each panel
/// is read from memory once. In each block of 32, row r is added to sum r mod 4 by fused
/// multiply-adds from 0; (sum 0 + sum 1) + (sum 2 + sum 3), times the scales, is added to the
/// result: equal bits on every instruction set.
struct PanelProduct {
  PackedPanels weights;
  const float* x;
  int64_t x_step, rows;
  float* y;
  int64_t y_step;
  int64_t begin, end;
};

/// to[row][column] = what stands for W, of panels [panel_begin, panel_end) and whole blocks
/// [block_begin, block_end).
struct PanelExpansion {
  PackedPanels weights;
  int64_t panel_begin, panel_end, block_begin, block_end;
  float* to;
  int64_t to_step;
};

/// Matrices as products of bfloat16 take them: whole tiles of 16 rows and 32 columns, zeros
/// outside.
struct Rounding {
  const float* x;
  int64_t x_step, rows, depth;
  uint16_t* to;
  int64_t to_step;
};

/// y[rows, n] = x[rows, k] W for the columns of panels [begin, end) of bfloat16.
struct RoundedProduct {
  PackedPanels weights;
  const uint16_t* x;  // as Rounding leaves it
  int64_t x_step, rows;
  float* y;
  int64_t y_step;
  int64_t begin, end;
};

/// By core::WeightFormat.
struct LowPrecisionParts {
  void (*multiply[4])(const PanelProduct&);
  void (*expand[4])(const PanelExpansion&);
  void (*round_rows)(const Rounding&);                 // null without a BFloatUnit
  void (*multiply_rounded[2])(const RoundedProduct&);  // by BFloatUnit, from kPairs
};

namespace generic {
extern const LowPrecisionParts kLowPrecision;
}
#if defined(__x86_64__)
namespace avx2 {
extern const LowPrecisionParts kLowPrecision;
}
namespace avx512 {
extern const LowPrecisionParts kLowPrecision;
}
#endif

}  // namespace mithril::cpu

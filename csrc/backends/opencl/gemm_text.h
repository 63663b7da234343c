// The text of a product in register tiles: what matrix products and convolutions share.
#pragma once
#include <cstdint>
#include <string>

#include "core/dtype.h"

namespace mithril::opencl {

/// C = A B with `m` rows, `k` places and `n` columns, many times. Texts are expressions of OpenCL C
/// with the names below in them; offsets are in elements.
struct GemmText {
  core::DType dtype = core::DType::kFloat32;  // or float64
  int64_t batches = 1, m = 0, n = 0, k = 0;
  /// Statements that declare at_a, at_b and at_c, where the matrices of a `batch` begin.
  std::string begins;
  std::string left = "a0";      // A; its matrices begin at `at_a`
  std::string left_row;         // of A: offset of row `i`
  std::string left_place;       // of A: offset of place `p`
  bool left_is_affine = false;  // whether `left_place` is a product: else it is kept in a table
  /// Statements that fill `panel`, rows of kPanelColumns elements: places [p, p + depth), columns
  /// [j, j + columns), zeros behind those.
  std::string pack;
  int64_t c_row = 0;  // of C, which is a2: between rows; columns lie side by side
};

/// Columns of a panel; elements of a vector, of which a panel has two.
int64_t gemm_panel_columns(core::DType dtype);

/// Rows of a unit of the work.
inline constexpr int64_t kGemmRows = 256;

/// Units of the work: rows [.., .. + kGemmRows) of a panel of a batch.
int64_t gemm_units(const GemmText& gemm);

/// The body of a function of the operands (the result is a2), begin and end, which does the units
/// [begin, end) in canonical order: blocks of 256 places, fma after fma from +0; the first block's
/// sums are stored, the others are added.
std::string print_gemm(const GemmText& gemm);

}  // namespace mithril::opencl

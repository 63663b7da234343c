// Matrix products and convolutions as one thing, which each language prints in its own way.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "plan/steps.h"
#include "select/kernel_def.h"

namespace mithril::device {

using select::KernelRequest;

/// Planes whose elements are gathered: tap (c, i, j) of position (y, x) of the result is element
/// (y * row_step + i * tap_row + row, x * column_step + j * tap_column + column) of plane c.
struct Taps {
  const char* operand = "";
  int64_t h = 0, w = 0, kh = 0, kw = 0, width = 0;  // of planes, of windows, of rows of the result
  int64_t row_step = 0, column_step = 0, tap_row = 0, tap_column = 0, row = 0, column = 0;
};

/// C = A B with `m` rows, `k` places and `n` columns, many times. Texts are expressions of C with
/// the names below in them; offsets are in elements. C is behind A, B and bias.
struct Product {
  /// Says what element of its operand stands at place `p` and column `j` of B.
  enum class Right : uint8_t {
    kMatrix,     // of a1, p * b_row + j * b_col
    kTaps,       // of `taps`: places are taps, columns positions (y, x)
    kPositions,  // of `taps`: places are positions (n, y, x), columns taps
  };
  core::DType dtype = core::DType::kFloat32;  // of sums; or float64
  /// Functions that make float32 of an element of A or B, and an element of C of a sum, for halves
  /// (of matrices, in CUDA); empty: they are of `dtype`.
  std::string widen, round;
  /// A row of elements as those of A, which each row of sums grows by; empty: none.
  std::string bias;
  int64_t batches = 1, m = 0, n = 0, k = 0;
  /// Statements that declare at_a, at_b and at_c, where the matrices of a `batch` begin.
  std::string begins;
  std::string left = "a0";      // A; its matrices begin at `at_a`
  std::string left_row;         // of A: offset of row `i`
  std::string left_place;       // of A: offset of place `p`
  bool left_is_affine = false;  // whether `left_place` is a product
  Right right = Right::kMatrix;
  int64_t b_row = 0, b_col = 0;
  Taps taps;
  int64_t image = 0, height = 0;  // of kPositions: from image to image; rows of the result
  int64_t c_row = 0;              // of C: between rows
  std::string c_column;           // of C: offset of `column`; empty: they lie side by side
  bool has_epilogue = false;      // M_FINISH(from, count); stands behind what is finished
};

Product matmul_product(const KernelRequest& request);
Product conv2d_product(const KernelRequest& request);
/// Positions of the input that are a stride apart meet the same taps: a product for each such
/// phase, one of all where strides are 1. Phases differ in k, n, left_place, taps and c_column.
std::vector<Product> conv2d_dx_products(const KernelRequest& request);
Product conv2d_dw_product(const KernelRequest& request);

bool fits_matmul(const KernelRequest& request);
bool fits_conv2d(const KernelRequest& request);
bool fits_conv2d_dx(const KernelRequest& request);
bool fits_conv2d_dw(const KernelRequest& request);
/// Tells whether the gradient's elements that are made together lie side by side.
bool fits_conv2d_dx_side_by_side(const KernelRequest& request);

/// Products in a language: the body of a function of the operands, begin and end, which does the
/// units [begin, end) in canonical order: blocks of 256 places, fma after fma from +0; the first
/// block's sums are stored, the others are added.
struct ProductText {
  std::string memory;  // declarations before the text
  std::string text;
  std::vector<plan::SharedArray> shared = {};  // by the threads of the tile
};

/// Says how a language does one product, or the phases of one, in a tile, whose threads do a unit
/// together.
struct ProductLanguage {
  ProductText (*print)(std::span<const Product> products, const plan::RegisterTile& tile);
  int64_t (*units)(std::span<const Product> products, const plan::RegisterTile& tile);
  plan::RegisterTile tile = {};  // whose units are told of a step
};

/// The epilogue of a request. Operands of the step: the inputs that are present, such as A and B,
/// and C, then those of the epilogue but for C.
std::shared_ptr<const plan::Finish> finish_of(const KernelRequest& request);

/// A step that does one product, or the phases of one.
plan::Step product_step(const KernelRequest& request, std::vector<Product> products,
                        const ProductLanguage& language);

/// The rows of a language. `name`: by op, as people see it.
template <const ProductLanguage& kLanguage>
struct ProductRows {
  template <Product (*kDescribe)(const KernelRequest&)>
  static core::Result<plan::Step> make(const KernelRequest& request) {
    return product_step(request, {kDescribe(request)}, kLanguage);
  }
  static core::Result<plan::Step> make_dx(const KernelRequest& request) {
    return product_step(request, conv2d_dx_products(request), kLanguage);
  }
  static constexpr auto kCanonical = select::OrderClass::kCanonical;
  static constexpr auto kBlocks = select::EpilogueSupport::kBlocks;
  static constexpr select::KernelDef matmul(const char* name) {
    return {"matmul",
            name,
            kCanonical,
            false,
            {fits_matmul, "elements of float32 or float64, at most 16 axes"},
            make<matmul_product>,
            kBlocks};
  }
  static constexpr select::KernelDef conv2d(const char* name) {
    return {"conv2d",
            name,
            kCanonical,
            true,
            {fits_conv2d, "elements of float32 or float64, and some"},
            make<conv2d_product>,
            kBlocks};
  }
  /// Two rows: the first is for gradients without strides, which take epilogues.
  static constexpr std::array<select::KernelDef, 2> conv2d_dx(const char* name) {
    select::KernelDef strided = {
        "conv2d_dx",
        name,
        kCanonical,
        true,
        {fits_conv2d_dx, "elements of float32 or float64, some, and strides of at most 4"},
        make_dx};
    select::KernelDef plain = strided;
    plain.matches = {fits_conv2d_dx_side_by_side,
                     "elements of float32 or float64, some, and no strides"};
    plain.epilogue_support = kBlocks;
    return {plain, strided};
  }
  static constexpr select::KernelDef conv2d_dw(const char* name) {
    return {"conv2d_dw",
            name,
            kCanonical,
            true,
            {fits_conv2d_dw, "elements of float32 or float64, and some"},
            make<conv2d_dw_product>,
            kBlocks};
  }
};

}  // namespace mithril::device

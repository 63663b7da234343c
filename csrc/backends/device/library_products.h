// Matrix products and convolutions that a library of the device does, with what runs on their
// elements behind it.
#pragma once
#include <optional>

#include "backends/device/products.h"

namespace mithril::device {

/// Tells whether elements of a matrix with these strides lie side by side in rows that do not
/// overlap.
inline bool lies_by_rows(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  return (columns == 1 || column == 1) && (rows == 1 || row >= columns);
}

/// The product of a node of op matmul, widening_matmul or biased_matmul, where a library can do it:
/// floats of one type, some, whose rows or columns lie side by side, and batches that are a stride
/// apart. Halves are multiplied and added in float32, and rounded once, or stay float32.
std::optional<plan::LibraryMatmul> library_matmul(const KernelRequest& request);

/// The convolution of a node of op conv2d, conv2d_dx or conv2d_dw, where a library can do it:
/// floats of one type that fit kernels, too (halves: as float32), and as many zeros on either side
/// of an image.
std::optional<plan::LibraryConv2d> library_conv2d(const KernelRequest& request);

/// A step in which the library does the product, and a kernel of the language where the library
/// says that it cannot (but for convolutions of halves, which no kernel does). To a product of
/// matrices (but of halves) the library adds a bias, a matrix that lies as the result does, or both
/// in its own order where that is all of the epilogue; a kernel does any other, on each element.
plan::Step library_step(const KernelRequest& request, plan::LibraryMatmul product,
                        const ProductLanguage& language);
plan::Step library_step(const KernelRequest& request, const plan::LibraryConv2d& product,
                        const ProductLanguage& language);

}  // namespace mithril::device

// The epilogue of a convolution, as its kernels call it.
#pragma once
#include "backends/cpu/gemm/product_epilogue.h"

namespace mithril::cpu {

/// Finished results of one image: some filters, some rows.
struct ImageBlock {
  int64_t image;
  int64_t filter, filters;  // the first one, how many
  int64_t row, rows;
};

/// A tile program on blocks of a result [image, filter, row, column]. Immutable, shared by threads.
class ImageEpilogue {
 public:
  /// The result is the step's buffer `result`; the program's other operands are those behind it, in
  /// order.
  static core::Result<ImageEpilogue> make(const select::Epilogue& epilogue, size_t result,
                                          Isa isa = default_isa());

  /// Counts the bytes that functions here want as scratch, 64-byte aligned; not cleared.
  size_t scratch_bytes() const { return product_.scratch_bytes(); }

  /// Rows follow one another in all operands, so that any positions of an image may be a block.
  bool takes_positions() const { return takes_positions_; }
  /// For a product [filters, positions] of one image that begins there, if takes_positions().
  template <class T>
  Epilogue<T> of_product(void* const* buffers, int64_t image, int64_t filter, int64_t position,
                         void* scratch) const {
    return {ProductEpilogue::run<T>, product_.prepare(buffers, &image, scratch, filter, position)};
  }

  void run(void* const* buffers, const ImageBlock& block, void* scratch) const;

 private:
  ImageEpilogue(ProductEpilogue product, int64_t width, bool takes_positions)
      : product_(std::move(product)), width_(width), takes_positions_(takes_positions) {}

  ProductEpilogue product_;  // of [image] filters, positions, or of [image, row] filters, columns
  int64_t width_;
  bool takes_positions_;
};

}  // namespace mithril::cpu

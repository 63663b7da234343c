// The epilogue of a matrix product, as its loop nest calls it.
#pragma once
#include <vector>

#include "backends/cpu/block_loop.h"
#include "backends/cpu/gemm.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// A tile program on blocks of C, which is [batch..., rows, cols] without the rows or the columns
/// of a vector. A single column is taken as a row. Immutable, shared by threads.
class ProductEpilogue {
 public:
  /// C is the step's buffer `product`; the program's other operands are those behind it, in order.
  static core::Result<ProductEpilogue> make(const select::Epilogue& epilogue, size_t batch_rank,
                                            bool is_column, size_t product,
                                            Isa isa = default_isa());

  size_t scratch_bytes() const;

  /// What run() wants for the matrix of that index in the batch, whose rows and columns it counts
  /// from `row` and `col`. Lives in `scratch`, which is 64-byte aligned.
  const EpiArgs* prepare(void* const* buffers, const int64_t* index, void* scratch, int64_t row = 0,
                         int64_t col = 0) const;

  template <class T>
  static void run(const EpiArgs* args, T*, int64_t, int64_t rows, int64_t cols, int64_t row0,
                  int64_t col0) {
    run_block(*args, rows, cols, row0, col0);
  }

 private:
  struct Operand {
    size_t buffer;
    int64_t size;  // bytes of an element
    BlockStrides strides;
    std::vector<int64_t> batch;  // strides
  };

  ProductEpilogue(BlockLoop loop, std::vector<Operand> operands, bool is_column)
      : loop_(std::move(loop)), operands_(std::move(operands)), is_column_(is_column) {}
  static void run_block(const EpiArgs& args, int64_t rows, int64_t cols, int64_t row0,
                        int64_t col0);

  BlockLoop loop_;
  std::vector<Operand> operands_;
  bool is_column_;
};

}  // namespace mithril::cpu

// The epilogue of a matrix product, as its loop nest calls it.
#pragma once
#include <vector>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/loops/block_loop.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// A tile program on blocks of C, which is [batch..., rows, cols] without the rows or the columns
/// of a vector. A single column is taken as a row. Immutable, shared by threads.
class ProductEpilogue {
 public:
  /// C is the step's buffer `product`; the program's other operands are those behind it, in order.
  /// Where C is in scratch it is none of the step's: `product` is the one before the operands.
  static core::Result<ProductEpilogue> make(const select::Epilogue& epilogue, size_t batch_rank,
                                            bool is_column, size_t product,
                                            Isa isa = default_isa());

  size_t scratch_bytes() const;

  /// Prepares what run() wants for the matrix of that index in the batch, whose rows and columns it
  /// counts from `row` and `col`; its part of C may lie elsewhere, at `part`. Lives in `scratch`,
  /// which is 64-byte aligned.
  const EpiArgs* prepare(void* const* buffers, const int64_t* index, void* scratch, int64_t row = 0,
                         int64_t col = 0, void* part = nullptr) const;

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

  ProductEpilogue(BlockLoop loop, std::vector<Operand> operands, size_t result, bool is_column)
      : loop_(std::move(loop)),
        operands_(std::move(operands)),
        result_(result),
        is_column_(is_column) {}
  static void run_block(const EpiArgs& args, int64_t rows, int64_t cols, int64_t row0,
                        int64_t col0);

  BlockLoop loop_;
  std::vector<Operand> operands_;
  size_t result_;  // which operand C is
  bool is_column_;
};

}  // namespace mithril::cpu

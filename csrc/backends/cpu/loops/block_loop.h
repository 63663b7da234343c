// A pointwise tile program on blocks of rows x columns, wherever they lie: what a kernel runs on
// its result a block at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/loops/interpreter.h"

namespace mithril::cpu {

/// Tells where an operand's elements lie, in elements of its type; row operands have no columns,
/// uniform ones neither.
struct BlockStrides {
  int64_t row = 0, col = 0;
};

/// Ready to run: immutable, shared by threads. Bits are those of the program in any other loop.
class BlockLoop {
 public:
  /// `operands`: inputs, then outputs. The program has no reductions and reads no positions.
  BlockLoop(std::shared_ptr<const TileKernel> kernel, std::span<const BlockStrides> operands);

  /// Counts the bytes that `run` wants, 64-byte aligned; not cleared.
  size_t scratch_bytes() const { return scratch_bytes_; }
  /// Machine code reads and writes operands in place; else blocks are gathered and scattered.
  bool is_in_place() const { return in_place_; }

  /// `buffers`: of each operand the element of the block's first row and column. An output may lie
  /// exactly on an input as TileKernel::can_alias says.
  void run(void* const* buffers, int64_t rows, int64_t cols, void* scratch) const;

 private:
  bool fits_in_place() const;
  void make_params();
  int64_t flags(size_t operand, int64_t cols) const;

  std::shared_ptr<const TileKernel> kernel_;
  std::vector<BlockStrides> strides_;
  std::vector<int64_t> sizes_;  // bytes of an element of each
  bool in_place_ = false;
  int64_t most_points_ = 0, most_cols_ = 0;
  std::vector<int64_t> params_;  // of a block as large as can be
  size_t pointers_at_ = 0, loop_at_ = 0, scratch_bytes_ = 0;
};

}  // namespace mithril::cpu

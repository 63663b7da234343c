#include "backends/cpu/gemm/product_epilogue.h"

#include <new>

#include "core/rounding.h"

namespace mithril::cpu {

/// One matrix: where its operands begin, room for where those of a block do.
struct EpiArgs {
  const ProductEpilogue* epilogue;
  char** begins;
  char** block;
  void* scratch;
};

namespace {

constexpr int64_t kLine = 64;

BlockStrides strides_of(const select::Operand& operand, size_t batch_rank, bool is_column) {
  const std::vector<int64_t>& s = operand.strides;
  const bool is_vector = s.size() - batch_rank == 1;
  if (is_vector) return {0, s.back()};
  if (is_column) return {0, s[batch_rank]};
  return {s[batch_rank], s[batch_rank + 1]};
}

size_t head_bytes(size_t operands) {
  return static_cast<size_t>(
      core::round_up(static_cast<int64_t>(sizeof(EpiArgs) + 2 * operands * sizeof(char*)), kLine));
}

}  // namespace

core::Result<ProductEpilogue> ProductEpilogue::make(const select::Epilogue& epilogue,
                                                    size_t batch_rank, bool is_column,
                                                    size_t product, Isa isa) {
  MITHRIL_ASSIGN(auto kernel, TileKernel::make(epilogue.program, isa));
  std::vector<Operand> operands;
  std::vector<BlockStrides> strides;
  size_t next = product + 1;
  for (size_t k = 0; k < epilogue.operands.size(); ++k) {
    const select::Operand& from = epilogue.operands[k];
    const auto batch_end = from.strides.begin() + static_cast<int64_t>(batch_rank);
    strides.push_back(strides_of(from, batch_rank, is_column));
    operands.push_back({k == epilogue.result ? product : next++,
                        static_cast<int64_t>(core::size_of(from.dtype)),
                        strides.back(),
                        {from.strides.begin(), batch_end}});
  }
  return ProductEpilogue(BlockLoop(std::move(kernel), strides), std::move(operands),
                         epilogue.result, is_column);
}

size_t ProductEpilogue::scratch_bytes() const {
  return head_bytes(operands_.size()) + loop_.scratch_bytes();
}

const EpiArgs* ProductEpilogue::prepare(void* const* buffers, const int64_t* index, void* scratch,
                                        int64_t row, int64_t col, void* part) const {
  auto* const bytes = static_cast<char*>(scratch);
  auto** const begins = reinterpret_cast<char**>(bytes + sizeof(EpiArgs));
  for (size_t k = 0; k < operands_.size(); ++k) {
    const Operand& operand = operands_[k];
    int64_t offset = row * operand.strides.row + col * operand.strides.col;
    for (size_t axis = 0; axis < operand.batch.size(); ++axis) {
      offset += index[axis] * operand.batch[axis];
    }
    begins[k] = static_cast<char*>(buffers[operand.buffer]) + offset * operand.size;
  }
  if (part != nullptr) begins[result_] = static_cast<char*>(part);
  return new (scratch)
      EpiArgs{this, begins, begins + operands_.size(), bytes + head_bytes(operands_.size())};
}

void ProductEpilogue::run_block(const EpiArgs& args, int64_t rows, int64_t cols, int64_t row0,
                                int64_t col0) {
  const ProductEpilogue& self = *args.epilogue;
  if (self.is_column_) {
    std::swap(rows, cols);
    std::swap(row0, col0);
  }
  for (size_t k = 0; k < self.operands_.size(); ++k) {
    const Operand& operand = self.operands_[k];
    const int64_t offset = row0 * operand.strides.row + col0 * operand.strides.col;
    args.block[k] = args.begins[k] + offset * operand.size;
  }
  self.loop_.run(reinterpret_cast<void* const*>(args.block), rows, cols, args.scratch);
}

}  // namespace mithril::cpu

#include "backends/cpu/conv/image_epilogue.h"

#include <algorithm>

namespace mithril::cpu {
namespace {

// Strides and sizes of rows and columns, in [image, filter, row, column].
constexpr size_t kRow = 2, kColumn = 3;

bool has_one_step(const select::Operand& operand) {
  const int64_t height = operand.shape[kRow], width = operand.shape[kColumn];
  return height == 1 || width == 1 || operand.strides[kRow] == operand.strides[kColumn] * width;
}

std::vector<int64_t> by_positions(const select::Operand& operand) {
  const std::vector<int64_t>& s = operand.strides;
  return {s[0], s[1], operand.shape[kColumn] == 1 ? s[kRow] : s[kColumn]};
}

std::vector<int64_t> by_rows(const select::Operand& operand) {
  const std::vector<int64_t>& s = operand.strides;
  return {s[0], s[kRow], s[1], s[kColumn]};
}

}  // namespace

core::Result<ImageEpilogue> ImageEpilogue::make(const select::Epilogue& epilogue, size_t result,
                                                Isa isa) {
  std::vector<select::Operand> operands(epilogue.operands.begin(), epilogue.operands.end());
  const bool takes_positions = std::ranges::all_of(operands, has_one_step);
  for (select::Operand& operand : operands) {
    operand.strides = takes_positions ? by_positions(operand) : by_rows(operand);
  }
  const select::Epilogue of_product{epilogue.program, operands, epilogue.result};
  const size_t batch_rank = takes_positions ? 1 : 2;
  MITHRIL_ASSIGN(auto product, ProductEpilogue::make(of_product, batch_rank, false, result, isa));
  return ImageEpilogue(std::move(product), operands[0].shape[kColumn], takes_positions);
}

void ImageEpilogue::run(void* const* buffers, const ImageBlock& block, void* scratch) const {
  constexpr float* kInPlace = nullptr;  // blocks are found by their row and column
  if (takes_positions_) {
    const EpiArgs* const args = product_.prepare(buffers, &block.image, scratch);
    ProductEpilogue::run(args, kInPlace, 0, block.filters, block.rows * width_, block.filter,
                         block.row * width_);
    return;
  }
  for (int64_t row = block.row; row < block.row + block.rows; ++row) {
    const int64_t index[] = {block.image, row};
    const EpiArgs* const args = product_.prepare(buffers, index, scratch);
    ProductEpilogue::run(args, kInPlace, 0, block.filters, width_, block.filter, 0);
  }
}

}  // namespace mithril::cpu

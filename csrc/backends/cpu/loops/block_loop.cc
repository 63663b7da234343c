#include "backends/cpu/loops/block_loop.h"

#include <algorithm>

#include "backends/cpu/jit/compile.h"
#include "backends/cpu/loops/tile_code.h"
#include "backends/cpu/schedule/schedule.h"
#include "core/rounding.h"

namespace mithril::cpu {

using tile::Level;

namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kMostRows = 256;
constexpr int64_t kBlockBytes = 16 * 1024;  // of gathered lanes: half of the first cache
constexpr int64_t kFewestPoints = 256, kMostPoints = 2048;
constexpr int64_t kUnlimited = int64_t{1} << 40;

int64_t lane_bytes(const TileSchedule& schedule) {
  int64_t bytes = 1;
  for (const Slot& slot : schedule.slots) bytes += slot.level == Level::kLane ? slot.size : 0;
  return bytes;
}

}  // namespace

BlockLoop::BlockLoop(std::shared_ptr<const TileKernel> kernel,
                     std::span<const BlockStrides> operands)
    : kernel_(std::move(kernel)), strides_(operands.begin(), operands.end()) {
  const tile::Program& program = kernel_->code().program;
  MITHRIL_CHECK(!tile::reads_position(program), "a block does not know its place");
  for (const core::DType dtype : program.inputs) {
    sizes_.push_back(static_cast<int64_t>(core::size_of(dtype)));
  }
  for (const core::DType dtype : program.outputs) {
    sizes_.push_back(static_cast<int64_t>(core::size_of(dtype)));
  }
  MITHRIL_CHECK(sizes_.size() == strides_.size(), "strides of {} operands for {}", strides_.size(),
                sizes_.size());
  in_place_ = fits_in_place();
  make_params();
}

bool BlockLoop::fits_in_place() const {
  const TileKernel::Code& code = kernel_->code();
  const auto inputs = code.program.inputs.size();
  for (size_t k = 0; k < strides_.size(); ++k) {
    const auto at = static_cast<uint32_t>(k < inputs ? k : k - inputs);
    const Level level =
        k < inputs ? tile::input_level(code.program, at) : tile::output_level(code.program, at);
    if (level == Level::kLane && strides_[k].col != 1) return false;
  }
  return code.compiles_blocks && cpu::is_in_place(code.schedule(Layout::kBlock, false));
}

// One dim of rows, one of columns; none is merged or dropped.
void BlockLoop::make_params() {
  const TileKernel::Code& code = kernel_->code();
  LoopHeader header{};
  const Mode mode = in_place_ || code.compiles ? Mode::kCompiled : Mode::kInterpreted;
  const Layout layout = in_place_ ? Layout::kBlock : Layout::kRowInside;
  const TileSchedule& schedule = code.schedule(layout, false, mode);
  most_points_ = in_place_ ? kUnlimited
                           : std::clamp(kBlockBytes / lane_bytes(schedule) / kLine * kLine,
                                        kFewestPoints, kMostPoints);
  header.layout = static_cast<int64_t>(layout);
  header.mode = static_cast<int64_t>(mode);
  header.kept_dims = header.reduced_dims = 1;
  header.operands = static_cast<int64_t>(strides_.size()) + kPseudoCount;
  params_.assign(static_cast<size_t>(kHeaderWords) + 2, 0);
  for (const BlockStrides& strides : strides_) {
    params_.insert(params_.end(), {0, strides.row, strides.col});
  }
  params_.insert(params_.end(), size_t{3} * kPseudoCount, 0);
  auto offset = core::round_up(static_cast<int64_t>(schedule.slots.size()) * 16, kLine);
  for (const Slot& slot : schedule.slots) {
    params_.push_back(offset);
    const int64_t lanes = in_place_ ? 0 : most_points_;
    const int64_t count = slot.level == Level::kUniform ? 1
                          : slot.level == Level::kRow   ? kMostRows
                                                        : lanes;
    offset += core::round_up(count * slot.size, kLine);
  }
  header.state_offset = offset;
  std::copy_n(reinterpret_cast<const int64_t*>(&header), kHeaderWords, params_.begin());
  pointers_at_ =
      static_cast<size_t>(core::round_up(static_cast<int64_t>(params_.size()) * 8, kLine));
  loop_at_ = pointers_at_ +
             static_cast<size_t>(core::round_up(static_cast<int64_t>(strides_.size()) * 8, kLine));
  scratch_bytes_ = loop_at_ + static_cast<size_t>(core::round_up(offset, kLine));
}

int64_t BlockLoop::flags(size_t operand, int64_t cols) const {
  const BlockStrides& strides = strides_[operand];
  int64_t out = 0;
  if (strides.col == 1) out |= kInnerContiguous;
  if (strides.col == 1 && strides.row == cols) out |= kOuterChained;
  if (strides.row == 1) out |= kKeptContiguous;
  return out;
}

void BlockLoop::run(void* const* buffers, int64_t rows, int64_t cols, void* scratch) const {
  if (rows == 0 || cols == 0) return;
  auto* const params = static_cast<int64_t*>(scratch);
  std::copy(params_.begin(), params_.end(), params);
  auto& header = *reinterpret_cast<LoopHeader*>(params);
  auto** const pointers = reinterpret_cast<char**>(static_cast<char*>(scratch) + pointers_at_);
  plan::KernelArgs args{};
  args.buffers = reinterpret_cast<void* const*>(pointers);
  args.params = params;
  args.data = kernel_.get();
  args.scratch = static_cast<char*>(scratch) + loop_at_;
  const int64_t wide = std::min(cols, most_points_);
  const int64_t high = std::min({rows, kMostRows, std::max<int64_t>(1, most_points_ / wide)});
  for (int64_t col = 0; col < cols; col += wide) {
    header.reduced = header.tile_r = params[kHeaderWords + 1] = std::min(wide, cols - col);
    for (size_t k = 0; k < strides_.size(); ++k) {
      params[kHeaderWords + 2 + 3 * static_cast<int64_t>(k)] = flags(k, header.reduced);
    }
    for (int64_t row = 0; row < rows; row += high) {
      header.kept = header.tile_rows = header.unit = params[kHeaderWords] =
          std::min(high, rows - row);
      header.capacity = header.kept * header.reduced;
      for (size_t k = 0; k < strides_.size(); ++k) {
        const int64_t ahead = row * strides_[k].row + col * strides_[k].col;
        pointers[k] = static_cast<char*>(buffers[k]) + ahead * sizes_[k];
      }
      kernel_->function()(args, 0, 1);
    }
  }
}

}  // namespace mithril::cpu

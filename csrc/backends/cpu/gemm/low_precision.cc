#include "backends/cpu/gemm/low_precision.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/reference/kernel_families.h"
#include "core/interrupt.h"
#include "core/rounding.h"

namespace mithril::cpu {
namespace {

using core::PackedMatrix;
using core::WeightFormat;

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kGemmBlock = 256;  // of k: what Gemm::add takes at most

const LowPrecisionParts& parts_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kLowPrecision;
  if (isa == Isa::kAvx512) return avx512::kLowPrecision;
#endif
  static_cast<void>(isa);
  return generic::kLowPrecision;
}

PackedWay choose_way(const PackedMatrix& weights, int64_t rows, const PackedOptions& options) {
  constexpr int64_t kFewestToRound = 8, kFewestToExpand = 16;
  const bool rounds =
      options.unit != BFloatUnit::kNone && weights.format() == WeightFormat::kBFloat16;
  if (rounds && rows >= kFewestToRound) return PackedWay::kRounded;
  return rows < kFewestToExpand ? PackedWay::kFewRows : PackedWay::kExpanded;
}

bool is_cancelled(const std::atomic<bool>* cancel) {
  return core::is_interrupted() || (cancel != nullptr && cancel->load(std::memory_order_relaxed));
}

}  // namespace

PackedProduct::PackedProduct(std::shared_ptr<const PackedMatrix> weights, int64_t rows,
                             const PackedOptions& options)
    : weights_(std::move(weights)),
      parts_(&parts_of(options.isa)),
      isa_(options.isa),
      unit_(options.unit),
      way_(choose_way(*weights_, rows, options)),
      rows_(rows),
      group_(rows) {
  if (way_ == PackedWay::kExpanded) prepare_expanded();
  if (way_ == PackedWay::kRounded) prepare_rounded(options.threads);
  if (way_ == PackedWay::kFewRows) grain_ = grain_of(rows * weights_->rows() * kPanel);
}

void PackedProduct::prepare_expanded() {
  constexpr int64_t kStrip = 8;  // 128 columns: 128 KiB of scratch
  width_ = std::min(kStrip, weights_->panels());
  const int64_t step = width_ * kPanel, k = weights_->rows();
  const int64_t last = weights_->columns() - (strips() - 1) * step;
  size_t gemm_bytes = 0;
  for (const int64_t columns : {std::min(step, weights_->columns()), last}) {
    for (const int64_t depth : {std::min(kGemmBlock, k), (k - 1) % kGemmBlock + 1}) {
      const GemmDims dims = {rows_, columns, depth, k, 1, step, 1, weights_->columns()};
      gemms_.emplace_back(isa_, dims, GemmOptions{.may_add = true});
      gemm_bytes = std::max(gemm_bytes, gemms_.back().scratch_bytes());
    }
  }
  scratch_bytes_ = static_cast<size_t>(kGemmBlock * step) * sizeof(float) + gemm_bytes;
}

void PackedProduct::prepare_rounded(int threads) {
  constexpr int64_t kRoundedBytes = 1 << 20;  // stay in the second cache
  constexpr int64_t kTallest = 32;
  width_ = std::min<int64_t>(8, weights_->panels());
  // 64 bytes more a row: no two rows of a tile in one set of the first cache.
  rounded_step_ = core::round_up(weights_->rows(), PackedMatrix::kBlock) + 32;
  const int64_t most = kRoundedBytes / (rounded_step_ * 2) / kTallest * kTallest;
  group_ = std::min(rows_, std::max(most, kTallest));
  row_groups_ = core::ceil_div(rows_, group_);
  scratch_bytes_ = static_cast<size_t>(core::round_up(group_, kTallest) * rounded_step_ * 2);
  // Each chunk rounds its rows anew, which pays for about a thousand columns.
  grain_ = std::clamp<int64_t>(core::ceil_div(strips(), threads), 1, 8);
}

PackedPanels PackedProduct::panels() const {
  return {weights_->panel(0), weights_->panel_bytes(), weights_->scale_bytes(), weights_->rows(),
          weights_->columns()};
}

int64_t PackedProduct::strips() const { return core::ceil_div(weights_->panels(), width_); }

PackedProduct::Strip PackedProduct::strip(int64_t unit) const {
  const int64_t row = unit / strips() * group_, begin = unit % strips() * width_;
  return {row, std::min(group_, rows_ - row), begin, std::min(begin + width_, weights_->panels())};
}

bool PackedProduct::run(int64_t begin, int64_t end, const float* x, float* y, void* scratch,
                        const std::atomic<bool>* cancel) const {
  if (way_ == PackedWay::kFewRows) {
    parts_->multiply[static_cast<size_t>(weights_->format())](
        {panels(), x, weights_->rows(), rows_, y, weights_->columns(), begin, end});
    return true;
  }
  if (way_ == PackedWay::kRounded) {
    run_rounded(begin, end, x, y, static_cast<uint16_t*>(scratch));
    return true;
  }
  for (int64_t unit = begin; unit < end; ++unit) {
    if (!run_expanded(strip(unit), x, y, static_cast<std::byte*>(scratch), cancel)) return false;
  }
  return true;
}

const Gemm<float>& PackedProduct::gemm_of(int64_t columns, int64_t depth) const {
  const bool last_strip = columns < width_ * kPanel, last_block = depth < kGemmBlock;
  return gemms_[(last_strip ? 2 : 0) + (last_block ? 1 : 0)];
}

bool PackedProduct::run_expanded(const Strip& part, const float* x, float* y, std::byte* scratch,
                                 const std::atomic<bool>* cancel) const {
  const int64_t k = weights_->rows(), step = width_ * kPanel, first = part.begin * kPanel;
  const int64_t columns = std::min(step, weights_->columns() - first);
  auto* const expanded = reinterpret_cast<float*>(scratch);
  void* const rest = scratch + kGemmBlock * step * static_cast<int64_t>(sizeof(float));
  for (int64_t at = 0; at < k; at += kGemmBlock) {
    if (is_cancelled(cancel)) return false;
    const int64_t depth = std::min(kGemmBlock, k - at);
    const int64_t block = at / PackedMatrix::kBlock;
    parts_->expand[static_cast<size_t>(weights_->format())](
        {panels(), part.begin, part.end, block, block + core::ceil_div(depth, PackedMatrix::kBlock),
         expanded, step});
    const Gemm<float>& gemm = gemm_of(columns, depth);
    at == 0 ? gemm.run(x + at, expanded, y + first, rest)
            : gemm.add(x + at, expanded, y + first, rest);
  }
  return true;
}

void PackedProduct::run_rounded(int64_t begin, int64_t end, const float* x, float* y,
                                uint16_t* rounded) const {
  const auto multiply = parts_->multiply_rounded[unit_ == BFloatUnit::kTiles ? 1 : 0];
  const int64_t k = weights_->rows(), n = weights_->columns();
  int64_t rounded_row = -1;
  while (begin < end) {
    Strip part = strip(begin);
    if (rounded_row != part.row) {
      rounded_row = part.row;
      parts_->round_rows({x + part.row * k, k, part.rows, k, rounded, rounded_step_});
    }
    // The further strips of these rows.
    const int64_t next = std::min(end, (begin / strips() + 1) * strips());
    part.end = strip(next - 1).end;
    multiply(
        {panels(), rounded, rounded_step_, part.rows, y + part.row * n, n, part.begin, part.end});
    begin = next;
  }
}

// ---------------------------------------------------------------- steps

namespace {

plan::KernelStatus run_step(const plan::KernelArgs& args, int64_t begin, int64_t end) {
  const auto& product = *static_cast<const PackedProduct*>(args.data);
  const bool done = product.run(begin, end, static_cast<const float*>(args.buffers[0]),
                                static_cast<float*>(args.buffers[2]), args.scratch, args.cancel);
  return done ? plan::KernelStatus::kOk : plan::KernelStatus::kCancelled;
}

core::Result<plan::Step> make_step(const select::KernelRequest& request) {
  const std::shared_ptr<const PackedMatrix>& weights = request.inputs[1].packed;
  int64_t rows = 1;
  for (const int64_t size : request.outputs[0].shape) rows *= size;
  rows /= weights->columns();
  const double flops =
      2.0 * static_cast<double>(rows) * static_cast<double>(weights->rows() * weights->columns());
  PackedOptions options{.threads = request.threads};
  if (request.canonical) options.unit = BFloatUnit::kNone;
  auto product = std::make_shared<PackedProduct>(weights, rows, options);
  plan::Step step;
  step.kernel = run_step;
  step.units = product->units();
  step.grain = product->grain();
  step.scratch_bytes = product->scratch_bytes();
  step.work = {flops, plan::Work::Unit::kFlops};
  step.data = std::move(product);
  return step;
}

template <WeightFormat format>
bool has_weights(const select::KernelRequest& request) {
  const auto& weights = request.inputs[1].packed;
  return weights != nullptr && weights->format() == format &&
         request.outputs[0].dtype == core::DType::kFloat32;
}

constexpr select::Condition kBFloat16(has_weights<WeightFormat::kBFloat16>,
                                      "a right operand kept as bfloat16");
constexpr select::Condition kInt8(has_weights<WeightFormat::kInt8>,
                                  "a right operand kept as blocks of int8");
constexpr select::Condition kInt4(has_weights<WeightFormat::kInt4>,
                                  "a right operand kept as blocks of int4");
constexpr select::Condition kInt16(has_weights<WeightFormat::kInt16>,
                                   "a right operand kept as blocks of int16");
constexpr auto kOther = select::OrderClass::kOther;
const select::KernelDef kKernels[] = {
    {"matmul", "matmul.bfloat16_weights", kOther, true, kBFloat16, make_step,
     select::EpilogueSupport::kNothing, true},
    {"matmul", "matmul.int8_weights", kOther, true, kInt8, make_step,
     select::EpilogueSupport::kNothing, true},
    {"matmul", "matmul.int4_weights", kOther, true, kInt4, make_step,
     select::EpilogueSupport::kNothing, true},
    {"matmul", "matmul.int16_weights", kOther, true, kInt16, make_step,
     select::EpilogueSupport::kNothing, true},
};

}  // namespace

std::span<const select::KernelDef> packed_kernels() { return kKernels; }

}  // namespace mithril::cpu

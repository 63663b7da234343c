// Rows by index: gather, and the sum of rows that is its gradient.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "backends/cpu/gemm/product_epilogue.h"
#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "core/rounding.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

struct Rows {
  ref_gather_dims dims;
  int64_t element;  // bytes
  Isa isa;
};

// Notes the first bad index of this chunk.
template <class Index>
KernelStatus checked(const KernelArgs& args, const Rows& rows, int32_t operand, int64_t bad) {
  if (bad < 0) return KernelStatus::kOk;
  const auto value = static_cast<const Index*>(args.buffers[operand])[bad];
  args.error->report(operand, bad, static_cast<int64_t>(value), rows.dims.bound);
  return KernelStatus::kBadData;
}

template <class Index>
KernelStatus run_gather(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& rows = *static_cast<const Rows*>(args.data);
  const auto& kernels = reference_kernels(rows.isa);
  const auto run = [&] {
    if constexpr (sizeof(Index) == 4) return kernels.gather_i32;
    if constexpr (sizeof(Index) == 8) return kernels.gather_i64;
  }();
  const int64_t bad = run(&rows.dims, rows.element, args.buffers[0],
                          static_cast<const Index*>(args.buffers[1]), args.buffers[2], begin, end);
  return checked<Index>(args, rows, 1, bad);
}

/// Sums of rows that are finished a block at a time.
struct FinishedRows : Rows {
  std::optional<ProductEpilogue> epilogue;
  int64_t block = 1;            // rows
  size_t epilogue_scratch = 0;  // where that of the epilogue begins, behind the block
};

template <class T, class Index>
int64_t sum_rows(const Rows& rows, const KernelArgs& args, T* to, int64_t begin, int64_t end) {
  const auto& all = reference_kernels(rows.isa);
  const auto& kernels = [&]() -> const auto& {
    if constexpr (std::is_same_v<T, float>) return all.f32;
    if constexpr (std::is_same_v<T, double>) return all.f64;
    if constexpr (std::is_same_v<T, uint32_t>) return all.rows_u32;
    if constexpr (std::is_same_v<T, uint64_t>) return all.rows_u64;
  }
  ();
  const auto run = [&] {
    if constexpr (sizeof(Index) == 4) return kernels.gather_grad_i32;
    if constexpr (sizeof(Index) == 8) return kernels.gather_grad_i64;
  }();
  return run(&rows.dims, static_cast<const Index*>(args.buffers[1]),
             static_cast<const T*>(args.buffers[0]), to, begin, end);
}

template <class T, class Index>
KernelStatus run_scatter(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& rows = *static_cast<const Rows*>(args.data);
  T* const to = static_cast<T*>(args.buffers[2]) + begin * rows.dims.inner;
  return checked<Index>(args, rows, 1, sum_rows<T, Index>(rows, args, to, begin, end));
}

// Bad indices are left out: another step refuses them.
template <class T, class Index>
KernelStatus run_finished(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& rows = *static_cast<const FinishedRows*>(args.data);
  auto* const block = static_cast<T*>(args.scratch);
  void* const beside = static_cast<std::byte*>(args.scratch) + rows.epilogue_scratch;
  end = std::min(end, rows.dims.bound);  // an empty table has a unit all the same
  for (int64_t row = begin; row < end; row += rows.block) {
    const int64_t last = std::min(end, row + rows.block);
    sum_rows<T, Index>(rows, args, block, row, last);
    const EpiArgs* const epilogue =
        rows.epilogue->prepare(args.buffers, nullptr, beside, row, 0, block);
    ProductEpilogue::run(epilogue, block, 0, last - row, rows.dims.inner, 0, 0);
  }
  return KernelStatus::kOk;
}

template <class R = Rows>
std::shared_ptr<R> rows_of(const Operand& table, const Operand& indices) {
  auto out = std::make_shared<R>();
  out->dims = select::gather_dims(table.shape, indices.shape);
  out->element = static_cast<int64_t>(core::size_of(table.dtype));
  out->isa = default_isa();
  return out;
}

core::Result<plan::Step> make_gather(const KernelRequest& request) {
  auto rows = rows_of(request.inputs[0], request.inputs[1]);
  plan::Step step;
  step.kernel =
      request.inputs[1].dtype == DType::kInt32 ? run_gather<int32_t> : run_gather<int64_t>;
  step.units = rows->dims.count;
  step.grain = grain_of(rows->dims.inner);
  step.may_fail_on_data = true;
  step.data = std::move(rows);
  return step;
}

template <class T>
plan::KernelFn scatter_kernel(DType index, bool finishes) {
  if (index == DType::kInt32) return finishes ? run_finished<T, int32_t> : run_scatter<T, int32_t>;
  return finishes ? run_finished<T, int64_t> : run_scatter<T, int64_t>;
}

// The rows of a block fill about half of the first cache; each block looks at all indices, which
// should be the smaller part of its work.
core::Status add_epilogue(FinishedRows& rows, const select::Epilogue& epilogue, plan::Step& step) {
  constexpr int64_t kBlockBytes = 16 << 10;
  constexpr size_t kBeforeOperands = 1;  // the indices
  const int64_t inner = std::max<int64_t>(rows.dims.inner, 1);
  rows.block = std::clamp(std::max(kBlockBytes / rows.element, rows.dims.count) / inner, int64_t{1},
                          std::max<int64_t>(rows.dims.bound, 1));
  rows.epilogue_scratch =
      static_cast<size_t>(core::round_up(rows.block * inner * rows.element, 64));
  MITHRIL_ASSIGN(rows.epilogue, ProductEpilogue::make(epilogue, 0, false, kBeforeOperands));
  step.scratch_bytes = rows.epilogue_scratch + rows.epilogue->scratch_bytes();
  return {};
}

core::Result<plan::Step> make_scatter(const KernelRequest& request) {
  auto rows = rows_of<FinishedRows>(request.outputs[0], request.inputs[1]);
  const DType index = request.inputs[1].dtype;
  const bool finishes = request.epilogue != nullptr;
  plan::Step step;
  switch (request.outputs[0].dtype) {
    case DType::kFloat32: step.kernel = scatter_kernel<float>(index, finishes); break;
    case DType::kFloat64: step.kernel = scatter_kernel<double>(index, finishes); break;
    case DType::kInt32: step.kernel = scatter_kernel<uint32_t>(index, finishes); break;
    default: step.kernel = scatter_kernel<uint64_t>(index, finishes);
  }
  if (finishes) MITHRIL_RETURN_IF_ERROR(add_epilogue(*rows, *request.epilogue, step));
  const ref_gather_dims& dims = rows->dims;
  step.units = std::max<int64_t>(dims.bound, 1);      // rows of the table
  const int64_t added = dims.count / step.units + 1;  // to a row, on average
  const int64_t inner = std::max<int64_t>(dims.inner, 1);
  // Each chunk looks at all indices: that should be the smaller part of its work.
  step.grain = std::max(grain_of(inner * (1 + added)), dims.count / inner);
  step.data = std::move(rows);
  return step;
}

const select::KernelDef kKernels[] = {
    {"gather", "gather", select::OrderClass::kCanonical, true, select::kIndices<1>, make_gather},
    {"embedding_grad", "scatter_add", select::OrderClass::kCanonical, true, select::kScatterTypes,
     make_scatter, select::EpilogueSupport::kRows},
};

}  // namespace

std::span<const select::KernelDef> rows_kernels() { return kKernels; }

}  // namespace mithril::cpu

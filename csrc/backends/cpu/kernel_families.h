// What kernels.cc lists: the rows of each family.
#pragma once
#include <algorithm>
#include <span>

#include "select/kernel_def.h"

namespace mithril::cpu {

std::span<const select::KernelDef> attention_kernels();
std::span<const select::KernelDef> axis_kernels();
std::span<const select::KernelDef> cache_kernels();
std::span<const select::KernelDef> fourier_kernels();
std::span<const select::KernelDef> linalg_kernels();
std::span<const select::KernelDef> matmul_kernels();
std::span<const select::KernelDef> movement_kernels();
std::span<const select::KernelDef> packed_kernels();
std::span<const select::KernelDef> rows_kernels();
std::span<const select::KernelDef> window_kernels();

/// For kernels of float32 and float64 alone.
inline bool has_real_type(const select::KernelRequest& request) {
  const core::DType dtype = request.outputs[0].dtype;
  return dtype == core::DType::kFloat32 || dtype == core::DType::kFloat64;
}
inline constexpr select::Condition kRealType(has_real_type, "elements of float32 or float64");

/// Units of one chunk so that a chunk does about `kChunkWork` elementary operations.
inline int64_t grain_of(int64_t work_per_unit) {
  constexpr int64_t kChunkWork = 1 << 18;
  return std::max<int64_t>(1, kChunkWork / std::max<int64_t>(work_per_unit, 1));
}

/// Chunks for work of so many flops, where each chunk does something anew: Ctrl-C is looked at
/// between chunks, at most about 100 ms apart.
inline int64_t fewest_chunks(double flops) {
  constexpr double kChunkFlops = 2e10;
  return 1 + static_cast<int64_t>(flops / kChunkFlops);
}

}  // namespace mithril::cpu

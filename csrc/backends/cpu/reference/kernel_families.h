// What kernels.cc lists: the rows of each family.
#pragma once
#include <span>

#include "select/kernel_rows.h"

namespace mithril::cpu {

std::span<const select::KernelDef> attention_kernels();
std::span<const select::KernelDef> axis_kernels();
std::span<const select::KernelDef> cache_kernels();
std::span<const select::KernelDef> eigen_kernels();
std::span<const select::KernelDef> fourier_kernels();
std::span<const select::KernelDef> lapack_kernels();
std::span<const select::KernelDef> linalg_kernels();
std::span<const select::KernelDef> matmul_kernels();
std::span<const select::KernelDef> movement_kernels();
std::span<const select::KernelDef> packed_kernels();
std::span<const select::KernelDef> rows_kernels();
std::span<const select::KernelDef> window_kernels();

using select::grain_of;
using select::has_real_type;
using select::kRealType;

/// Chunks for work of so many flops, where each chunk does something anew: Ctrl-C is looked at
/// between chunks, at most about 100 ms apart.
inline int64_t fewest_chunks(double flops) {
  constexpr double kChunkFlops = 2e10;
  return 1 + static_cast<int64_t>(flops / kChunkFlops);
}

}  // namespace mithril::cpu

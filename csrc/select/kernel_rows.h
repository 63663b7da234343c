// Helpers of all kernel tables: conditions on element types, and how work is cut into chunks.
#pragma once
#include <algorithm>
#include <cstdint>

#include "select/kernel_def.h"

namespace mithril::select {

inline bool is_real(core::DType dtype) {
  return dtype == core::DType::kFloat32 || dtype == core::DType::kFloat64;
}
inline bool is_index(core::DType dtype) {
  return dtype == core::DType::kInt32 || dtype == core::DType::kInt64;
}

/// For kernels of float32 and float64 alone.
inline bool has_real_type(const KernelRequest& request) {
  return is_real(request.outputs[0].dtype);
}
inline constexpr Condition kRealType(has_real_type, "elements of float32 or float64");

/// For kernels that have an instance for each of these types of the first operand.
inline bool has_number_type(const KernelRequest& request) {
  return is_real(request.inputs[0].dtype) || is_index(request.inputs[0].dtype);
}
inline constexpr Condition kNumberType(has_number_type,
                                       "elements of float32, float64, int32 or int64");

/// For kernels whose operand of that number holds indices.
template <size_t kOperand>
bool has_indices(const KernelRequest& request) {
  return is_index(request.inputs[kOperand].dtype);
}
template <size_t kOperand>
inline constexpr Condition kIndices(has_indices<kOperand>, "indices of int32 or int64");

/// For kernels that add rows up at the places that the second operand names.
inline bool has_scatter_types(const KernelRequest& request) {
  const core::DType dtype = request.outputs[0].dtype;
  return has_indices<1>(request) && dtype != core::DType::kBool && core::widened(dtype) == dtype;
}
inline constexpr Condition kScatterTypes(has_scatter_types,
                                         "elements and indices of 32 or 64 bits");

/// Returns the units of one chunk that does about `kChunkWork` elementary operations.
inline int64_t grain_of(int64_t work_per_unit) {
  constexpr int64_t kChunkWork = 1 << 18;
  return std::max<int64_t>(1, kChunkWork / std::max<int64_t>(work_per_unit, 1));
}

}  // namespace mithril::select

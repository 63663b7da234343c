// Maximum and average over windows, a row of results at a time: equal to the reference kernels to
// the bit.
#pragma once
#include <cstdint>

#include "backends/cpu/machine/cpuid.h"
#include "reference/reference.h"

namespace mithril::cpu {

/// Over the planes [begin, end).
template <class T>
using PoolFn = void (*)(const ref_pool2d_dims*, const T* x, T* y, int64_t begin, int64_t end);

/// Each cotangent goes to the first maximum of its window. Planes have less than 2^31 elements.
template <class T>
using PoolGradientFn = void (*)(const ref_pool2d_dims*, const T* x, const T* dy, T* dx,
                                int64_t begin, int64_t end);

template <class T>
struct Pools {
  PoolFn<T> max, average;
  PoolGradientFn<T> max_gradient;
};
struct PoolTable {
  Pools<float> f32;
  Pools<double> f64;
};

namespace generic {
extern const PoolTable kPools;
}
namespace avx2 {
extern const PoolTable kPools;
}
namespace avx512 {
extern const PoolTable kPools;
}

inline const PoolTable& pools(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kPools;
  if (isa == Isa::kAvx512) return avx512::kPools;
#endif
  return generic::kPools;
}

}  // namespace mithril::cpu

// What one tap of a window sees of planes, copied by one instruction set each.
#pragma once
#include <cstdint>

#include "backends/cpu/machine/cpuid.h"

namespace mithril::cpu {

/// to[c][r][q] = from[c][row + r * row_step][column + q * column_step] inside the planes, else +0.
/// Steps in elements; each plane of the result is contiguous.
template <class T>
struct Tap {
  const T* from;
  int64_t planes, height, width;
  int64_t row, row_step;  // of the result's first row, from one to the next
  int64_t column, column_step;
  T* to;
  int64_t to_step;  // from one plane to the next
  int64_t rows, columns;
};

template <class T>
using TapFn = void (*)(const Tap<T>&);

struct TapTable {
  TapFn<float> f32;
  TapFn<double> f64;
};

namespace generic {
extern const TapTable kTaps;
}
namespace avx2 {
extern const TapTable kTaps;
}
namespace avx512 {
extern const TapTable kTaps;
}

template <class T>
TapFn<T> copy_taps(Isa isa) {
  const TapTable* table = &generic::kTaps;
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) table = &avx2::kTaps;
  if (isa == Isa::kAvx512) table = &avx512::kTaps;
#endif
  if constexpr (sizeof(T) == sizeof(float)) {
    return table->f32;
  } else {
    return table->f64;
  }
}

}  // namespace mithril::cpu

// Conversions between element types as casts define them: one scalar at a time, bits in and out.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "tile/half.h"

namespace mithril::tile {

/// Two bytes, and computed in float32.
inline bool is_half(core::DType dtype) {
  return dtype == core::DType::kFloat16 || dtype == core::DType::kBFloat16;
}

/// Float to integer: truncates, saturates, NaN gives 0.
template <class To, class From>
inline To saturate(From x) {
  // The first float above the range is a power of two, so the comparisons are exact.
  constexpr From above =
      static_cast<From>(uint64_t{1} << (std::numeric_limits<To>::digits - 1)) * From{2};
  constexpr From below = std::is_signed_v<To> ? -above : From{0};
  if (x != x) return 0;
  if (x >= above) return std::numeric_limits<To>::max();
  if (x <= below) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}

/// `value` as an element of `dtype`, in the low bytes; as cast does.
uint64_t bits_of_double(core::DType dtype, double value);
/// `value` wrapped (integers), tested (bool) or rounded once (floats) to `dtype`.
uint64_t bits_of_int(core::DType dtype, int64_t value);

}  // namespace mithril::tile

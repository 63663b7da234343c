// Casts between all element types: saturating from floats, wrapping between integers, rounding once
// to narrower floats.
#include <cstring>
#include <type_traits>

#include "backends/cpu/loops/isa_parts.h"
#include "tile/half.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

using core::DType;

struct Bool {
  uint8_t v;
};
struct Half {
  uint16_t v;
};
struct BFloat {
  uint16_t v;
};

// What an element is read as.
inline uint8_t value_of(Bool x) { return x.v; }
inline float value_of(Half x) { return tile::half_to_float(x.v); }
inline float value_of(BFloat x) { return tile::bfloat_to_float(x.v); }
template <class T>
inline T value_of(T x) {
  return x;
}

// The largest T is 2^digits - 1, which is no float; 2^digits is.
template <class T>
constexpr int kDigits = static_cast<int>(sizeof(T)) * 8 - (std::is_signed_v<T> ? 1 : 0);

template <class T, class F>
inline T saturated(F x) {
  constexpr F above = static_cast<F>(uint64_t{1} << (kDigits<T> - 1)) * F{2};
  constexpr F below = std::is_signed_v<T> ? -above : F{0};
  constexpr T largest = static_cast<T>(~(std::is_signed_v<T> ? uint64_t{1} << kDigits<T> : 0));
  constexpr T smallest = static_cast<T>(std::is_signed_v<T> ? uint64_t{1} << kDigits<T> : 0);
  const bool inside = x > below && x < above;  // false for NaN
  T y = static_cast<T>(inside ? x : F{0});
  y = x >= above ? largest : y;
  return x <= below ? smallest : y;
}

// Integers of 64 bits enter narrow floats through a double rounded to odd.
inline double odd_double(int64_t x) {
  const auto near = static_cast<double>(x);
  if (x > -(int64_t{1} << 53) && x < (int64_t{1} << 53)) return near;
  const uint64_t magnitude = x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  const uint64_t kept = (magnitude >> 10) | ((magnitude & 0x3ff) != 0 ? 1 : 0);
  const double odd = static_cast<double>(kept) * 1024.0;
  return x < 0 ? -odd : odd;
}

template <class T>
inline float for_rounding(T x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else if constexpr (std::is_same_v<T, double>)
    return tile::double_to_float_odd(x);
  else if constexpr (sizeof(T) <= 2)
    return static_cast<float>(x);  // exact
  else if constexpr (sizeof(T) == 4)
    return tile::double_to_float_odd(static_cast<double>(x));
  else
    return tile::double_to_float_odd(odd_double(x));
}

template <class To, class From>
inline To converted(From x) {
  if constexpr (std::is_same_v<To, Bool>)
    return {static_cast<uint8_t>(x != 0)};
  else if constexpr (std::is_same_v<To, Half>)
    return {tile::float_to_half(for_rounding(x))};
  else if constexpr (std::is_same_v<To, BFloat>)
    return {tile::float_to_bfloat(for_rounding(x))};
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>)
    return saturated<To>(x);
  else
    return static_cast<To>(x);
}

template <class To, class From>
void cast(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<To*>(out);
  const auto* x = static_cast<const From*>(a);
  for (int64_t i = 0; i < n; ++i) y[i] = converted<To>(value_of(x[i]));
}

template <class To>
LaneFn find_from(DType from) {
  switch (from) {
    case DType::kBool: return cast<To, Bool>;
    case DType::kUInt8: return cast<To, uint8_t>;
    case DType::kInt8: return cast<To, int8_t>;
    case DType::kInt16: return cast<To, int16_t>;
    case DType::kInt32: return cast<To, int32_t>;
    case DType::kInt64: return cast<To, int64_t>;
    case DType::kFloat16: return cast<To, Half>;
    case DType::kBFloat16: return cast<To, BFloat>;
    case DType::kFloat32: return cast<To, float>;
    case DType::kFloat64: return cast<To, double>;
    default: return nullptr;
  }
}

}  // namespace

LaneFn find_cast(DType to, DType from) {
  switch (to) {
    case DType::kBool: return find_from<Bool>(from);
    case DType::kUInt8: return find_from<uint8_t>(from);
    case DType::kInt8: return find_from<int8_t>(from);
    case DType::kInt16: return find_from<int16_t>(from);
    case DType::kInt32: return find_from<int32_t>(from);
    case DType::kInt64: return find_from<int64_t>(from);
    case DType::kFloat16: return find_from<Half>(from);
    case DType::kBFloat16: return find_from<BFloat>(from);
    case DType::kFloat32: return find_from<float>(from);
    case DType::kFloat64: return find_from<double>(from);
    default: return nullptr;
  }
}

}  // namespace mithril::cpu::MITHRIL_ISA

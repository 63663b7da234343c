// Size arithmetic that cannot wrap: products of dims, byte counts, offsets all go through here.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace mithril::core {

inline std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// floor(a / b); b must not be 0, nor -1 when a is the least integer.
inline int64_t floor_quotient(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

/// Multiplies sizes whose product is known to fit.
inline int64_t product(std::span<const int64_t> sizes) {
  int64_t out = 1;
  for (const int64_t size : sizes) out *= size;
  return out;
}

/// Number of elements of a shape; nullopt on overflow or a negative dim. A zero dim gives 0
/// only when the other dims do not overflow by themselves, as NumPy has it.
inline std::optional<int64_t> element_count(std::span<const int64_t> dims) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return empty ? 0 : count;
}

}  // namespace mithril::core

#include "tile/convert.h"

#include <bit>

namespace mithril::tile {

using core::DType;

uint64_t bits_of_double(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool: return value != 0 ? 1 : 0;
    case DType::kUInt8: return saturate<uint8_t>(value);
    case DType::kInt8: return static_cast<uint8_t>(saturate<int8_t>(value));
    case DType::kInt16: return static_cast<uint16_t>(saturate<int16_t>(value));
    case DType::kInt32: return static_cast<uint32_t>(saturate<int32_t>(value));
    case DType::kInt64: return static_cast<uint64_t>(saturate<int64_t>(value));
    case DType::kFloat16: return float_to_half(double_to_float_odd(value));
    case DType::kBFloat16: return float_to_bfloat(double_to_float_odd(value));
    case DType::kFloat32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    default: return std::bit_cast<uint64_t>(value);
  }
}

// Above 2^53 the conversion to double would round first; sticky bits keep the second one right.
static double int_to_double_odd(int64_t value) {
  const auto near = static_cast<double>(value);
  if (value > -(int64_t{1} << 53) && value < (int64_t{1} << 53)) return near;
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const uint64_t kept = (magnitude >> 10) | ((magnitude & 0x3ff) != 0 ? 1 : 0);
  const double odd = static_cast<double>(kept) * 1024.0;
  return value < 0 ? -odd : odd;
}

uint64_t bits_of_int(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kBool: return value != 0 ? 1 : 0;
    case DType::kUInt8:
    case DType::kInt8: return static_cast<uint8_t>(value);
    case DType::kInt16: return static_cast<uint16_t>(value);
    case DType::kInt32: return static_cast<uint32_t>(value);
    case DType::kInt64: return static_cast<uint64_t>(value);
    case DType::kFloat64: return std::bit_cast<uint64_t>(static_cast<double>(value));
    case DType::kFloat32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    default: return bits_of_double(dtype, int_to_double_odd(value));
  }
}

}  // namespace mithril::tile

#include "core/tensor_data.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/packed_matrix.h"

namespace mithril::core {

size_t literal_size(DType dtype) { return is_abstract(dtype) ? sizeof(int64_t) : size_of(dtype); }

namespace {

// Rounds to a binary format of `fraction` bits below the leading one, to nearest even; exact in
// double for both formats.
uint16_t round_to_16(double value, int fraction, int exponent_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | (1 << (fraction - 1)));
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return static_cast<uint16_t>(sign | infinity);
  if (magnitude == 0.0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const double scaled = std::nearbyint(std::ldexp(magnitude, fraction - exponent));
  // `scaled` counts units of the last place; a carry moves into the exponent by itself.
  const auto units =
      static_cast<int64_t>(scaled) + (static_cast<int64_t>(exponent + bias - 1) << fraction);
  if (units >= infinity) return static_cast<uint16_t>(sign | infinity);
  return static_cast<uint16_t>(sign | units);
}

template <class T>
void append(TensorData& data, T value) {
  const size_t at = data.bytes.size();
  data.bytes.resize(at + sizeof value);
  std::memcpy(data.bytes.data() + at, &value, sizeof value);
}

int64_t as_integer(const HostValue& number) {
  if (!number.is_double()) return number.is_bool() ? (number.as_bool() ? 1 : 0) : number.as_int();
  const double value = number.as_double();
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

template <class T>
T read(const TensorData& data, size_t index) {
  T out;
  std::memcpy(&out, data.bytes.data() + index * sizeof(T), sizeof(T));
  return out;
}

}  // namespace

uint16_t to_float16(double value) { return round_to_16(value, 10, 5); }
uint16_t to_bfloat16(double value) { return round_to_16(value, 7, 8); }

double from_float16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void append_element(TensorData& data, const HostValue& number) {
  switch (data.dtype) {
    case DType::kBool: append<uint8_t>(data, number.as_number() != 0.0 ? 1 : 0); return;
    case DType::kUInt8: append(data, static_cast<uint8_t>(as_integer(number))); return;
    case DType::kInt8: append(data, static_cast<int8_t>(as_integer(number))); return;
    case DType::kInt16: append(data, static_cast<int16_t>(as_integer(number))); return;
    case DType::kInt32: append(data, static_cast<int32_t>(as_integer(number))); return;
    case DType::kInt64:
    case DType::kAnyInt: append(data, as_integer(number)); return;
    case DType::kFloat16: append(data, to_float16(number.as_number())); return;
    case DType::kBFloat16: append(data, to_bfloat16(number.as_number())); return;
    case DType::kFloat32: append(data, static_cast<float>(number.as_number())); return;
    case DType::kFloat64:
    case DType::kAnyFloat: append(data, number.as_number()); return;
  }
}

HostValue element(const TensorData& data, size_t i) {
  switch (data.dtype) {
    case DType::kBool: return HostValue(read<uint8_t>(data, i) != 0);
    case DType::kUInt8: return HostValue(int64_t{read<uint8_t>(data, i)});
    case DType::kInt8: return HostValue(int64_t{read<int8_t>(data, i)});
    case DType::kInt16: return HostValue(int64_t{read<int16_t>(data, i)});
    case DType::kInt32: return HostValue(int64_t{read<int32_t>(data, i)});
    case DType::kInt64:
    case DType::kAnyInt: return HostValue(read<int64_t>(data, i));
    case DType::kFloat16: return HostValue(from_float16(read<uint16_t>(data, i)));
    case DType::kBFloat16: return HostValue(from_bfloat16(read<uint16_t>(data, i)));
    case DType::kFloat32: return HostValue(static_cast<double>(read<float>(data, i)));
    case DType::kFloat64:
    case DType::kAnyFloat: return HostValue(read<double>(data, i));
  }
  return {};
}

namespace {

struct ConstantRow {
  std::string_view name;
  double of_64, of_32, of_16;
};

// Reference 1.5; python/mithril/types.py shows the same numbers to users.
constexpr ConstantRow kConstants[] = {
    {"EPSILON", 2.220446049250313e-16, 1.1920929e-07, 0.000977},
    {"LEFT_EPSILON", 1.1102230246251565e-16, 5.9604645e-08, 0.0004885},
    {"MIN_POSITIVE_NORMAL", 2.2250738585072014e-308, 1.1754944e-38, 6.104e-05},
    {"MIN_POSITIVE_SUBNORMAL", 5e-324, 1e-45, 6e-08},
    {"STABLE_RECIPROCAL_THRESHOLD", 1.4916681462400413e-153, 1.0842021951e-19,
     0.007812809993849843},
    {"ZEROS", 0.0, 0.0, 0.0},
    {"ONES", 1.0, 1.0, 1.0},
};

}  // namespace

std::optional<double> constant_value(std::string_view name, DType dtype) {
  for (const ConstantRow& row : kConstants) {
    if (row.name != name) continue;
    if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return row.of_16;
    return dtype == DType::kFloat32 ? row.of_32 : row.of_64;
  }
  return std::nullopt;
}

std::optional<TensorData> constant_literal(std::string_view name) {
  const auto value = constant_value(name, DType::kAnyFloat);
  if (!value) return std::nullopt;
  TensorData out;
  out.dtype = DType::kAnyFloat;
  out.constant = name;
  append_element(out, HostValue(*value));
  return out;
}

std::shared_ptr<const TensorData> cast_literal(std::shared_ptr<const TensorData> data,
                                               DType dtype) {
  if (data->dtype == dtype) return data;
  data = unpacked(std::move(data));
  auto out = std::make_shared<TensorData>();
  out->dtype = dtype;
  out->shape = data->shape;
  if (!data->constant.empty()) {
    append_element(*out, HostValue(*constant_value(data->constant, dtype)));
    return out;
  }
  const size_t count = data->bytes.size() / literal_size(data->dtype);
  for (size_t i = 0; i < count; ++i) append_element(*out, element(*data, i));
  return out;
}

std::optional<double> beyond_range(const TensorData& data, DType dtype) {
  if (data.dtype != DType::kAnyFloat || !data.constant.empty()) return std::nullopt;
  const size_t count = data.bytes.size() / sizeof(double);
  for (size_t i = 0; i < count; ++i) {
    const auto number = read<double>(data, i);
    if (overflows(number, dtype)) return number;
  }
  return std::nullopt;
}

}  // namespace mithril::core

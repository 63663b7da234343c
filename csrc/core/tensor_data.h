// Filling tensor literals element by element.
#pragma once
#include <optional>
#include <string_view>

#include "core/host_value.h"

namespace mithril::core {

/// Bytes that one element of a literal takes: abstract types are stored as int64 and float64.
size_t literal_size(DType dtype);

/// Appends a bool, int or double, converted as a cast does (rounded to nearest even; integers
/// wrap; NaN to 0).
void append_element(TensorData& data, const HostValue& number);

/// Element `index` as int or double (bool for bool tensors).
HostValue element(const TensorData& data, size_t index);

/// The number that a constant ("EPSILON", "MIN_POSITIVE_NORMAL" …) stands for in floats of this
/// type; nullopt for unknown names.
std::optional<double> constant_value(std::string_view name, DType dtype);

/// A scalar literal of the constant, whose value follows the dtype that it is cast to.
std::optional<TensorData> constant_literal(std::string_view name);

/// The literal in another dtype (itself when that is its own).
std::shared_ptr<const TensorData> cast_literal(std::shared_ptr<const TensorData> data, DType dtype);

/// A finite number of a literal without a width of its own that is infinite in `dtype`; else none.
std::optional<double> beyond_range(const TensorData& data, DType dtype);

/// Conversions between float32 and the two 16-bit formats, to nearest even.
uint16_t to_float16(double value);
uint16_t to_bfloat16(double value);
double from_float16(uint16_t bits);
double from_bfloat16(uint16_t bits);

}  // namespace mithril::core

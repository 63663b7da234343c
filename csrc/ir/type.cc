#include "ir/type.h"

#include <fmt/format.h>

#include "core/checked.h"

namespace mithril::ir {

HostType type_of(const HostValue& value) {
  using Tag = HostType::Tag;
  if (value.is_bool()) return {Tag::kBool, {}};
  if (value.is_int() || value.is_symbolic()) return {Tag::kInt, {}};
  if (value.is_double()) return {Tag::kFloat, {}};
  if (value.is_string()) return {Tag::kStr, {}};
  if (value.is_dtype()) return {Tag::kDType, {}};
  if (value.is_slice()) return {Tag::kSlice, {}};
  if (value.is_ellipsis()) return {Tag::kEllipsis, {}};
  if (value.is_sequence()) {
    HostType out{Tag::kTuple, {}};
    for (const HostValue& item : value.items()) out.items.push_back(type_of(item));
    return out;
  }
  if (value.is_none()) return {Tag::kNone, {}};
  return {Tag::kOpaque, {}};
}

namespace {

std::string to_string(const HostType& type) {
  static constexpr const char* kNames[] = {"none",  "bool",  "int",      "float", "str",
                                           "dtype", "slice", "ellipsis", "tuple", "opaque"};
  std::string out = kNames[static_cast<size_t>(type.tag)];
  if (type.tag != HostType::Tag::kTuple) return out;
  out += '<';
  for (size_t i = 0; i < type.items.size(); ++i) {
    if (i != 0) out += ", ";
    out += to_string(type.items[i]);  // depth bounded by HostValue::kMaxDepth
  }
  return out + '>';
}

}  // namespace

std::string to_string(const Shape& shape, const DimTable& dims) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += ", ";
    out += dims.print(shape[i]);
  }
  return out + "]";
}

std::string to_string(const Type& type, const DimTable& dims) {
  if (!type.is_tensor) return to_string(type.host);
  return std::string(core::short_name(type.dtype)) + to_string(type.shape, dims);
}

bool is_static(const Shape& shape) {
  for (const Dim dim : shape) {
    if (!dim.known()) return false;
  }
  return true;
}

std::vector<int64_t> static_dims(const Shape& shape) {
  std::vector<int64_t> out;
  out.reserve(shape.size());
  for (const Dim dim : shape) out.push_back(dim.value());
  return out;
}

int64_t byte_size(const Type& type) {
  return core::product(static_dims(type.shape)) * static_cast<int64_t>(core::size_of(type.dtype));
}

}  // namespace mithril::ir

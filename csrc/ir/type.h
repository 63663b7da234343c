// The type of a graph value: a tensor (element type and shape) or a host value (kind only).
#pragma once
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/host_value.h"
#include "infer/dim.h"

namespace mithril::ir {

using core::DType;
using core::HostValue;
using infer::Dim;
using infer::DimTable;
using Shape = std::vector<Dim>;

/// Kind of a host value. Tuples know their items; depth is at most HostValue::kMaxDepth.
struct HostType {
  enum class Tag : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kStr,
    kDType,
    kSlice,
    kEllipsis,
    kTuple,
    kOpaque
  };
  Tag tag = Tag::kNone;
  std::vector<HostType> items;
  bool operator==(const HostType&) const = default;
};

struct Type {
  bool is_tensor = true;
  DType dtype = DType::kAnyFloat;  // tensors; abstract until assign_dtypes
  Shape shape;                     // tensors; symbols belong to the graph's DimTable
  HostType host;                   // host values

  static Type tensor(DType dtype, Shape shape) { return {true, dtype, std::move(shape), {}}; }
  static Type host_value(HostType host) { return {false, DType::kBool, {}, std::move(host)}; }
  size_t rank() const { return shape.size(); }
  bool operator==(const Type&) const = default;
};

HostType type_of(const HostValue& value);

/// "f32[b, 4]", "int", "tuple<int, int>".
std::string to_string(const Type& type, const DimTable& dims);
std::string to_string(const Shape& shape, const DimTable& dims);  // "[b, 4]"

/// Tells whether every dim is a number.
bool is_static(const Shape& shape);
/// Returns the dims of such a shape.
std::vector<int64_t> static_dims(const Shape& shape);

/// Counts the bytes of a tensor whose sizes and dtype are known, in a graph that check_addresses
/// takes.
int64_t byte_size(const Type& type);

}  // namespace mithril::ir

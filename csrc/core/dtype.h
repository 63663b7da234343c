// Element types of tensors: one row per type, the promotion table, and nothing about memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mithril::core {

/// The three element kinds of the logical layer; a kind says nothing about bit width.
enum class Kind : uint8_t { kBool, kInt, kFloat };

/// Element type. `kAnyInt` and `kAnyFloat` are the *abstract* types "integer/float of the
/// backend's default width": they stand in graphs between flatten and assign_dtypes only.
enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kAnyInt,
  kAnyFloat,
};
inline constexpr int kDTypeCount = 12;

struct DTypeInfo {
  std::string_view name;        // "float32": what Python users write
  std::string_view short_name;  // "f32": what graph text prints
  Kind kind;
  uint8_t size;  // bytes an element; 0 for abstract types
  uint8_t rank;  // position in the promotion order within its kind
};

const DTypeInfo& info(DType dtype);
inline std::string_view name(DType dtype) { return info(dtype).name; }
inline std::string_view short_name(DType dtype) { return info(dtype).short_name; }
inline Kind kind(DType dtype) { return info(dtype).kind; }
inline size_t size_of(DType dtype) { return info(dtype).size; }
inline bool is_abstract(DType dtype) { return info(dtype).size == 0; }
inline bool is_float(DType dtype) { return kind(dtype) == Kind::kFloat; }
inline bool is_integer(DType dtype) { return kind(dtype) == Kind::kInt; }

/// Accepts both spellings of a row ("float32", "f32"); nullopt for anything else.
std::optional<DType> parse_dtype(std::string_view text);

/// The type that both operands convert to: same kind, the wider (uint8 with int8: int16;
/// float16 with bfloat16: float32); bool with anything, the other; integer with float, the
/// float. An abstract type gives way to a concrete one of its kind.
DType promote(DType a, DType b);

/// The type that structured kernels compute `dtype` in: float32 for float16 and bfloat16, int32 for
/// the narrower integers, else `dtype`.
DType widened(DType dtype);

/// Tells whether a finite number rounds to infinity in a float type.
bool overflows(double number, DType dtype);

/// The abstract (or bool) type of a kind.
DType abstract_of(Kind kind);

}  // namespace mithril::core

#include "core/dtype.h"

#include <array>
#include <cmath>

namespace mithril::core {
namespace {

constexpr std::array<DTypeInfo, kDTypeCount> kTable{{
    {"bool", "bool", Kind::kBool, 1, 0},
    {"uint8", "u8", Kind::kInt, 1, 1},
    {"int8", "i8", Kind::kInt, 1, 1},
    {"int16", "i16", Kind::kInt, 2, 2},
    {"int32", "i32", Kind::kInt, 4, 3},
    {"int64", "i64", Kind::kInt, 8, 4},
    {"float16", "f16", Kind::kFloat, 2, 1},
    {"bfloat16", "bf16", Kind::kFloat, 2, 1},
    {"float32", "f32", Kind::kFloat, 4, 2},
    {"float64", "f64", Kind::kFloat, 8, 3},
    {"int", "int", Kind::kInt, 0, 0},
    {"float", "float", Kind::kFloat, 0, 0},
}};

}  // namespace

const DTypeInfo& info(DType dtype) { return kTable[static_cast<size_t>(dtype)]; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (text == kTable[i].name || text == kTable[i].short_name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const DTypeInfo& left = info(a);
  const DTypeInfo& right = info(b);
  if (left.kind != right.kind) return left.kind > right.kind ? a : b;
  if (left.rank != right.rank) return left.rank > right.rank ? a : b;
  return left.kind == Kind::kInt ? DType::kInt16 : DType::kFloat32;
}

DType widened(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return DType::kFloat32;
  const bool narrow = dtype == DType::kUInt8 || dtype == DType::kInt8 || dtype == DType::kInt16;
  return narrow ? DType::kInt32 : dtype;
}

bool overflows(double number, DType dtype) {
  if (!std::isfinite(number)) return false;
  switch (dtype) {  // half a unit beyond the largest number
    case DType::kFloat16: return std::fabs(number) >= 65520.0;
    case DType::kBFloat16: return std::fabs(number) >= 0x1.FFp127;
    case DType::kFloat32: return std::fabs(number) >= 0x1.FFFFFFp127;
    default: return false;
  }
}

DType abstract_of(Kind kind) {
  switch (kind) {
    case Kind::kBool: return DType::kBool;
    case Kind::kInt: return DType::kAnyInt;
    case Kind::kFloat: return DType::kAnyFloat;
  }
  return DType::kBool;
}

}  // namespace mithril::core

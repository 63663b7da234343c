// What lower.cc knows.
#include <algorithm>

#include "backends/cpu/jit/machine.h"
#include "tile/convert.h"

namespace mithril::cpu::jit {

using core::DType;
using tile::is_half;
using tile::Opcode;

namespace {

bool can_cast(DType from, DType to, Isa isa) {
  if (from == to || to == DType::kBool || from == DType::kBool) return true;
  if (is_half(to)) return is_half(from) || from == DType::kFloat32 || core::size_of(from) <= 2;
  if (isa == Isa::kAvx512) return true;
  if (from == DType::kInt64) return !core::is_float(to);
  return !(to == DType::kInt64 && core::is_float(from));
}

}  // namespace

bool can_lower(Opcode opcode, DType result, DType from, Isa isa) {
  const auto known = [](DType t) {
    return t == DType::kBool || core::is_float(t) || t == DType::kUInt8 || t == DType::kInt8 ||
           t == DType::kInt16 || t == DType::kInt32 || t == DType::kInt64;
  };
  if (!known(result) || !known(from)) return false;
  switch (opcode) {
    case Opcode::kCast: return can_cast(from, result, isa);
    case Opcode::kSelect:
    case Opcode::kBitcast: return true;
    case Opcode::kFloorDiv:
    case Opcode::kMod:
    case Opcode::kIntegerPow:
    case Opcode::kThreefry: return false;
    case Opcode::kScale: return isa == Isa::kAvx512;
    case Opcode::kGeluFar:
    case Opcode::kGeluTanhFar: return result == DType::kFloat32;
    default: break;
  }
  return tile::info(opcode).family == tile::Family::kPointwise && !is_half(from);
}

bool can_lower_reduction(Opcode opcode, DType dtype) {
  switch (opcode) {
    case Opcode::kReduceSum:
    case Opcode::kReduceProd:
    case Opcode::kReduceMax:
    case Opcode::kReduceMin: break;
    default: return false;
  }
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}

int32_t lanes_of(const LaneProgram& program, Isa isa) {
  const bool wide = std::any_of(program.values.begin(), program.values.end(),
                                [](const Value& v) { return core::size_of(v.dtype) == 8; });
  return (isa == Isa::kAvx512 ? 64 : 32) / (wide ? 8 : 4);
}

}  // namespace mithril::cpu::jit

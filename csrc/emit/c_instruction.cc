#include "emit/c_instruction.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "tile/convert.h"
#include "tile/reduction.h"
#include "tile/tables.h"

namespace mithril::emit {
namespace {

using core::DType;
using core::short_name;
using tile::Instruction;
using tile::is_half;
using tile::Opcode;

bool is_wide_float(DType dtype) { return core::is_float(dtype) && !is_half(dtype); }

// `x` of type `from` as what halves are rounded from: a float32 that lost nothing which matters.
std::string for_rounding(DType from, std::string_view x) {
  if (from == DType::kFloat32) return std::string(x);
  if (from == DType::kFloat64) return fmt::format("m_odd_float({})", x);
  if (core::size_of(from) <= 2) return fmt::format("(m_f32){}", x);
  if (core::size_of(from) == 4) return fmt::format("m_odd_float((m_f64){})", x);
  return fmt::format("m_odd_float(m_odd_double({}))", x);
}

std::string bitcast(DType from, DType to, std::string_view x) {
  if (to == DType::kBool) return fmt::format("(m_bool)({} != 0)", x);
  std::string bits(x);
  if (is_wide_float(from)) bits = fmt::format("m_bits_{}({})", short_name(from), x);
  if (is_wide_float(to)) {
    return fmt::format("m_of_bits_{0}((m_w{1}){2})", short_name(to), 8 * core::size_of(to), bits);
  }
  return fmt::format("(m_{}){}", short_name(to), bits);
}

// Shortest text that reads back as this number.
template <class T>
std::string decimal(T x, const char* suffix) {
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + suffix;
}

}  // namespace

std::string c_cast(DType from, DType to, const std::string& x) {
  if (from == to) return x;
  if (is_half(from)) {
    return c_cast(DType::kFloat32, to, fmt::format("m_float_of_{}({})", short_name(from), x));
  }
  if (to == DType::kBool) return fmt::format("(m_bool)({} != 0)", x);
  if (is_half(to)) return fmt::format("m_{}_of_float({})", short_name(to), for_rounding(from, x));
  if (core::is_float(from) && !core::is_float(to)) {
    return fmt::format("m_sat_{}_{}({})", short_name(from), short_name(to), x);
  }
  return fmt::format("(m_{}){}", short_name(to), x);
}

std::string c_constant(DType dtype, uint64_t bits) {
  const std::string text = fmt::format("M_U64({:#x})", bits);
  return is_wide_float(dtype) ? fmt::format("m_of_bits_{}((m_w{}){})", short_name(dtype),
                                            8 * core::size_of(dtype), text)
                              : fmt::format("(m_{}){}", short_name(dtype), text);
}

std::string c_number(DType dtype, uint64_t bits) {
  if (dtype == DType::kFloat32) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) return decimal(x, "f");
  } else if (dtype == DType::kFloat64) {
    const double x = std::bit_cast<double>(bits);
    if (std::isfinite(x)) return decimal(x, "");
  }
  return c_constant(dtype, bits);
}

std::string c_call(const tile::Program& program, const Instruction& i,
                   const std::function<std::string(tile::RegId)>& name) {
  const auto x = [&](size_t k) { return name(i.operands[k]); };
  const auto type = [&](size_t k) { return program.code[i.operands[k]].dtype; };
  switch (i.opcode) {
    case Opcode::kSelect: return fmt::format("{} ? {} : {}", x(0), x(1), x(2));
    case Opcode::kCast: return c_cast(type(0), i.dtype, x(0));
    case Opcode::kBitcast: return bitcast(type(0), i.dtype, x(0));
    case Opcode::kLookup:
      return fmt::format("m_table{}[{} & {}]", i.index, x(0), tile::kTableSize - 1);
    case Opcode::kThreefry:
      return fmt::format("(m_i32)(m_w32)(m_threefry({}, {}, (m_w{}){}) >> {})", x(0), x(1),
                         type(2) == DType::kInt64 ? 64 : 32, x(2), 32 * i.index);
    default: break;
  }
  std::string operands = x(0);
  for (size_t k = 1; k < tile::info(i.opcode).arity; ++k) operands += ", " + x(k);
  return fmt::format("m_{}_{}({})", tile::info(i.opcode).text, short_name(type(0)), operands);
}

std::string c_state(Opcode opcode, DType dtype) {
  return fmt::format("m_{}_{}", tile::info(opcode).text, short_name(dtype));
}

bool finds_place(Opcode opcode) { return tile::info(opcode).rule == tile::Rule::kIndex; }

std::string c_reduction(Opcode opcode, DType dtype) {
  const std::string name = c_state(opcode, dtype);
  if (finds_place(opcode)) {
    const char* better = opcode == Opcode::kReduceArgMax ? ">" : "<";
    return fmt::format("M_EXTREME({}, m_{}, {})\n", name, short_name(dtype), better);
  }
  const bool keeps_rest = opcode == Opcode::kReduceSum && is_wide_float(dtype);
  return fmt::format("M_REDUCTION({0}, m_{1}, m_{2}_{1}, {3})\n", name, short_name(dtype),
                     tile::info(tile::combining(opcode)).text, keeps_rest ? 1 : 0);
}

std::string c_identity(Opcode opcode, DType dtype) {
  const uint64_t bits = tile::identity_of(opcode, dtype);
  return bits == 0 ? "0" : c_constant(dtype, bits);
}

std::string c_table(uint32_t index) {
  std::string text = fmt::format("M_TABLE m_f32 m_table{}[] = {{", index);
  for (const float x : tile::kTables[index]) text += fmt::format("{:a}f, ", x);
  return text + "};\n";
}

}  // namespace mithril::emit

// Programs as text.
#include <bit>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "tile/half.h"
#include "tile/program.h"

namespace mithril::tile {
namespace {

std::string constant_text(core::DType dtype, uint64_t bits) {
  using core::DType;
  switch (dtype) {
    case DType::kBool: return bits != 0 ? "true" : "false";
    case DType::kUInt8: return fmt::format("{}", static_cast<uint8_t>(bits));
    case DType::kInt8: return fmt::format("{}", static_cast<int8_t>(bits));
    case DType::kInt16: return fmt::format("{}", static_cast<int16_t>(bits));
    case DType::kInt32: return fmt::format("{}", static_cast<int32_t>(bits));
    case DType::kFloat16: return fmt::format("{}", half_to_float(static_cast<uint16_t>(bits)));
    case DType::kBFloat16: return fmt::format("{}", bfloat_to_float(static_cast<uint16_t>(bits)));
    case DType::kFloat32:
      return fmt::format("{}", std::bit_cast<float>(static_cast<uint32_t>(bits)));
    case DType::kFloat64: return fmt::format("{}", std::bit_cast<double>(bits));
    default: return fmt::format("{}", static_cast<int64_t>(bits));
  }
}

const char* level_text(Level level) {
  return level == Level::kRow ? " row" : level == Level::kUniform ? " uniform" : "";
}

std::string detail(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kLoad:
    case Opcode::kScalar: return fmt::format(" {}", i.index);
    case Opcode::kStore: return fmt::format(" {},", i.index);
    case Opcode::kThreefry:
    case Opcode::kLookup: return fmt::format(".{}", i.index);
    case Opcode::kConstant: return " " + constant_text(i.dtype, i.bits);
    case Opcode::kReduceSum:
    case Opcode::kReduceProd: return i.order == Order::kLanes ? ".lanes" : ".rows";
    default: return "";
  }
}

std::string operand_list(const Instruction& i) {
  std::string out;
  for (int k = 0; k < info(i.opcode).arity; ++k) {
    out += fmt::format("{}%{}", k == 0 ? " " : ", ", i.operands[static_cast<size_t>(k)]);
  }
  return out;
}

std::string signature(const Program& program, bool inputs) {
  std::string out;
  const auto& types = inputs ? program.inputs : program.outputs;
  for (uint32_t k = 0; k < types.size(); ++k) {
    const Level level = inputs ? input_level(program, k) : output_level(program, k);
    out += fmt::format("{}{}{}", k == 0 ? "" : ", ", core::short_name(types[k]), level_text(level));
  }
  return out;
}

}  // namespace

std::string print(const Program& program) {
  std::string out =
      fmt::format("program({}) -> ({}) {{\n", signature(program, true), signature(program, false));
  for (size_t at = 0; at < program.code.size(); ++at) {
    const Instruction& i = program.code[at];
    const auto text = info(i.opcode).text;
    if (i.opcode == Opcode::kStore) {
      out += fmt::format("  {}{}{}\n", text, detail(i), operand_list(i));
      continue;
    }
    out += fmt::format("  %{} = {}{}{} : {}{}\n", at, text, detail(i), operand_list(i),
                       core::short_name(i.dtype), level_text(i.level));
  }
  return out + "}\n";
}

}  // namespace mithril::tile

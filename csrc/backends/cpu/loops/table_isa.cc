// The table of this instruction set.
#include "backends/cpu/loops/isa_parts.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

LaneFn find_lane(tile::Opcode opcode, core::DType result, core::DType from, uint32_t index,
                 Shape shape) {
  const tile::OpcodeInfo& op = tile::info(opcode);
  if (opcode == tile::Opcode::kCast) return find_cast(result, from);
  if (opcode == tile::Opcode::kSelect) return find_select(result);
  if (opcode == tile::Opcode::kThreefry) return find_threefry(from, index);
  if (opcode == tile::Opcode::kLookup) return find_lookup(index);
  const bool is_far = opcode == tile::Opcode::kGeluFar || opcode == tile::Opcode::kGeluTanhFar;
  if (is_far) return find_macro(opcode, result, shape);
  if (op.rule == tile::Rule::kCompare) return find_comparison(opcode, from, shape);
  if (op.family == tile::Family::kMacro) return find_macro(opcode, result, shape);
  return find_arithmetic(opcode, result, shape);
}

}  // namespace

const IsaTable& isa_table() {
  static constexpr IsaTable table{find_lane,    find_row_reduce, find_block_sums,
                                  find_extreme, find_scan,       run};
  return table;
}

}  // namespace mithril::cpu::MITHRIL_ISA

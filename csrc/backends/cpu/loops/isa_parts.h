// The parts that one instruction set's table is put together from.
#pragma once
#include "backends/cpu/schedule/isa_table.h"

namespace mithril::cpu::MITHRIL_ISA {

LaneFn find_arithmetic(tile::Opcode opcode, core::DType dtype, Shape shape);
LaneFn find_comparison(tile::Opcode opcode, core::DType from, Shape shape);
LaneFn find_cast(core::DType to, core::DType from);
LaneFn find_macro(tile::Opcode opcode, core::DType dtype, Shape shape);
LaneFn find_lookup(uint32_t table);
LaneFn find_select(core::DType dtype);
LaneFn find_threefry(core::DType counter, uint32_t word);
RowReduceFn find_row_reduce(tile::Opcode opcode, core::DType dtype);
BlockSums find_block_sums(core::DType dtype);
ExtremeFn find_extreme(tile::Opcode opcode, core::DType dtype);
ScanFn find_scan(core::DType dtype);
plan::KernelStatus run(const plan::KernelArgs& args, int64_t begin, int64_t end);

}  // namespace mithril::cpu::MITHRIL_ISA

// Tile programs: what one fused loop computes, as straight-line typed SSA code.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "tile/instruction.h"

namespace mithril::tile {

/// A register is the index of the instruction that defines it.
using RegId = uint32_t;
inline constexpr RegId kNoReg = 0xffffffffu;

/// One instruction. Fields that an opcode does not use are zero, so that equality is memberwise.
struct Instruction {
  Opcode opcode = Opcode::kConstant;
  core::DType dtype = core::DType::kFloat32;  // of the result; of the value for store
  Level level = Level::kUniform;              // of the result; of the value for store
  Order order = Order::kLanes;                // reductions only
  // load: input; store: output; scalar: number; threefry: word 0 or 1; lookup: table
  uint32_t index = 0;
  std::array<RegId, 3> operands{kNoReg, kNoReg, kNoReg};
  uint64_t bits = 0;  // constant: the value's bytes, little-endian, in the low size_of(dtype)
  bool operator==(const Instruction&) const = default;
};

/// A program runs over a domain that is given at run time: kept dims × reduced dims. A lane value
/// has one element per point, a row value one per kept index, a uniform one. Loads are of any
/// level; a reduction makes a row value of a lane value; everything else has the highest level of
/// its operands. A program without reductions and scans is *pointwise*: it has no row values, and
/// its domain may have kept dims only. Sections (softmax: maximum, then sum, then quotient) are not
/// written down: they follow from what depends on row values.
/// Immutable once built; plain arrays, copied and compared freely.
struct Program {
  std::vector<Instruction> code;
  std::vector<core::DType> inputs;  // element types in memory, also of the registers loaded
  std::vector<core::DType> outputs;
  uint32_t scalars = 0;  // run-time scalars (KernelArgs::scalars) that it reads
  bool operator==(const Program&) const = default;
};

bool is_reducing(const Program& program);
/// Tells whether what it makes of an element depends on the element's place.
bool reads_position(const Program& program);
/// Level of output `k`: kRow outputs have one element per kept index.
Level output_level(const Program& program, uint32_t k);
/// Level of input `k`: kRow inputs are read once per kept index, kUniform ones once. Unread inputs
/// are kLane.
Level input_level(const Program& program, uint32_t k);
size_t hash(const Program& program);

/// Checks everything that the interpreter and the printers rely on: operands defined before use,
/// types by the table, levels, inputs and outputs in range, every output stored exactly once.
core::Status verify(const Program& program);

/// Text for tests and people, one line an instruction; levels as r (row) and u (uniform):
///   program(f32, f32 row) -> (f32) {
///     %0 = load 0 : f32
///     %1 = reduce_sum.lanes %0 : f32 row
///     store 0, %1
///   }
std::string print(const Program& program);

/// Work per point of the domain and per row, for cost estimates. A macro counts as one operation;
/// its cost is what its formula takes, roughly.
struct Statistics {
  int64_t lane_operations = 0;
  int64_t row_operations = 0;
  int64_t lane_cost = 0;  // in basic instructions
  int64_t row_cost = 0;
  int64_t loads = 0;        // lane loads
  int64_t stores = 0;       // lane stores
  int64_t load_bytes = 0;   // per point
  int64_t store_bytes = 0;  // per point
};
Statistics statistics(const Program& program);

}  // namespace mithril::tile

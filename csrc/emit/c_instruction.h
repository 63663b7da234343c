// Instructions of tile programs as expressions of C-like languages, on the functions of
// c_like_text.h.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "tile/program.h"

namespace mithril::emit {

inline bool reduces(const tile::Instruction& i) {
  return tile::info(i.opcode).family == tile::Family::kReduce;
}
inline bool scans(const tile::Instruction& i) {
  return tile::info(i.opcode).family == tile::Family::kScan;
}
inline bool stores(const tile::Instruction& i) { return i.opcode == tile::Opcode::kStore; }

/// `x` of type `from` as `to`.
std::string c_cast(core::DType from, core::DType to, const std::string& x);
/// The number with these bits, as bits.
std::string c_constant(core::DType dtype, uint64_t bits);
/// The same as people write it: "0.5f"; as bits where that is no number.
std::string c_number(core::DType dtype, uint64_t bits);
/// Any instruction with operands but stores, reductions and scans; `name` is that of a register.
std::string c_call(const tile::Program& program, const tile::Instruction& i,
                   const std::function<std::string(tile::RegId)>& name);

/// The name that the state of a reduction, its functions and its definition share:
/// m_reduce_sum_f32.
std::string c_state(tile::Opcode opcode, core::DType dtype);
/// Tells whether a reduction finds the place of an element, which takes a state of its own.
bool finds_place(tile::Opcode opcode);
/// Prints the definitions of a reduction's state and functions.
std::string c_reduction(tile::Opcode opcode, core::DType dtype);
std::string c_identity(tile::Opcode opcode, core::DType dtype);
/// Prints the definition of a table of lookups.
std::string c_table(uint32_t index);

}  // namespace mithril::emit

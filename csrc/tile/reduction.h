// What reductions are made of.
#pragma once
#include "tile/instruction.h"

namespace mithril::tile {

/// The instruction that joins two elements, or two partial results; not of the arg* reductions.
Opcode combining(Opcode reduction);
/// Gives the reduction of nothing: the bits of an element of `dtype`.
uint64_t identity_of(Opcode reduction, core::DType dtype);

}  // namespace mithril::tile

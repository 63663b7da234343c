// A compiled step as a function: its frame, and the loops around the body.
#pragma once
#include "backends/cpu/jit/assembler.h"

namespace mithril::cpu::jit {

/// Emits a CompiledFn here. Gives the partial results of each reduction (kInside: elements that
/// each row has in the row slot; kAcross: one). `slots`: of the schedule.
std::vector<int32_t> emit_function(Assembler& as, const Machine& machine, Walk walk, int slots);

}  // namespace mithril::cpu::jit

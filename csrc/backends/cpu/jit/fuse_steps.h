// Joins the steps of a schedule that can be compiled.
#pragma once
#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/schedule/schedule.h"

namespace mithril::cpu::jit {

/// Runs of instructions and reductions over lanes become kCompiled steps, entries of
/// schedule.compiled without code, and steps that only they needed go. Instructions of `program`
/// that cannot be lowered stay and part the runs.
void fuse_steps(const tile::Program& program, const CodeTarget& target, const Unfused& steps,
                TileSchedule& schedule);

}  // namespace mithril::cpu::jit

// Schedules with machine code in them.
#pragma once
#include <memory>

#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/schedule/schedule.h"

namespace mithril::cpu::jit {

/// Steps over lanes that are worth a function of their own.
inline constexpr int kFewestOfLoop = 2;

/// Tells whether loops for that instruction set are compiled: not by MITHRIL_JIT=0, nor once the
/// system has refused memory for code.
bool is_on(Isa isa);
/// Tells whether the system has refused memory for code in this process.
bool is_refused();
/// True once after that, for whoever tells people.
bool take_jit_denied();

/// False for programs of fewer than `fewest` steps over lanes, and for the few that only the
/// interpreter runs. With a single call in each tile it runs loops as well.
bool can_compile(const tile::Program& widened, int fewest);

/// The schedule of a widened program for that target, its steps over lanes compiled as far as they
/// can be. Null where the system refuses memory for code.
std::shared_ptr<const TileSchedule> compiled_schedule(const tile::Program& widened,
                                                      const IsaTable& table,
                                                      const CodeTarget& target);

}  // namespace mithril::cpu::jit

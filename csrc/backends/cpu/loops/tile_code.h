// What a TileKernel holds for the instruction-set builds.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/loops/interpreter.h"
#include "backends/cpu/schedule/schedule.h"

namespace mithril::cpu {

struct TileKernel::Code {
  tile::Program program;  // widened
  const IsaTable* table = nullptr;
  Isa isa = Isa::kGeneric;
  bool compiles = false;
  bool compiles_blocks = false;  // also where the interpreter's loop would be as good
  bool reducing = false;
  bool lanes_order = false, rows_order = false;  // float sums or products of that order
  std::vector<int32_t> section;                  // of each instruction

  /// The schedule for tiles of that layout; made by the first loop that wants it. Without compiled
  /// steps where there are none.
  const TileSchedule& schedule(Layout layout, bool recompute, Mode mode = Mode::kCompiled) const;

  // By layout, recompute and mode. An entry is set once, before any loop that runs by it is
  // handed out; whoever has such a loop reads it without the lock.
  mutable const TileSchedule* made[kLayouts][2][kModes] = {};

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const TileSchedule>> owned_;
};

}  // namespace mithril::cpu

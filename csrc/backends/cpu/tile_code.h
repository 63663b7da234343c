// What a TileKernel holds for the instruction-set builds.
#pragma once
#include <vector>

#include "backends/cpu/interpreter.h"
#include "backends/cpu/schedule.h"

namespace mithril::cpu {

struct TileKernel::Code {
  tile::Program program;  // widened
  bool reducing = false;
  bool lanes_order = false, rows_order = false;  // float sums or products of that order
  Schedule whole, chunked;
  std::vector<int32_t> section;  // of each instruction
};

}  // namespace mithril::cpu

#include "tile/sections.h"

#include <algorithm>

namespace mithril::tile {

std::vector<int32_t> sections_of(const Program& program) {
  std::vector<int32_t> section(program.code.size(), 0);
  for (size_t at = 0; at < program.code.size(); ++at) {
    for (const RegId r : program.code[at].operands) {
      if (r == kNoReg) continue;
      const bool reduced = info(program.code[r].opcode).family == Family::kReduce;
      section[at] = std::max(section[at], section[r] + (reduced ? 1 : 0));
    }
  }
  return section;
}

}  // namespace mithril::tile

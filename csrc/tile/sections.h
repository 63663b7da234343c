// Passes over the reduced dims that a program needs: softmax has three.
#pragma once
#include <vector>

#include "tile/program.h"

namespace mithril::tile {

/// Section of every instruction: the number of reductions on the longest path to it. Values of a
/// section need the finished reductions of those before it.
std::vector<int32_t> sections_of(const Program& program);

}  // namespace mithril::tile

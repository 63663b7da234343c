// Printed C for devices that have no float64.
#pragma once
#include <string>
#include <string_view>

#include "tile/program.h"

namespace mithril::emit {

/// Tells whether the text of a loop has float64 in it: numbers of a program that are, and float32
/// that is computed in float64 on its way (powers, running sums; integers that become halves).
bool uses_doubles(const tile::Program& program);

/// Gives what printed C stands on (c_like_text.h) to what uses no float64; prune_c() leaves out of
/// it what is of float64.
std::string without_doubles(std::string_view prelude);

}  // namespace mithril::emit

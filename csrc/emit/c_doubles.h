// Printed C for devices that have no float64.
#pragma once
#include <string>
#include <string_view>

#include "tile/program.h"

namespace mithril::emit {

/// Tells whether the text of a loop has float64 in it: numbers of a program that are, and float32
/// that is computed in float64 on its way (powers, running sums; integers that become halves).
bool uses_doubles(const tile::Program& program);

/// Takes the extension for float64 out of the head of a text (c_like_text.h); prune_c() leaves out
/// what else is of float64 where nothing uses it.
std::string without_doubles(std::string_view head);

}  // namespace mithril::emit

// What programs mean, one element at a time: slow, obvious, the oracle of all other executors.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "tile/program.h"

namespace mithril::tile {

/// Runs `program` over `kept` × `reduced` points. Input k holds kept·reduced elements (a row
/// input: kept), row-major, as bytes; so do the returned outputs. Assumes a verified program and
/// inputs of the right sizes.
std::vector<std::vector<std::byte>> evaluate(const Program& program, int64_t kept, int64_t reduced,
                                             const std::vector<std::vector<std::byte>>& inputs,
                                             std::span<const double> scalars = {});

}  // namespace mithril::tile

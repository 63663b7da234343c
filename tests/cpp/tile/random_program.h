// Random tile programs of any instructions and types, and operands for them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tile/program.h"

namespace mithril::tile::testing {

using Bytes = std::vector<std::byte>;

/// A verified program of up to about `length` instructions: pointwise, or with reductions, scans
/// and row values.
Program random_program(std::mt19937& rng, bool reducing, int length);

/// `count` elements: everyday numbers, and some of each type's edges (NaN, infinities, zeros of
/// both signs, the smallest, the largest).
Bytes random_elements(std::mt19937& rng, core::DType dtype, int64_t count);

/// Dense operands of a program over kept × reduced points.
std::vector<Bytes> random_inputs(std::mt19937& rng, const Program& program, int64_t kept,
                                 int64_t reduced);

}  // namespace mithril::tile::testing

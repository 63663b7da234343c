// Random tile programs over all types, and arrays with special numbers for them.
#pragma once
#include <random>

#include "backends/cpu/run_program.h"
#include "tile/builder.h"

namespace mithril::cpu::testing {

struct RandomShape {
  bool reducing = false;
  bool halves = true;  // types of 16 bits and less
  bool wide = true;    // types of 64 bits
  tile::Order order = tile::Order::kLanes;
  int instructions = 25;
  bool everything = false;  // also what is never compiled: scans, random words, all macros, scale
};

/// Loads of several types and levels, constants and run-time scalar 0, then instructions of all
/// kinds; some of the last values are stored.
tile::Program random_program(std::mt19937& rng, const RandomShape& shape);

/// `n` elements: small numbers, every tenth a special one (NaN, infinities, -0, bounds).
Bytes random_elements(std::mt19937& rng, core::DType dtype, size_t n);

}  // namespace mithril::cpu::testing

// Rewrites programs into fewer kinds of instructions, with equal results bit for bit.
#pragma once
#include "tile/program.h"

namespace mithril::tile {

/// Computes float16 and bfloat16 in float32, rounding after every instruction by casts; what only
/// moves or compares bits (load, store, select, neg, abs, bitcast) stays. Reductions of them become
/// float32 reductions of cast values, rounded once at the end.
Program widen_halves(const Program& program);

/// Limits what expand may write.
struct Expansion {
  bool trigonometric = true;  // sin and cos, which need extern lanes; else they stay
  bool scale = true;          // the instruction; else two products of equal bits
  bool extern_far = false;    // rare cases in extern lanes; else computed beside the others
};

/// Macro instructions in basic and extern ones, by the formulas of tile/math.h. Implies
/// widen_halves.
Program expand(const Program& program, Expansion expansion = {});

}  // namespace mithril::tile

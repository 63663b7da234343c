// Extern lanes: scalar functions for what does not fit straight-line code. Built once, for the
// baseline machine, so every instruction set calls the same code.
#pragma once

namespace mithril::tile {

/// x = n·π/2 + r + low modulo 2π, |r| ≤ π/4, by Payne and Hanek's method with integers only, for
/// |x| of 2^17 (2^23 in binary64) or more; n is 0 … 3 with the sign of x. NaN for inf and NaN.
struct TurnsF32 {
  float n, r, low;
};
struct TurnsF64 {
  double n, r, low;
};
TurnsF32 reduce_turns(float x);
TurnsF64 reduce_turns(double x);

/// x to the power y with the special cases of C99 Annex F, below 0.6 ULP (subnormal results 0.8):
/// ln x and its product with y as pairs of doubles.
double pow_lane(double x, double y);

/// The remainder with the sign of the divisor and the floored quotient of Python.
float python_mod(float x, float y);
double python_mod(double x, double y);
float python_floordiv(float x, float y);
double python_floordiv(double x, double y);

}  // namespace mithril::tile

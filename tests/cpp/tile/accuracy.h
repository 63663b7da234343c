// The elementary functions in a precision that nobody here doubts, and how far a result is from it.
#pragma once
#include <span>
#include <string_view>

#include "tile/instruction.h"

namespace mithril::tile::testing {

/// Whether there are references for float64: libquadmath comes with g++ on x86-64.
#ifdef MITHRIL_QUADMATH
inline constexpr bool kHasQuad = true;
__extension__ using Quad = __float128;
#else
inline constexpr bool kHasQuad = false;
using Quad = long double;
#endif

struct Accuracy {
  const char* name;
  Opcode opcode;
  double (*in_double)(double);  // the C library's
  Quad (*in_quad)(Quad);        // libquadmath's; null without
  double low, high;             // where it is used most
  double most32;                // ULP, of all float32 inputs
  float worst32;
  double most64;  // … of a million float64 inputs
  double worst64;
};

/// accuracy.inc, each function with its references.
std::span<const Accuracy> accuracies();
const Accuracy& accuracy_of(std::string_view name);

/// In units of the last place of the reference's binade (of subnormals: the smallest number);
/// infinity for a wrong NaN, infinity or sign of zero.
double ulp_error(float got, double wanted);
double ulp_error(double got, Quad wanted);

}  // namespace mithril::tile::testing

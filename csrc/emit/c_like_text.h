// What printed kernels stand on: the instructions of tile programs as functions of C. One text for
// all dialects behind a head of each.
#pragma once

namespace mithril::emit {

/// Types, access to bits, and the dialect's names of fma, sqrt and the roundings; those of C99 come
/// from libm, with kLibm behind the head, or from c_own_math.h.
extern const char* const kHeadC99;
extern const char* const kLibm;
extern const char* const kHeadOpenCl;
extern const char* const kHeadCuda;

/// m_add_f32(a, b), m_sat_f32_i8(x) …: functions of scalars that mean what tile/instruction.h says.
/// M_REDUCTION and M_EXTREME define the running states of reductions.
extern const char* const kInstructions;

/// tile/extern_lane.inc, as the build found it.
extern const char* const kExternLanes;

}  // namespace mithril::emit

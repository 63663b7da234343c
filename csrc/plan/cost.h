// Roughly how long steps take: enough to tell what is not worth threads, or anybody's waiting.
#pragma once
#include "plan/plan.h"

namespace mithril::plan {

/// Rate what a core of today does in a nanosecond where data are near: for Step::nanoseconds.
inline constexpr double kFlopsPerNanosecond = 64;  // of matrix products
inline constexpr double kBasicPerNanosecond = 16;  // instructions of a loop times elements

/// Estimates a step on one thread: what its maker says, and the bytes that it moves. Where the
/// maker does not know, no less than the usual kernels take for so many bytes; loops and branches
/// are infinite.
double nanoseconds_of(const Plan& plan, const Step& step);

}  // namespace mithril::plan

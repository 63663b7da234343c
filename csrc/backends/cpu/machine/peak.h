// How fast this machine multiplies and adds at best, measured: what rates of kernels are held
// against.
#pragma once
#include "backends/cpu/machine/cpuid.h"
#include "runtime/thread_pool.h"

namespace mithril::cpu {

/// Operations in a second by `threads` threads of the pool, a fused pair as two; the best of a few
/// tries, about 5 ms.
double measure_peak(runtime::ThreadPool& pool, int threads, bool is_double,
                    Isa isa = default_isa());

}  // namespace mithril::cpu

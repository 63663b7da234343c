// The loops behind peak.h, one pair for each instruction set.
#pragma once
#include <cstdint>

namespace mithril::cpu {

/// Runs `rounds` rounds of independent fused multiply-adds on the widest vectors of an instruction
/// set (generic: multiplications and additions) and says how many operations that were.
struct PeakLoops {
  int64_t (*f32)(int64_t rounds);
  int64_t (*f64)(int64_t rounds);
};

namespace generic {
extern const PeakLoops kPeakLoops;
}
#if defined(__x86_64__)
namespace avx2 {
extern const PeakLoops kPeakLoops;
}
namespace avx512 {
extern const PeakLoops kPeakLoops;
}
#endif

}  // namespace mithril::cpu

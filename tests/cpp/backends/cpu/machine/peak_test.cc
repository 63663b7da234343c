// Covers: backends/cpu/machine/peak_isa.cc
#include "backends/cpu/machine/peak.h"

#include <gtest/gtest.h>

namespace mithril::cpu {
namespace {

TEST(Peak, IsARateOnEveryInstructionSet) {
  runtime::ThreadPool pool(2);
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (!supports(isa)) continue;
    for (const bool is_double : {false, true}) {
      const double rate = measure_peak(pool, 1, is_double, isa);
      EXPECT_GT(rate, 1e6) << name(isa);   // slower than any machine, however busy
      EXPECT_LT(rate, 1e12) << name(isa);  // two units of 16 lanes at 8 GHz are half of it
    }
  }
  EXPECT_GT(measure_peak(pool, 2, false), 1e6);
}

}  // namespace
}  // namespace mithril::cpu

#include "backends/cpu/machine/cpuid.h"

#include <gtest/gtest.h>

#include "backends/cpu/machine/float_env.h"

namespace mithril::cpu {
namespace {

TEST(Cpuid, NamesReadBack) {
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512})
    EXPECT_EQ(parse_isa(name(isa)), isa);
  EXPECT_EQ(parse_isa("sse9"), std::nullopt);
  EXPECT_TRUE(supports(Isa::kGeneric));
}

#if defined(__x86_64__)
TEST(Cpuid, AgreesWithTheCompiler) {
  __builtin_cpu_init();
  EXPECT_EQ(supports(Isa::kAvx2), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(supports(Isa::kAvx512),
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}

TEST(FloatEnvironment, SetsAndRestoresTheControlWord) {
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;
  _mm_setcsr(flushing);
  {
    const FloatEnvironment environment;
    EXPECT_EQ(_mm_getcsr(), 0x1F80u);
  }
  EXPECT_EQ(_mm_getcsr(), flushing);
  _mm_setcsr(before);
}
#endif

}  // namespace
}  // namespace mithril::cpu

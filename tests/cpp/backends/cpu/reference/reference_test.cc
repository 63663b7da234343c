#include "backends/cpu/reference/reference.h"

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

TEST(ReferenceKernels, EachInstructionSetHasItsOwn) {
  const auto isas = supported_isas();
  for (const cpu::Isa a : isas) {
    EXPECT_NE(cpu::reference_kernels(a).f32.matmul, ref_matmul_f32);
    for (const cpu::Isa b : isas) {
      EXPECT_EQ(cpu::reference_kernels(a).f32.matmul == cpu::reference_kernels(b).f32.matmul,
                a == b);
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support

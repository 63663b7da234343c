#include "backends/cpu/reference/reference.h"

namespace mithril::cpu {

const ReferenceKernels& reference_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kReference;
  if (isa == Isa::kAvx512) return avx512::kReference;
#endif
  static_cast<void>(isa);
  return generic::kReference;
}

}  // namespace mithril::cpu

#include "bindings/native_backends.h"

#include "backends/c/target.h"
#include "backends/cpu/target.h"

namespace mithril::bindings {

std::span<const NativeBackend> native_backends() {
  static constexpr NativeBackend kBackends[] = {
      {"cpu", cpu::target, bind_cpu},
      {"c", c::target, bind_c},
      {"opencl", opencl_target, bind_opencl},
      {"cuda", cuda_target, bind_cuda},
  };
  return kBackends;
}

}  // namespace mithril::bindings

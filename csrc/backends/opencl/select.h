// OpenCL as selection sees it: steps say what they compute; what has no kernel runs on the host.
#pragma once
#include <memory>

#include "ir/target.h"
#include "select/backend.h"

namespace mithril::opencl {

class Backend final : public select::Backend {
 public:
  /// `kernels`: those of the device, then those of the host that others fall back to; it outlives
  /// the backend. `threads`: of the host.
  Backend(const select::KernelTable& kernels, int threads) : kernels_(kernels), threads_(threads) {}
  std::string_view name() const override { return "opencl"; }
  const select::KernelTable& kernels() const override { return kernels_; }
  int threads() const override { return threads_; }
  core::Result<std::unique_ptr<const select::LoopKernel>> loop(
      const tile::Program& program) const override;

 private:
  const select::KernelTable& kernels_;
  int threads_;
};

/// The families of kernels that the device has.
std::span<const select::KernelFamily> kernel_families();

}  // namespace mithril::opencl

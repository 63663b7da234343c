// A device as selection sees it: steps say what they compute; what has no kernel runs on the host.
#pragma once
#include <memory>
#include <string>

#include "select/backend.h"

namespace mithril::device {

class Backend final : public select::Backend {
 public:
  /// `kernels`: those of the device, then those of the host that others fall back to; it outlives
  /// the backend. `threads`: of the host.
  Backend(std::string name, const select::KernelTable& kernels, int threads)
      : name_(std::move(name)), kernels_(kernels), threads_(threads) {}
  std::string_view name() const override { return name_; }
  const select::KernelTable& kernels() const override { return kernels_; }
  int threads() const override { return threads_; }
  core::Result<std::unique_ptr<const select::LoopKernel>> loop(
      const tile::Program& program) const override;

 private:
  std::string name_;
  const select::KernelTable& kernels_;
  int threads_;
};

}  // namespace mithril::device

// A device as selection sees it: steps say what they compute; what has no kernel runs on the host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backends/device/dialect.h"
#include "select/backend.h"

namespace mithril::device {

class Backend final : public select::Backend {
 public:
  /// `kernels`: those of the device, then those of the host that others fall back to; it outlives
  /// the backend. `threads`: of the host. `parameter_bytes`: that a kernel takes (PrintOptions).
  Backend(std::string name, const select::KernelTable& kernels, int threads,
          int64_t parameter_bytes)
      : name_(std::move(name)),
        kernels_(kernels),
        threads_(threads),
        most_operands_(static_cast<size_t>(parameter_bytes / kOperandBytes - kOwnOperands)) {}
  std::string_view name() const override { return name_; }
  const select::KernelTable& kernels() const override { return kernels_; }
  int threads() const override { return threads_; }
  size_t most_operands() const override { return most_operands_; }
  core::Result<std::unique_ptr<const select::LoopKernel>> loop(
      const tile::Program& program) const override;

 private:
  std::string name_;
  const select::KernelTable& kernels_;
  int threads_;
  size_t most_operands_;
};

}  // namespace mithril::device

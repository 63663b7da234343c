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

/// Tells whether a kernel of a device can do it without float64: no number is one, nor is computed
/// as one.
bool is_without_doubles(const select::KernelRequest& request);
/// Names what requests must be for a device that has no float64.
inline constexpr select::Condition kWithoutDoubles(is_without_doubles, "float64");

class Backend final : public select::Backend {
 public:
  /// `kernels`: those of the device, then those of the host that others fall back to; it outlives
  /// the backend. `threads`: of the host. `parameter_bytes`: that a kernel takes (PrintOptions).
  /// `doubles`: who makes loops of float64 for a device that has none, on the host; null: it has.
  Backend(std::string name, const select::KernelTable& kernels, int threads,
          int64_t parameter_bytes, std::shared_ptr<const select::Backend> doubles = nullptr)
      : name_(std::move(name)),
        kernels_(kernels),
        threads_(threads),
        doubles_(std::move(doubles)),
        most_operands_(static_cast<size_t>(parameter_bytes / kOperandBytes - kOwnOperands)) {}
  std::string_view name() const override { return name_; }
  const select::KernelTable& kernels() const override { return kernels_; }
  int threads() const override { return threads_; }
  size_t most_operands() const override { return most_operands_; }
  Takes takes() const override;
  core::Result<std::unique_ptr<const select::LoopKernel>> loop(
      const tile::Program& program) const override;

 private:
  std::string name_;
  const select::KernelTable& kernels_;
  int threads_;
  std::shared_ptr<const select::Backend> doubles_;
  size_t most_operands_;
};

}  // namespace mithril::device

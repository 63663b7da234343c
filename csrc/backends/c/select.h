// C as selection sees it: steps say what they compute, for emit/c_plan to print.
#pragma once
#include <memory>

#include "select/backend.h"

namespace mithril::c {

class Backend final : public select::Backend {
 public:
  /// `threads`: of a run.
  explicit Backend(int threads = 1) : threads_(threads) {}
  std::string_view name() const override { return "c"; }
  const select::KernelTable& kernels() const override;
  int threads() const override { return threads_; }
  core::Result<std::unique_ptr<const select::LoopKernel>> loop(
      const tile::Program& program) const override;

 private:
  int threads_;
};

}  // namespace mithril::c

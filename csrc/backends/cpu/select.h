// The CPU as selection sees it.
#pragma once
#include <memory>

#include "backends/cpu/machine/cpuid.h"
#include "ir/target.h"
#include "select/backend.h"

namespace mithril::cpu {

/// Its kernels, and loops for one instruction set.
class Backend final : public select::Backend {
 public:
  explicit Backend(Isa isa = default_isa()) : isa_(isa) {}
  std::string_view name() const override { return "cpu"; }
  std::string_view machine() const override { return cpu::name(isa_); }
  std::string_view take_denial() const override;
  const select::KernelTable& kernels() const override;
  int threads() const override;
  core::Result<std::unique_ptr<const select::LoopKernel>> loop(
      const tile::Program& program) const override;

 private:
  Isa isa_;
};

}  // namespace mithril::cpu

#include "backends/cpu/select.h"

#include "backends/cpu/jit/compile.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loops/interpreter.h"
#include "runtime/thread_pool.h"

namespace mithril::cpu {
namespace {

class LoopKernel final : public select::LoopKernel {
 public:
  explicit LoopKernel(std::shared_ptr<const TileKernel> kernel) : kernel_(std::move(kernel)) {}

  bool can_alias(uint32_t input, uint32_t output) const override {
    return kernel_->can_alias(input, output);
  }

  plan::Step bind(const select::LoopDomain& domain, std::string& note) const override {
    std::vector<OperandStrides> operands;
    for (size_t i = 0; i < domain.kept_strides.size(); ++i) {
      operands.push_back({domain.kept_strides[i], domain.reduced_strides[i]});
    }
    LoopCall loop = make_loop(*kernel_, domain.kept, domain.reduced, operands);
    if (loop.interpreted != nullptr) note = fmt::format("interpreted: {}", loop.interpreted);
    plan::Step step;
    step.kernel = kernel_->function();
    step.params = std::move(loop.params);
    step.units = loop.units;  // each a chunk already
    step.scratch_bytes = loop.scratch_bytes;
    step.data = kernel_;
    return step;
  }

 private:
  std::shared_ptr<const TileKernel> kernel_;
};

}  // namespace

std::string_view Backend::take_denial() const {
  if (!jit::take_jit_denied()) return {};
  return "the system refuses memory for machine code: loops are interpreted, to the same bits";
}

const select::KernelTable& Backend::kernels() const { return kernel_table(); }

int Backend::threads() const { return runtime::ThreadPool::shared().thread_count(); }

core::Result<std::unique_ptr<const select::LoopKernel>> Backend::loop(
    const tile::Program& program) const {
  MITHRIL_ASSIGN(auto kernel, TileKernel::make(program, isa_));
  return std::unique_ptr<const select::LoopKernel>(new LoopKernel(std::move(kernel)));
}

}  // namespace mithril::cpu

#include "backends/device/on_fake.h"

#include "backends/cpu/kernels.h"
#include "backends/cpu/select.h"
#include "backends/device/executable.h"
#include "backends/device/select.h"
#include "passes/pipeline.h"

namespace mithril::device::test {
namespace {

using select::KernelRequest;

bool is_matrix_product(const KernelRequest& request) {
  const auto is_matrix = [](const select::Operand& operand) {
    return operand.dtype == core::DType::kFloat32 && operand.shape.size() == 2;
  };
  return is_matrix(request.inputs[0]) && is_matrix(request.inputs[1]);
}

core::Result<plan::Step> make_product(const KernelRequest& request) {
  plan::FunctionCall call;
  call.name = "matmul";
  call.call = fmt::format("fake_matmul({}, {}, {})", request.inputs[0].shape[0],
                          request.inputs[0].shape[1], request.inputs[1].shape[1]);
  plan::Step step;
  step.units = request.outputs[0].shape[0] * request.outputs[0].shape[1];
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}

constexpr select::KernelDef kKernels[] = {{"matmul",
                                           "fake.matmul",
                                           select::OrderClass::kCanonical,
                                           true,
                                           {is_matrix_product, "matrices of float32"},
                                           make_product}};
std::span<const select::KernelDef> own_kernels() { return kKernels; }
constexpr select::KernelFamily kFamilies[] = {own_kernels};

}  // namespace

const select::KernelTable& fake_kernels() {
  static const select::KernelTable table(kFamilies, &cpu::kernel_table());
  return table;
}

const select::KernelTable& host_kernels() { return cpu::kernel_table(); }

SpecializationOptions on_fake(const std::shared_ptr<FakeDriver>& driver,
                              const select::KernelTable& kernels) {
  SpecializationOptions out;
  out.host = std::make_shared<const cpu::Backend>();
  out.backend = std::make_shared<const Backend>("fake", kernels, 1);
  out.make_executable =
      [driver](plan::Plan plan) -> core::Result<std::shared_ptr<const runtime::Executable>> {
    const auto build = [driver, printed = plan](const std::string& text) {
      return driver->load(text, printed);
    };
    MITHRIL_ASSIGN(auto made, Executable::make(driver, std::move(plan), build));
    return std::shared_ptr<const runtime::Executable>(std::move(made));
  };
  return out;
}

core::Result<ir::Graph> optimized(const ir::Graph& graph, const select::KernelTable& kernels) {
  passes::PipelineOptions options;
  options.verify = true;
  return passes::optimize(graph, select::native_target("fake", core::DType::kFloat32, kernels),
                          options);
}

}  // namespace mithril::device::test

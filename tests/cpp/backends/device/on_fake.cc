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

template <int64_t kBound = 0>
core::Result<plan::Step> make_product(const KernelRequest& request) {
  plan::FunctionCall call;
  call.name = "matmul";
  if constexpr (kBound > 0) {
    call.check = plan::FunctionCall::Check::kIndex;
    call.bound = kBound;
  }
  call.call = fmt::format("fake_matmul({}, {}, {}, 0)", request.inputs[0].shape[0],
                          request.inputs[0].shape[1], request.inputs[1].shape[1]);
  plan::Step step;
  step.units = request.outputs[0].shape[0] * request.outputs[0].shape[1];
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}

// The left matrix is copied to the workspace first, and taken from there.
core::Result<plan::Step> make_product_in_phases(const KernelRequest& request) {
  const int64_t m = request.inputs[0].shape[0], k = request.inputs[0].shape[1];
  const int64_t n = request.inputs[1].shape[1];
  plan::FunctionCall call;
  call.name = "matmul";
  call.in_phases = [m, k, n](const plan::RegisterTile& /*tile*/) {
    return std::vector<plan::FunctionCall::Phase>{
        {fmt::format("fake_copy({}, 0, 3)", m * k), m * k},
        {fmt::format("fake_matmul({}, {}, {}, 3)", m, k, n), m * n}};
  };
  plan::Step step;
  step.units = m * n;
  step.workspace_bytes = m * k * static_cast<int64_t>(sizeof(float));
  step.call = std::make_shared<const plan::Call>(std::move(call));
  return step;
}

constexpr select::Condition kMatrices(is_matrix_product, "matrices of float32");
constexpr select::KernelDef kPhased[] = {{"matmul", "fake.phased", select::OrderClass::kCanonical,
                                          true, kMatrices, make_product_in_phases}};
std::span<const select::KernelDef> phased() { return kPhased; }
constexpr select::KernelFamily kPhasedFamilies[] = {phased};

constexpr select::KernelDef kKernels[] = {
    {"matmul", "fake.matmul", select::OrderClass::kCanonical, true, kMatrices, make_product<>}};
std::span<const select::KernelDef> own_kernels() { return kKernels; }
constexpr select::KernelFamily kFamilies[] = {own_kernels};

constexpr select::KernelDef kChecked[] = {
    {"matmul", "fake.checked", select::OrderClass::kCanonical, true, kMatrices, make_product<3>}};
std::span<const select::KernelDef> checked() { return kChecked; }
constexpr select::KernelFamily kCheckedFamilies[] = {checked};

}  // namespace

const select::KernelTable& fake_kernels() {
  static const select::KernelTable table(kFamilies, &cpu::kernel_table());
  return table;
}

const select::KernelTable& phased_kernels() {
  static const select::KernelTable table(kPhasedFamilies, &cpu::kernel_table());
  return table;
}

const select::KernelTable& checked_kernels() {
  static const select::KernelTable table(kCheckedFamilies, &cpu::kernel_table());
  return table;
}

const select::KernelTable& host_kernels() { return cpu::kernel_table(); }

SpecializationOptions on_fake(const std::shared_ptr<FakeDriver>& driver,
                              const select::KernelTable& kernels) {
  SpecializationOptions out;
  out.host = std::make_shared<const cpu::Backend>();
  out.backend = std::make_shared<const Backend>("fake", kernels, 1, kLeastParameterBytes);
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
  return passes::optimize(
      graph, select::native_target("fake", core::DType::kFloat32, select::composites_of(kernels)),
      options);
}

}  // namespace mithril::device::test

// Pooling and its gradients on the reference's texts.
#include "backends/c/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::c {
namespace {

using select::KernelRequest;

plan::Step pooling(const KernelRequest& request, const ref_pool2d_dims& d, const char* arguments) {
  const std::string suffix = suffix_of(request.outputs[0]);
  plan::FunctionCall call;
  call.name = request.op.name;
  call.texts = {text_of("pool2d", request.outputs[0])};
  call.declarations = declared(d);
  call.call = fmt::format("ref_{}_{}(&d, {}, begin, end)", request.op.name, suffix, arguments);
  plan::Step step = step_of(std::move(call), d.planes,
                            grain_of(d.h_out * d.w_out * d.kh * d.kw + d.h_in * d.w_in));
  step.work.amount = 1.0;  // an operation for each tap
  for (const int64_t size : {d.planes, d.h_out, d.w_out, d.kh, d.kw}) {
    step.work.amount *= static_cast<double>(size);
  }
  return step;
}

core::Result<plan::Step> make_pool(const KernelRequest& request) {
  return pooling(request, select::pool2d_dims(request, request.inputs[0], request.outputs[0]),
                 "a0, a1");
}
core::Result<plan::Step> make_max_gradient(const KernelRequest& request) {
  return pooling(request, select::pool2d_dims(request, request.inputs[0], request.inputs[1]),
                 "a0, a1, a2");
}
core::Result<plan::Step> make_average_gradient(const KernelRequest& request) {
  return pooling(request, select::pool2d_dims(request, request.outputs[0], request.inputs[0]),
                 "a0, a1");
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"max_pool2d", "max_pool2d", kCanonical, true, kRealType, make_pool},
    {"max_pool2d_grad", "max_pool2d_grad", kCanonical, true, kRealType, make_max_gradient},
    {"avg_pool2d", "avg_pool2d", kCanonical, true, kRealType, make_pool},
    {"avg_pool2d_grad", "avg_pool2d_grad", kCanonical, true, kRealType, make_average_gradient},
};

}  // namespace

std::span<const select::KernelDef> pool_kernels() { return kKernels; }

}  // namespace mithril::c

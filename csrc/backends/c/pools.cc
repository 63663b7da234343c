// Pooling and its gradients: maxima row by row, all else on the reference's texts.
#include "backends/c/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::c {
namespace {

using select::KernelRequest;

plan::Step pooling(const KernelRequest& request, const ref_pool2d_dims& d, const char* text,
                   const std::string& function, const char* arguments) {
  plan::FunctionCall call;
  call.name = request.op.name;
  call.texts = {text_of(text, request.outputs[0])};
  call.declarations = declared(d);
  call.call =
      fmt::format("{}_{}(&d, {}, begin, end)", function, suffix_of(request.outputs[0]), arguments);
  plan::Step step = step_of(std::move(call), d.planes,
                            grain_of(d.h_out * d.w_out * d.kh * d.kw + d.h_in * d.w_in));
  step.work.amount = 1.0;  // an operation for each tap
  for (const int64_t size : {d.planes, d.h_out, d.w_out, d.kh, d.kw}) {
    step.work.amount *= static_cast<double>(size);
  }
  return step;
}

plan::Step by_reference(const KernelRequest& request, const ref_pool2d_dims& d,
                        const char* arguments) {
  return pooling(request, d, "pool2d", "ref_" + request.op.name, arguments);
}

core::Result<plan::Step> make_maximum(const KernelRequest& request) {
  const auto d = select::pool2d_dims(request, request.inputs[0], request.outputs[0]);
  return pooling(request, d, "max_pool2d_rows", "max_pool2d_rows", "a0, a1");
}
core::Result<plan::Step> make_average(const KernelRequest& request) {
  const auto d = select::pool2d_dims(request, request.inputs[0], request.outputs[0]);
  return by_reference(request, d, "a0, a1");
}
core::Result<plan::Step> make_max_gradient(const KernelRequest& request) {
  const auto d = select::pool2d_dims(request, request.inputs[0], request.inputs[1]);
  return by_reference(request, d, "a0, a1, a2");
}
core::Result<plan::Step> make_average_gradient(const KernelRequest& request) {
  const auto d = select::pool2d_dims(request, request.outputs[0], request.inputs[0]);
  return by_reference(request, d, "a0, a1");
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"max_pool2d", "max_pool2d", kCanonical, true, kRealType, make_maximum},
    {"max_pool2d_grad", "max_pool2d_grad", kCanonical, true, kRealType, make_max_gradient},
    {"avg_pool2d", "avg_pool2d", kCanonical, true, kRealType, make_average},
    {"avg_pool2d_grad", "avg_pool2d_grad", kCanonical, true, kRealType, make_average_gradient},
};

}  // namespace

std::span<const select::KernelDef> pool_kernels() { return kKernels; }

}  // namespace mithril::c

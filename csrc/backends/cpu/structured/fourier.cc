// Fourier transforms along one axis, a line a unit.
#include <memory>
#include <new>

#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "core/interrupt.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;

using Doubles = std::unique_ptr<double[]>;

/// None where there is no memory.
Doubles doubles(int64_t count) {
  return Doubles(new (std::nothrow) double[static_cast<size_t>(count)]);
}

struct Transform {
  ref_axis_dims dims;
  Doubles table;  // roots of unity: made with the step, read by all threads
  bool has_imag;
  Isa isa;
};

template <class T>
DftKernels::Run<T> kernel_of(Isa isa) {
  if constexpr (sizeof(T) == 4) return reference_kernels(isa).dft.f32;
  if constexpr (sizeof(T) == 8) return reference_kernels(isa).dft.f64;
}

template <class T>
KernelStatus run_real(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& transform = *static_cast<const Transform*>(args.data);
  const DftKernels& all = reference_kernels(transform.isa).dft;
  const auto kernel = [&] {
    if constexpr (sizeof(T) == 4) return all.real_f32;
    if constexpr (sizeof(T) == 8) return all.real_f64;
  }();
  kernel(&transform.dims, transform.table.get(), static_cast<const T*>(args.buffers[0]),
         static_cast<T*>(args.buffers[1]), static_cast<T*>(args.buffers[2]),
         static_cast<double*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& transform = *static_cast<const Transform*>(args.data);
  const int to = transform.has_imag ? 2 : 1;
  const auto* imag = transform.has_imag ? static_cast<const T*>(args.buffers[1]) : nullptr;
  kernel_of<T>(transform.isa)(
      &transform.dims, transform.table.get(), static_cast<const T*>(args.buffers[0]), imag,
      static_cast<T*>(args.buffers[to]), static_cast<T*>(args.buffers[to + 1]),
      static_cast<double*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

/// About four operations for an element in each of the rounds, which double what is done.
int64_t work_of(int64_t n) {
  int64_t rounds = 1;
  for (int64_t done = 1; done < n; done *= 2) ++rounds;
  return n * rounds * 4;
}

template <plan::KernelFn kFloat, plan::KernelFn kDouble>
core::Result<plan::Step> make(const KernelRequest& request) {
  auto transform = std::make_shared<Transform>();
  transform->isa = default_isa();
  transform->dims = select::axis_dims(request, "inverse");
  transform->has_imag = request.inputs.size() > 1 && request.inputs[1].present();
  const DftKernels& kernels = reference_kernels(transform->isa).dft;
  const int64_t n = transform->dims.n, width = kernels.width(n);
  const Doubles scratch = doubles(kernels.scratch(n));
  transform->table = doubles(kernels.table(n));
  if (!transform->table || !scratch) {
    return core::fail(core::ErrorKind::kMemory, core::Code::kOutOfMemory,
                      "dft: no memory for the roots of unity of {} places", n);
  }
  kernels.prepare(n, transform->table.get(), scratch.get());
  core::check_interrupt();  // which makes a table of no use
  plan::Step step;
  step.kernel = request.inputs[0].dtype == DType::kFloat32 ? kFloat : kDouble;
  step.units = transform->dims.outer * transform->dims.inner;
  step.grain = (grain_of(work_of(n)) + width - 1) / width * width;
  step.scratch_bytes = static_cast<size_t>(kernels.scratch(n)) * sizeof(double);
  step.data = std::move(transform);
  return step;
}

constexpr auto kCanonical = select::OrderClass::kCanonical;

const select::KernelDef kKernels[] = {
    {"dft", "dft", kCanonical, true, kRealType, make<run<float>, run<double>>},
    {"rdft", "rdft", kCanonical, true, kRealType, make<run_real<float>, run_real<double>>},
};

}  // namespace

std::span<const select::KernelDef> fourier_kernels() { return kKernels; }

}  // namespace mithril::cpu

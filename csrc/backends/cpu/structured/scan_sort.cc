// Kernels along one axis: recurrences, orders; who wrote a place last, and where masks are true.
#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

struct Axis {
  ref_axis_dims dims;
  int64_t place;  // bytes of a place in the result
  Isa isa;
};

template <class T>
const AxisKernels<T>& kernels_of(Isa isa) {
  const ReferenceKernels& all = reference_kernels(isa);
  if constexpr (std::is_same_v<T, float>) return all.axis_f32;
  if constexpr (std::is_same_v<T, double>) return all.axis_f64;
  if constexpr (std::is_same_v<T, int32_t>) return all.axis_i32;
  if constexpr (std::is_same_v<T, int64_t>) return all.axis_i64;
}

template <class T>
KernelStatus run_scan(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& axis = *static_cast<const Axis*>(args.data);
  kernels_of<T>(axis.isa).linear_scan(&axis.dims, static_cast<const T*>(args.buffers[0]),
                                      static_cast<const T*>(args.buffers[1]),
                                      static_cast<T*>(args.buffers[2]), begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_argsort(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& axis = *static_cast<const Axis*>(args.data);
  kernels_of<T>(axis.isa).argsort(&axis.dims, axis.place, static_cast<const T*>(args.buffers[0]),
                                  args.buffers[1], static_cast<int64_t*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

struct Writers {
  ref_gather_dims dims;
  int64_t place;  // bytes of a place in the result
  Isa isa;
};

template <class Index>
KernelStatus run_writers(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& writers = *static_cast<const Writers*>(args.data);
  const ReferenceKernels& kernels = reference_kernels(writers.isa);
  const auto run = [&] {
    if constexpr (sizeof(Index) == 4) return kernels.last_writers_i32;
    if constexpr (sizeof(Index) == 8) return kernels.last_writers_i64;
  }();
  const auto* index = static_cast<const Index*>(args.buffers[0]);
  const int64_t bad = run(&writers.dims, writers.place, index, args.buffers[1], begin, end);
  if (bad < 0) return KernelStatus::kOk;
  args.error->report(0, bad, static_cast<int64_t>(index[bad]), writers.dims.bound);
  return KernelStatus::kBadData;
}

struct Mask {
  int64_t count;
  Isa isa;
};

template <class Place>
KernelStatus run_places(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& mask = *static_cast<const Mask*>(args.data);
  const ReferenceKernels& kernels = reference_kernels(mask.isa);
  const auto run = [&] {
    if constexpr (sizeof(Place) == 4) return kernels.true_places_i32;
    if constexpr (sizeof(Place) == 8) return kernels.true_places_i64;
  }();
  run(mask.count, static_cast<const unsigned char*>(args.buffers[0]),
      static_cast<Place*>(args.buffers[1]), static_cast<Place*>(args.buffers[2]), begin, end);
  return KernelStatus::kOk;
}

std::shared_ptr<Axis> axis_of(const KernelRequest& request, const char* falling) {
  auto out = std::make_shared<Axis>();
  out->dims = select::axis_dims(request, falling);
  out->place = static_cast<int64_t>(core::size_of(request.outputs[0].dtype));
  out->isa = default_isa();
  return out;
}

/// The instance for the type of the first operand.
template <plan::KernelFn kFloat, plan::KernelFn kDouble, plan::KernelFn kInt, plan::KernelFn kLong>
plan::KernelFn instance(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (dtype == DType::kFloat32) return kFloat;
  if (dtype == DType::kFloat64) return kDouble;
  return dtype == DType::kInt32 ? kInt : kLong;
}

core::Result<plan::Step> make_scan(const KernelRequest& request) {
  auto axis = axis_of(request, "reverse");
  plan::Step step;
  step.kernel =
      instance<run_scan<float>, run_scan<double>, run_scan<int32_t>, run_scan<int64_t>>(request);
  step.units = axis->dims.outer * axis->dims.inner;
  step.grain = grain_of(axis->dims.n);
  step.data = std::move(axis);
  return step;
}

core::Result<plan::Step> make_argsort(const KernelRequest& request) {
  constexpr int64_t kWorkOfElement = 16;  // about the rounds of merging
  auto axis = axis_of(request, "descending");
  plan::Step step;
  step.kernel =
      instance<run_argsort<float>, run_argsort<double>, run_argsort<int32_t>, run_argsort<int64_t>>(
          request);
  step.units = axis->dims.outer * axis->dims.inner;
  step.grain = grain_of(axis->dims.n * kWorkOfElement);
  step.scratch_bytes = static_cast<size_t>(2 * axis->dims.n) * sizeof(int64_t);
  step.data = std::move(axis);
  return step;
}

core::Result<plan::Step> make_writers(const KernelRequest& request) {
  const Operand& indices = request.inputs[0];
  auto writers = std::make_shared<Writers>();
  const int64_t bound = request.outputs[0].shape[0];
  writers->dims = select::gather_dims({bound}, indices.shape);
  writers->place = static_cast<int64_t>(core::size_of(request.outputs[0].dtype));
  writers->isa = default_isa();
  plan::Step step;
  step.kernel = indices.dtype == DType::kInt32 ? run_writers<int32_t> : run_writers<int64_t>;
  step.units = bound;
  step.grain = std::max<int64_t>(bound, 1);  // each chunk would read all indices
  step.may_fail_on_data = true;
  step.data = std::move(writers);
  return step;
}

core::Result<plan::Step> make_places(const KernelRequest& request) {
  const Operand& places = request.outputs[0];
  plan::Step step;
  step.kernel = places.dtype == DType::kInt32 ? run_places<int32_t> : run_places<int64_t>;
  step.units = step.grain = 1;
  step.data = std::make_shared<Mask>(Mask{places.shape[0], default_isa()});
  return step;
}

constexpr auto kCanonical = select::OrderClass::kCanonical;

const select::KernelDef kKernels[] = {
    {"linear_scan", "linear_scan", kCanonical, true, select::kNumberType, make_scan},
    {"argsort", "argsort", kCanonical, true, select::kNumberType, make_argsort},
    {"last_writers", "last_writers", kCanonical, true, select::kIndices<0>, make_writers},
    {"bounded_places", "bounded_places", kCanonical, true, nullptr, make_places},
};

}  // namespace

std::span<const select::KernelDef> axis_kernels() { return kKernels; }

}  // namespace mithril::cpu

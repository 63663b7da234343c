// The rows of convolution, pooling and their gradients; what convolution.h does not take runs on
// the reference kernels.
#include <limits>

#include "backends/cpu/conv/convolution.h"
#include "backends/cpu/conv/pooling.h"
#include "backends/cpu/conv/winograd.h"
#include "backends/cpu/conv/winograd_gradient.h"
#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;

// ---------------------------------------------------------------- three operands: convolution

template <class T>
using ConvFn = void (*)(const ref_conv2d_dims*, const T*, const T*, T*, int64_t, int64_t);

template <class T>
struct Convolution {
  ref_conv2d_dims dims;
  ConvFn<T> run;
};

template <class T>
KernelStatus run_convolution(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& conv = *static_cast<const Convolution<T>*>(args.data);
  conv.run(&conv.dims, static_cast<const T*>(args.buffers[0]),
           static_cast<const T*>(args.buffers[1]), static_cast<T*>(args.buffers[2]), begin, end);
  return KernelStatus::kOk;
}

// The taps that lie on the padding are counted, too, as the textbook does.
plan::Work work_of(const ref_conv2d_dims& d) {
  double amount = 2.0;
  for (const int64_t size : {d.batch, d.groups, d.c_out, d.h_out, d.w_out, d.c_in, d.kh, d.kw}) {
    amount *= static_cast<double>(size);
  }
  return {amount, plan::Work::Unit::kFlops};
}

template <class T>
plan::Step convolution_step(const ref_conv2d_dims& dims, ConvFn<T> run, int64_t units,
                            int64_t work) {
  plan::Step step;
  step.kernel = run_convolution<T>;
  step.units = units;
  step.grain = grain_of(work);
  step.data = std::make_shared<const Convolution<T>>(Convolution<T>{dims, run});
  step.work = work_of(dims);
  return step;
}

// `pick` chooses the function of the kernels of either type.
template <class Pick>
plan::Step real_convolution(const KernelRequest& request, const ref_conv2d_dims& dims,
                            int64_t units, int64_t work, const Pick& pick) {
  const ReferenceKernels& kernels = reference_kernels(default_isa());
  return request.outputs[0].dtype == DType::kFloat32
             ? convolution_step<float>(dims, pick(kernels.f32), units, work)
             : convolution_step<double>(dims, pick(kernels.f64), units, work);
}

// The step of convolution.h with what it computes.
core::Result<plan::Step> with_work(core::Result<plan::Step> step, const ref_conv2d_dims& dims) {
  if (step.ok()) step->work = work_of(dims);
  return step;
}

bool is_blocked(const KernelRequest& request) {
  return has_real_type(request) && fits_convolution(select::conv2d_dims(request));
}
bool is_blocked_dx(const KernelRequest& request) {
  return has_real_type(request) && fits_convolution(select::conv2d_dx_dims(request));
}
bool is_blocked_dw(const KernelRequest& request) {
  return has_real_type(request) && fits_convolution(select::conv2d_dw_dims(request));
}

core::Result<plan::Step> make_blocked(const KernelRequest& request) {
  const auto d = select::conv2d_dims(request);
  return with_work(make_convolution(d, request.outputs[0].dtype, request.threads,
                                    request.inputs[1].constant, request.epilogue),
                   d);
}
core::Result<plan::Step> make_blocked_dx(const KernelRequest& request) {
  const auto d = select::conv2d_dx_dims(request);
  return with_work(make_input_gradient(d, request.outputs[0].dtype, request.threads), d);
}
core::Result<plan::Step> make_blocked_dw(const KernelRequest& request) {
  const auto d = select::conv2d_dw_dims(request);
  return with_work(make_weight_gradient(d, request.outputs[0].dtype, request.threads), d);
}

// Filters are the second operand of both: of a convolution, and of the gradient of its input.
const float* constant_filters(const KernelRequest& request) {
  return reinterpret_cast<const float*>(request.inputs[1].constant);
}

bool takes_tiles(const KernelRequest& request, const std::vector<int64_t>& filters) {
  const auto is_one = [&](const char* attr, size_t axis) {
    return select::item(request, attr, axis) == 1;
  };
  return request.outputs[0].dtype == DType::kFloat32 &&
         request.node.attrs.find("groups")->as_int() == 1 && filters[2] == 3 && filters[3] == 3 &&
         is_one("stride", 0) && is_one("stride", 1) && is_one("dilation", 0) &&
         is_one("dilation", 1);
}

WinogradDims tiles_of_forward(const KernelRequest& request) {
  return forward_dims(select::conv2d_dims(request));
}
WinogradDims tiles_of_input_gradient(const KernelRequest& request) {
  return input_gradient_dims(select::conv2d_dx_dims(request));
}

int64_t tile_of(const WinogradDims& dims, const KernelRequest& request) {
  return winograd_tile(dims, request.inputs[1].constant != nullptr);
}
template <WinogradDims (*dims)(const KernelRequest&)>
bool prefers_tiles(const KernelRequest& request) {
  return takes_tiles(request, request.inputs[1].shape) && tile_of(dims(request), request) != 0;
}
bool prefers_tiles_dw(const KernelRequest& request) {
  return takes_tiles(request, request.outputs[0].shape) &&
         prefers_winograd_gradient(select::conv2d_dw_dims(request));
}
core::Result<plan::Step> make_tiles(const KernelRequest& request) {
  const WinogradDims dims = tiles_of_forward(request);
  return with_work(make_winograd(dims, tile_of(dims, request), request.threads,
                                 constant_filters(request), request.epilogue),
                   select::conv2d_dims(request));
}
core::Result<plan::Step> make_tiles_dx(const KernelRequest& request) {
  const WinogradDims dims = tiles_of_input_gradient(request);
  return with_work(make_winograd(dims, tile_of(dims, request), request.threads,
                                 constant_filters(request), request.epilogue),
                   select::conv2d_dx_dims(request));
}

core::Result<plan::Step> make_tiles_dw(const KernelRequest& request) {
  const auto d = select::conv2d_dw_dims(request);
  return with_work(make_winograd_gradient(d, request.threads), d);
}

core::Result<plan::Step> make_conv2d(const KernelRequest& request) {
  const auto d = select::conv2d_dims(request);
  return real_convolution(request, d, d.batch * d.groups * d.c_out * d.h_out,
                          d.w_out * d.c_in * d.kh * d.kw,
                          [](const auto& kernels) { return kernels.conv2d; });
}

core::Result<plan::Step> make_conv2d_dx(const KernelRequest& request) {
  const auto d = select::conv2d_dx_dims(request);
  return real_convolution(request, d, d.batch * d.groups * d.c_in * d.h_in,
                          d.w_in * d.c_out * d.kh * d.kw,
                          [](const auto& kernels) { return kernels.conv2d_dx; });
}

core::Result<plan::Step> make_conv2d_dw(const KernelRequest& request) {
  const auto d = select::conv2d_dw_dims(request);
  const int64_t units = ref_conv2d_dw_units(&d);
  const int64_t all = d.batch * d.groups * d.c_out * d.c_in * d.kh * d.kw * d.h_out * d.w_out;
  return real_convolution(request, d, units, all / std::max<int64_t>(units, 1),
                          [](const auto& kernels) { return kernels.conv2d_dw; });
}

// ---------------------------------------------------------------- pooling

template <class T>
struct Pooling {
  ref_pool2d_dims dims;
  void (*one)(const ref_pool2d_dims*, const T*, T*, int64_t, int64_t) = nullptr;
  void (*two)(const ref_pool2d_dims*, const T*, const T*, T*, int64_t, int64_t) = nullptr;
};

template <class T>
KernelStatus run_pooling(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& pool = *static_cast<const Pooling<T>*>(args.data);
  const auto* first = static_cast<const T*>(args.buffers[0]);
  if (pool.one != nullptr) {
    pool.one(&pool.dims, first, static_cast<T*>(args.buffers[1]), begin, end);
  } else {
    pool.two(&pool.dims, first, static_cast<const T*>(args.buffers[1]),
             static_cast<T*>(args.buffers[2]), begin, end);
  }
  return KernelStatus::kOk;
}

template <class T>
plan::Step pooling_step(Pooling<T> pooling) {
  const ref_pool2d_dims& d = pooling.dims;
  plan::Step step;
  step.kernel = run_pooling<T>;
  step.units = d.planes;
  step.grain = grain_of(d.h_out * d.w_out * d.kh * d.kw + d.h_in * d.w_in);
  step.work.amount = 1.0;  // an operation for each tap
  for (const int64_t size : {d.planes, d.h_out, d.w_out, d.kh, d.kw}) {
    step.work.amount *= static_cast<double>(size);
  }
  step.data = std::make_shared<const Pooling<T>>(pooling);
  return step;
}

// `fill` sets the function of a Pooling from the kernels of its type.
template <class Fill>
plan::Step real_pooling(const KernelRequest& request, const ref_pool2d_dims& dims,
                        const Fill& fill) {
  const ReferenceKernels& kernels = reference_kernels(default_isa());
  if (request.outputs[0].dtype == DType::kFloat32) {
    Pooling<float> pooling{dims};
    fill(pooling, kernels.f32);
    return pooling_step(pooling);
  }
  Pooling<double> pooling{dims};
  fill(pooling, kernels.f64);
  return pooling_step(pooling);
}

// Forward. `pick` chooses the function of the pools of either type.
template <class Pick>
core::Result<plan::Step> pool(const KernelRequest& request, const Pick& pick) {
  const ref_pool2d_dims dims = select::pool2d_dims(request, request.inputs[0], request.outputs[0]);
  const PoolTable& table = pools(default_isa());
  return request.outputs[0].dtype == DType::kFloat32
             ? pooling_step(Pooling<float>{dims, pick(table.f32)})
             : pooling_step(Pooling<double>{dims, pick(table.f64)});
}

core::Result<plan::Step> make_max_pool2d(const KernelRequest& request) {
  return pool(request, [](const auto& pools) { return pools.max; });
}

template <class T>
plan::Step max_gradient_step(const ref_pool2d_dims& d, const Pools<T>& pools,
                             const RealKernels<T>& reference) {
  Pooling<T> pooling{d};
  const bool is_small = d.h_in * d.w_in <= std::numeric_limits<int32_t>::max();
  pooling.two = is_small ? pools.max_gradient : reference.max_pool2d_grad;
  return pooling_step(pooling);
}

core::Result<plan::Step> make_max_pool2d_grad(const KernelRequest& request) {
  const ref_pool2d_dims d = select::pool2d_dims(request, request.inputs[0], request.inputs[1]);
  const PoolTable& table = pools(default_isa());
  const ReferenceKernels& kernels = reference_kernels(default_isa());
  return request.outputs[0].dtype == DType::kFloat32 ? max_gradient_step(d, table.f32, kernels.f32)
                                                     : max_gradient_step(d, table.f64, kernels.f64);
}

core::Result<plan::Step> make_avg_pool2d(const KernelRequest& request) {
  return pool(request, [](const auto& pools) { return pools.average; });
}

core::Result<plan::Step> make_avg_pool2d_grad(const KernelRequest& request) {
  return real_pooling(request, select::pool2d_dims(request, request.outputs[0], request.inputs[0]),
                      [](auto& pooling, const auto& k) { pooling.one = k.avg_pool2d_grad; });
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
constexpr const char* kSomething = "elements of float32 or float64, and a product to form";
constexpr select::Condition kBlocked(is_blocked, kSomething);
constexpr select::Condition kBlockedDw(is_blocked_dw, kSomething);
constexpr select::Condition kBlockedDx(is_blocked_dx, kSomething);
constexpr const char* kWindows =
    "float32, windows of 3x3 without strides, dilations and groups, and time to be saved by tiles";
constexpr select::Condition kTiles(prefers_tiles<tiles_of_forward>, kWindows);
constexpr select::Condition kTilesDx(prefers_tiles<tiles_of_input_gradient>, kWindows);
constexpr select::Condition kTilesDw(prefers_tiles_dw, kWindows);
constexpr auto kOther = select::OrderClass::kOther;
const select::KernelDef kKernels[] = {
    {"conv2d", "conv2d.winograd", kOther, true, kTiles, make_tiles,
     select::EpilogueSupport::kBlocks},
    {"conv2d_dx", "conv2d_dx.winograd", kOther, true, kTilesDx, make_tiles_dx,
     select::EpilogueSupport::kBlocks},
    {"conv2d", "conv2d", kCanonical, true, kBlocked, make_blocked,
     select::EpilogueSupport::kBlocks},
    {"conv2d", "conv2d.reference", kCanonical, true, kRealType, make_conv2d},
    {"conv2d_dx", "conv2d_dx", kCanonical, true, kBlockedDx, make_blocked_dx},
    {"conv2d_dx", "conv2d_dx.reference", kCanonical, true, kRealType, make_conv2d_dx},
    {"conv2d_dw", "conv2d_dw.winograd", kOther, true, kTilesDw, make_tiles_dw},
    {"conv2d_dw", "conv2d_dw", kCanonical, true, kBlockedDw, make_blocked_dw},
    {"conv2d_dw", "conv2d_dw.reference", kCanonical, true, kRealType, make_conv2d_dw},
    {"max_pool2d", "max_pool2d", kCanonical, true, kRealType, make_max_pool2d},
    {"max_pool2d_grad", "max_pool2d_grad", kCanonical, true, kRealType, make_max_pool2d_grad},
    {"avg_pool2d", "avg_pool2d", kCanonical, true, kRealType, make_avg_pool2d},
    {"avg_pool2d_grad", "avg_pool2d_grad", kCanonical, true, kRealType, make_avg_pool2d_grad},
};

}  // namespace

std::span<const select::KernelDef> window_kernels() { return kKernels; }

}  // namespace mithril::cpu

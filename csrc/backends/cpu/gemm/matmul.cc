// Matrix products: strided operands read in place, batches broadcast by stride 0.
#include <algorithm>
#include <optional>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/product_epilogue.h"
#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "plan/cost.h"
#include "runtime/buffer.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;

template <class T>
struct Product {
  ref_matmul_dims dims;
  void (*run)(const ref_matmul_dims*, const T*, const T*, T*, int64_t, int64_t);
};

template <class T>
KernelStatus run_product(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& product = *static_cast<const Product<T>*>(args.data);
  product.run(&product.dims, static_cast<const T*>(args.buffers[0]),
              static_cast<const T*>(args.buffers[1]), static_cast<T*>(args.buffers[2]), begin, end);
  return KernelStatus::kOk;
}

// 2 m n k for each matrix.
plan::Work work_of(const ref_matmul_dims& dims) {
  double amount = 2.0;
  for (const int64_t size : {dims.m, dims.n, dims.k}) amount *= static_cast<double>(size);
  for (int64_t i = 0; i < dims.batch_rank; ++i) amount *= static_cast<double>(dims.batch[i]);
  return {amount, plan::Work::Unit::kFlops};
}

template <class T>
core::Result<plan::Step> make_product(const KernelRequest& request, decltype(Product<T>::run) run) {
  auto product = std::make_shared<Product<T>>();
  product->dims = select::matmul_dims(request);
  product->run = run;
  const ref_matmul_dims& dims = product->dims;
  plan::Step step;
  step.kernel = run_product<T>;
  step.units = dims.m;
  for (int64_t i = 0; i < dims.batch_rank; ++i) step.units *= dims.batch[i];
  step.grain = grain_of(dims.n * dims.k);
  step.work = work_of(dims);
  step.data = std::move(product);
  return step;
}

bool fits_rank(const KernelRequest& request) {
  return request.inputs[0].shape.size() <= REF_MAX_RANK &&
         request.inputs[1].shape.size() <= REF_MAX_RANK;
}

core::Result<plan::Step> make_integer(const KernelRequest& request) {
  const ReferenceKernels& kernels = reference_kernels(default_isa());
  return request.outputs[0].dtype == DType::kInt32
             ? make_product<int32_t>(request, kernels.matmul_i32)
             : make_product<int64_t>(request, kernels.matmul_i64);
}

// ---------------------------------------------------------------- blocked

template <class T>
struct BlockedProduct {
  ref_matmul_dims batches;  // batch sizes and strides
  Gemm<T> gemm;
  runtime::Buffer packed;  // the right operand, if it is constant
  std::optional<ProductEpilogue> epilogue;
  size_t epilogue_scratch = 0;  // where that of the epilogue begins
};

// A matrix of the batch, by its index along each axis.
struct BatchIndex {
  BatchIndex(const ref_matmul_dims& dims, int64_t number) : rank(dims.batch_rank) {
    for (int64_t i = rank - 1; i >= 0; --i) {
      at[i] = number % dims.batch[i];
      number /= dims.batch[i];
    }
  }
  int64_t offset(const int64_t* strides) const {
    int64_t out = 0;
    for (int64_t i = 0; i < rank; ++i) out += at[i] * strides[i];
    return out;
  }
  int64_t rank;
  int64_t at[REF_MAX_RANK];
};

template <class T>
Epilogue<T> epilogue_of(const BlockedProduct<T>& product, const KernelArgs& args,
                        const BatchIndex& batch) {
  if (!product.epilogue) return {};
  auto* const scratch = static_cast<char*>(args.scratch) + product.epilogue_scratch;
  return {ProductEpilogue::run<T>, product.epilogue->prepare(args.buffers, batch.at, scratch)};
}

template <class T>
KernelStatus run_blocked(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& product = *static_cast<const BlockedProduct<T>*>(args.data);
  const int64_t units = product.gemm.units();
  for (int64_t unit = begin; unit < end; ++unit) {
    const ref_matmul_dims& dims = product.batches;
    const BatchIndex batch(dims, unit / units);
    const T* left = static_cast<const T*>(args.buffers[0]) + batch.offset(dims.a_batch);
    const T* right = product.packed
                         ? reinterpret_cast<const T*>(product.packed.data())
                         : static_cast<const T*>(args.buffers[1]) + batch.offset(dims.b_batch);
    T* to = static_cast<T*>(args.buffers[2]) + batch.offset(dims.c_batch);
    product.gemm.run(unit % units, left, right, to, epilogue_of(product, args, batch),
                     args.scratch);
  }
  return KernelStatus::kOk;
}

// A constant matrix that is the same for all batches is packed once. Few rows read it too seldom.
bool packs_right(const KernelRequest& request, const ref_matmul_dims& dims) {
  constexpr int64_t kFewestRows = 8;
  constexpr int64_t kFewestElements = 64 * 64;
  const int64_t* end = dims.b_batch + dims.batch_rank;
  return request.inputs[1].constant != nullptr && dims.m >= kFewestRows &&
         dims.n * dims.k >= kFewestElements &&
         std::all_of(dims.b_batch, end, [](int64_t stride) { return stride == 0; });
}

template <class T>
core::Result<plan::Step> make_blocked(const KernelRequest& request) {
  const ref_matmul_dims dims = select::matmul_dims(request);
  const GemmDims one = {dims.m,     dims.n,     dims.k,     dims.a_row,
                        dims.a_col, dims.b_row, dims.b_col, dims.c_row};
  GemmOptions options{.threads = request.threads};
  if (packs_right(request, dims)) options.constant = GemmConstant::kRight;
  auto product = std::make_shared<BlockedProduct<T>>(
      BlockedProduct<T>{dims, Gemm<T>(default_isa(), one, options), {}, {}});
  if (const int64_t size = product->gemm.packed_size(); size > 0) {
    MITHRIL_ASSIGN(product->packed, runtime::Buffer::make(static_cast<size_t>(size) * sizeof(T)));
    product->gemm.pack_constant(reinterpret_cast<const T*>(request.inputs[1].constant),
                                reinterpret_cast<T*>(product->packed.data()));
  }
  plan::Step step;
  step.scratch_bytes = product->gemm.scratch_bytes();
  if (request.epilogue != nullptr) {
    constexpr size_t kResult = 2;  // behind the operands
    product->epilogue_scratch = (step.scratch_bytes + 63) / 64 * 64;
    MITHRIL_ASSIGN(product->epilogue,
                   ProductEpilogue::make(*request.epilogue, static_cast<size_t>(dims.batch_rank),
                                         dims.n == 1, kResult));
    step.scratch_bytes = product->epilogue_scratch + product->epilogue->scratch_bytes();
  }
  step.kernel = run_blocked<T>;
  step.units = product->gemm.units();
  for (int64_t i = 0; i < dims.batch_rank; ++i) step.units *= dims.batch[i];
  const int64_t work = dims.m * dims.n * dims.k / std::max<int64_t>(product->gemm.units(), 1);
  step.grain = grain_of(work / 8);  // vectors of at least 8
  step.work = work_of(dims);
  step.nanoseconds = step.work.amount / plan::kFlopsPerNanosecond;
  step.data = std::move(product);
  return step;
}

core::Result<plan::Step> make_gemm(const KernelRequest& request) {
  return request.outputs[0].dtype == DType::kFloat32 ? make_blocked<float>(request)
                                                     : make_blocked<double>(request);
}

bool has_gemm(const KernelRequest& request) {
  const DType dtype = request.outputs[0].dtype;
  return fits_rank(request) && (dtype == DType::kFloat32 || dtype == DType::kFloat64);
}

bool has_integer(const KernelRequest& request) {
  const DType dtype = request.outputs[0].dtype;
  return fits_rank(request) && (dtype == DType::kInt32 || dtype == DType::kInt64);
}

constexpr select::Condition kGemm(has_gemm, "elements of float32 or float64, at most 16 axes");
constexpr select::Condition kInteger(has_integer, "elements of int32 or int64, at most 16 axes");
static_assert(REF_MAX_RANK == 16);
const select::KernelDef kKernels[] = {
    {"matmul", "gemm", select::OrderClass::kCanonical, false, kGemm, make_gemm,
     select::EpilogueSupport::kBlocks},
    {"matmul", "matmul.integer", select::OrderClass::kCanonical, false, kInteger, make_integer},
};

}  // namespace

std::span<const select::KernelDef> matmul_kernels() { return kKernels; }

}  // namespace mithril::cpu

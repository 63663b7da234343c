// Square matrices: factors, solutions, determinants and eigenvalues, a matrix a unit.
#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::BadData;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

struct Matrices {
  ref_linalg_dims dims;
  Isa isa;
};

const Matrices& matrices_of(const KernelArgs& args) {
  return *static_cast<const Matrices*>(args.data);
}

template <class T>
const T* in(const KernelArgs& args, int at) {
  return static_cast<const T*>(args.buffers[at]);
}

template <class T>
T* out(const KernelArgs& args, int at) {
  return static_cast<T*>(args.buffers[at]);
}

KernelStatus checked(const KernelArgs& args, BadData why, int64_t bad) {
  if (bad < 0) return KernelStatus::kOk;
  args.error->report_matrix(why, bad);
  return KernelStatus::kBadData;
}

template <class T>
KernelStatus run_cholesky(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  const int64_t bad =
      real_kernels<T>(m.isa).cholesky(&m.dims, in<T>(args, 0), out<T>(args, 1), begin, end);
  return checked(args, BadData::kNotPositiveDefinite, bad);
}

template <class T>
KernelStatus run_solve_triangular(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).solve_triangular(&m.dims, in<T>(args, 0), in<T>(args, 1), out<T>(args, 2),
                                          begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_solve(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  const int64_t bad =
      real_kernels<T>(m.isa).solve(&m.dims, in<T>(args, 0), in<T>(args, 1), out<T>(args, 2),
                                   static_cast<T*>(args.scratch), begin, end);
  return checked(args, BadData::kSingular, bad);
}

template <class T>
KernelStatus run_det(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).det(&m.dims, in<T>(args, 0), out<T>(args, 1),
                             static_cast<T*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_scaled_det(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).scaled_det(&m.dims, in<T>(args, 0), out<T>(args, 1), out<T>(args, 2),
                                    static_cast<T*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_cofactor(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).cofactor(&m.dims, in<T>(args, 0), out<T>(args, 1),
                                  static_cast<T*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_eigh(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).eigh(&m.dims, in<T>(args, 0), out<T>(args, 1), out<T>(args, 2),
                              static_cast<T*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

/// A step over the matrices of the first input; the last input's columns are the right hand side.
template <plan::KernelFn kFloat, plan::KernelFn kDouble, bool kHasScratch>
core::Result<plan::Step> make(const KernelRequest& request) {
  const Operand& matrix = request.inputs[0];
  auto matrices = std::make_shared<Matrices>();
  const ref_linalg_dims& dims = matrices->dims = select::linalg_dims(request);
  matrices->isa = default_isa();
  const auto element = static_cast<int64_t>(core::size_of(matrix.dtype));
  plan::Step step;
  step.kernel = matrix.dtype == DType::kFloat32 ? kFloat : kDouble;
  step.units = dims.batch;
  step.grain = grain_of(dims.n * dims.n * std::max(dims.n, dims.k));
  step.may_fail_on_data = request.op.name == "cholesky" || request.op.name == "solve";
  if (kHasScratch) step.scratch_bytes = dims.n * dims.n * element;
  step.data = std::move(matrices);
  return step;
}

/// The same for n columns, with scratch for two matrices and the places of columns.
core::Result<plan::Step> make_cofactor(const KernelRequest& request) {
  MITHRIL_ASSIGN(plan::Step step,
                 (make<run_cofactor<float>, run_cofactor<double>, false>(request)));
  const int64_t n = request.inputs[0].shape.back();
  step.grain = grain_of(2 * n * n * n);
  step.scratch_bytes = static_cast<size_t>(2 * n * n + n) * core::size_of(request.inputs[0].dtype);
  return step;
}

template <class T>
KernelStatus run_qr(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).qr(&m.dims, in<T>(args, 0), out<T>(args, 1), out<T>(args, 2),
                            static_cast<T*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_svd(const KernelArgs& args, int64_t begin, int64_t end) {
  const Matrices& m = matrices_of(args);
  real_kernels<T>(m.isa).svd(&m.dims, in<T>(args, 0), out<T>(args, 1), out<T>(args, 2),
                             out<T>(args, 3), static_cast<T*>(args.scratch), begin, end);
  return KernelStatus::kOk;
}

/// A step over matrices of n rows and k columns, with scratch for a copy and what goes with it.
template <plan::KernelFn kFloat, plan::KernelFn kDouble>
core::Result<plan::Step> make_factors(const KernelRequest& request) {
  MITHRIL_ASSIGN(plan::Step step, (make<kFloat, kDouble, false>(request)));
  auto matrices = std::make_shared<Matrices>(*static_cast<const Matrices*>(step.data.get()));
  matrices->dims = select::factor_dims(request);
  const int64_t n = matrices->dims.n, k = matrices->dims.k, p = std::min(n, k);
  step.grain = grain_of(n * k * std::max<int64_t>(p, 1));
  step.scratch_bytes = static_cast<size_t>(n * k + p * std::max<int64_t>(p, 3)) *
                       core::size_of(request.inputs[0].dtype);
  step.data = std::move(matrices);
  return step;
}

constexpr auto kCanonical = select::OrderClass::kCanonical;

const select::KernelDef kKernels[] = {
    {"cholesky", "cholesky", kCanonical, true, kRealType,
     make<run_cholesky<float>, run_cholesky<double>, false>},
    {"solve_triangular", "solve_triangular", kCanonical, true, kRealType,
     make<run_solve_triangular<float>, run_solve_triangular<double>, false>},
    {"solve", "solve", kCanonical, true, kRealType,
     make<run_solve<float>, run_solve<double>, true>},
    {"det", "det", kCanonical, true, kRealType, make<run_det<float>, run_det<double>, true>},
    {"scaled_det", "scaled_det", kCanonical, true, kRealType,
     make<run_scaled_det<float>, run_scaled_det<double>, true>},
    {"cofactor", "cofactor", kCanonical, true, kRealType, make_cofactor},
    {"eigh", "eigh", kCanonical, true, kRealType, make<run_eigh<float>, run_eigh<double>, true>},
    {"qr", "qr", kCanonical, true, kRealType, make_factors<run_qr<float>, run_qr<double>>},
    {"svd", "svd", kCanonical, true, kRealType, make_factors<run_svd<float>, run_svd<double>>},
};

}  // namespace

std::span<const select::KernelDef> linalg_kernels() { return kKernels; }

}  // namespace mithril::cpu

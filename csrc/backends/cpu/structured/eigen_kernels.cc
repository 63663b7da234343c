// Linear algebra of Eigen as kernels: for small matrices, where its algorithms need fewer
// operations than the canonical kernels and less preparation than LAPACK.
#define EIGEN_MPL2_ONLY
#include <Eigen/Eigenvalues>

#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "core/interrupt.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::Condition;
using select::KernelRequest;

// Measured on both types: below the first of each the canonical kernels are as fast, from the
// second on LAPACK is.
constexpr int64_t kLeastEigh = 6, kEndEigh = 48;
constexpr int64_t kLeastTriangle = 16, kEndTriangle = 256;

struct Matrices {
  ref_linalg_dims dims;
  Isa isa;  // of the canonical kernels, which take what Eigen does not
};

template <class T>
using Symmetric =
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor, kEndEigh - 1, kEndEigh - 1>;
template <class T>
using Rows = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
template <class T>
using Column = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>>;

/// Writes rising values, and vectors whose component of the largest magnitude (the first of
/// equals) is positive. Returns whether the QR iteration converged.
template <class T>
bool eigenvalues(int64_t n, T* x, T* values, T* vectors) {
  const Rows<T> from(x, n, n);
  const Symmetric<T> symmetric = (from + from.transpose()) * T{0.5};
  if (!symmetric.allFinite()) return false;
  const Eigen::SelfAdjointEigenSolver<Symmetric<T>> solver(symmetric);
  if (solver.info() != Eigen::Success) return false;
  Column<T>(values, n) = solver.eigenvalues();
  Rows<T> to(vectors, n, n);
  for (int64_t j = 0; j < n; ++j) {
    const auto vector = solver.eigenvectors().col(j);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    to.col(j) = vector[largest] < 0 ? T{-1} * vector : T{1} * vector;
  }
  return true;
}

/// Solves for one column; returns false for what Eigen takes other than IEEE's rules have it: it
/// leaves out products with zeros, so that 0 / 0 and 0 * inf would be 0.
template <class T>
bool solve_triangle(const ref_linalg_dims& dims, T* matrix, T* column, T* solution) {
  const Rows<T> a(matrix, dims.n, dims.n);
  const Column<T> b(column, dims.n);
  if (!a.allFinite() || !b.allFinite() || (a.diagonal().array() == 0).any()) return false;
  Column<T> x(solution, dims.n);
  x = b;
  if (dims.lower && dims.transposed) {
    a.template triangularView<Eigen::Lower>().transpose().solveInPlace(x);
  } else if (dims.lower) {
    a.template triangularView<Eigen::Lower>().solveInPlace(x);
  } else if (dims.transposed) {
    a.template triangularView<Eigen::Upper>().transpose().solveInPlace(x);
  } else {
    a.template triangularView<Eigen::Upper>().solveInPlace(x);
  }
  return true;
}

template <class T>
T* at(const KernelArgs& args, int buffer, int64_t element) {
  return static_cast<T*>(args.buffers[buffer]) + element;
}

template <class T>
KernelStatus run_eigh(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& m = *static_cast<const Matrices*>(args.data);
  const int64_t n = m.dims.n;
  for (int64_t unit = begin; unit < end; ++unit) {
    if (core::is_interrupted()) return KernelStatus::kCancelled;
    if (eigenvalues(n, at<T>(args, 0, unit * n * n), at<T>(args, 1, unit * n),
                    at<T>(args, 2, unit * n * n))) {
      continue;
    }
    real_kernels<T>(m.isa).eigh(&m.dims, at<T>(args, 0, 0), at<T>(args, 1, 0), at<T>(args, 2, 0),
                                static_cast<T*>(args.scratch), unit, unit + 1);
  }
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run_triangle(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& m = *static_cast<const Matrices*>(args.data);
  const int64_t n = m.dims.n;
  for (int64_t unit = begin; unit < end; ++unit) {
    if (core::is_interrupted()) return KernelStatus::kCancelled;
    if (solve_triangle(m.dims, at<T>(args, 0, unit * n * n), at<T>(args, 1, unit * n),
                       at<T>(args, 2, unit * n))) {
      continue;
    }
    real_kernels<T>(m.isa).solve_triangular(&m.dims, at<T>(args, 0, 0), at<T>(args, 1, 0),
                                            at<T>(args, 2, 0), unit, unit + 1);
  }
  return KernelStatus::kOk;
}

template <plan::KernelFn kFloat, plan::KernelFn kDouble, bool kHasScratch>
core::Result<plan::Step> make(const KernelRequest& request) {
  auto matrices = std::make_shared<Matrices>();
  const ref_linalg_dims& dims = matrices->dims = select::linalg_dims(request);
  matrices->isa = default_isa();
  const DType dtype = request.outputs[0].dtype;
  plan::Step step;
  step.kernel = dtype == DType::kFloat32 ? kFloat : kDouble;
  step.units = dims.batch;
  step.grain = grain_of(dims.n * dims.n * (kHasScratch ? 9 * dims.n : 1));
  if (kHasScratch) step.scratch_bytes = static_cast<size_t>(dims.n * dims.n) * core::size_of(dtype);
  step.data = std::move(matrices);
  return step;
}

bool has_small_matrices(const KernelRequest& request) {
  const int64_t n = request.inputs[0].shape.back();
  return has_real_type(request) && n >= kLeastEigh && n < kEndEigh;
}

bool has_small_triangles(const KernelRequest& request) {
  const int64_t n = request.inputs[0].shape.back();
  return has_real_type(request) && n >= kLeastTriangle && n < kEndTriangle &&
         request.inputs[1].shape.back() == 1;
}

const select::KernelDef kKernels[] = {
    {"eigh", "eigh.eigen", select::OrderClass::kOther, true,
     Condition{has_small_matrices, "elements of float32 or float64, and 6 to 47 rows"},
     make<run_eigh<float>, run_eigh<double>, true>},
    {"solve_triangular", "solve_triangular.eigen", select::OrderClass::kOther, true,
     Condition{has_small_triangles, "one column of float32 or float64, and 16 to 255 rows"},
     make<run_triangle<float>, run_triangle<double>, false>},
};

}  // namespace

std::span<const select::KernelDef> eigen_kernels() { return kKernels; }

}  // namespace mithril::cpu

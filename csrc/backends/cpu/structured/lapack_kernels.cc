// Linear algebra of OpenBLAS as kernels: for matrices that are large enough, one a unit.
#include <algorithm>
#include <climits>

#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "backends/cpu/structured/lapack.h"
#include "backends/cpu/structured/openblas_slot.h"
#include "core/checked.h"
#include "core/interrupt.h"
#include "core/rounding.h"
#include "runtime/detached_call.h"
#include "select/kernel_dims.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::BadData;
using plan::KernelArgs;
using plan::KernelStatus;
using select::Condition;
using select::KernelRequest;

template <class T>
struct Matrices {
  const OpenBlas* blas = nullptr;
  typename Lapack<T>::Run run = nullptr;
  void (*instead)(const ref_linalg_dims&, const LapackCall<T>&) = nullptr;  // not converged
  ref_linalg_dims dims{};                                                   // batch 1
  BadData complaint = BadData::kSingular;
  int64_t in[2] = {}, out[3] = {};  // elements of a matrix, 0: no such operand
  int64_t work = 0;
  int64_t parts = 1, part_columns = 0;  // of a right-hand side: a unit solves for one part
  bool is_long = false;                 // one call takes longer than interrupts may wait

  LapackResult compute(LapackCall<T> call, int64_t first_column) const {
    call.n = static_cast<int>(dims.n);
    call.k = static_cast<int>(std::min(part_columns, dims.k - first_column));
    call.stride = static_cast<int>(dims.k);
    call.lower = dims.lower != 0;
    call.transposed = dims.transposed != 0;
    call.work_size = work;
    const LapackResult result = run(*blas, call);
    if (result == LapackResult::kNotConverged) instead(dims, call);
    return result;
  }
};

/// Visits operands in the order of a kernel's buffers.
template <class T, class Visit>
void each_operand(const Matrices<T>& m, LapackCall<T>& call, Visit visit) {
  int at = 0;
  for (int i = 0; i < 2; ++i) {
    if (m.in[i] > 0) visit(at++, m.in[i], call.in[i]);
  }
  for (int i = 0; i < 3; ++i) {
    if (m.out[i] > 0) visit(at++, m.out[i], call.out[i]);
  }
}

template <class T>
KernelStatus run_here(const Matrices<T>& m, const KernelArgs& args, int64_t unit,
                      LapackResult& result) {
  OpenBlasSlot slot;
  const KernelStatus status = slot.take();
  if (status != KernelStatus::kOk) return status;
  LapackCall<T> call;
  call.work = static_cast<T*>(args.scratch);
  const int64_t matrix = unit / m.parts, first_column = unit % m.parts * m.part_columns;
  each_operand(m, call, [&](int at, int64_t size, auto& place) {
    place = static_cast<T*>(args.buffers[at]) + matrix * size;
  });
  call.in[1] += first_column;
  call.out[0] += first_column;
  result = m.compute(call, first_column);
  return KernelStatus::kOk;
}

/// A call with memory of its own, which stays whoever waits for it.
template <class T>
struct Detached {
  Matrices<T> matrices;
  std::unique_ptr<T[]> memory;
  LapackCall<T> call;
  LapackResult result = LapackResult::kOk;
  KernelStatus status = KernelStatus::kOk;
};

template <class T>
std::shared_ptr<Detached<T>> detach(const Matrices<T>& m) {
  const int64_t size = m.in[0] + m.in[1] + m.out[0] + m.out[1] + m.out[2] + m.work;
  auto own = std::make_shared<Detached<T>>();
  own->matrices = m;
  own->memory.reset(new T[static_cast<size_t>(size)]);
  T* next = own->memory.get();
  each_operand(m, own->call, [&](int, int64_t count, auto& place) {
    place = next;
    next += count;
  });
  own->call.work = next;
  return own;
}

template <class T>
KernelStatus run_detached(const Matrices<T>& m, const KernelArgs& args, int64_t unit,
                          LapackResult& result) {
  const std::shared_ptr<Detached<T>> own = detach(m);
  const int inputs = m.in[1] > 0 ? 2 : 1;
  each_operand(m, own->call, [&](int at, int64_t size, auto& place) {
    const T* from = static_cast<const T*>(args.buffers[at]) + unit * size;
    if (at < inputs) std::copy_n(from, size, const_cast<T*>(place));
  });
  const bool has_ended = runtime::run_detached([own] {
    OpenBlasSlot slot;
    own->status = slot.take();
    if (own->status == KernelStatus::kOk) own->result = own->matrices.compute(own->call, 0);
  });
  if (!has_ended) return KernelStatus::kCancelled;
  if (own->status != KernelStatus::kOk) return own->status;
  each_operand(m, own->call, [&](int at, int64_t size, auto& place) {
    T* to = static_cast<T*>(args.buffers[at]) + unit * size;
    if (at >= inputs) std::copy_n(place, size, to);
  });
  result = own->result;
  return KernelStatus::kOk;
}

template <class T>
KernelStatus run(const KernelArgs& args, int64_t begin, int64_t end) try {
  const auto& m = *static_cast<const Matrices<T>*>(args.data);
  for (int64_t unit = begin; unit < end; ++unit) {
    if (core::is_interrupted()) return KernelStatus::kCancelled;
    LapackResult result = LapackResult::kOk;
    const auto status =
        m.is_long ? run_detached(m, args, unit, result) : run_here(m, args, unit, result);
    if (status != KernelStatus::kOk) return status;
    if (result != LapackResult::kBadMatrix) continue;
    args.error->report_matrix(m.complaint, unit / m.parts);
    return KernelStatus::kBadData;
  }
  return KernelStatus::kOk;
} catch (const std::bad_alloc&) {
  return KernelStatus::kNoMemory;
}

template <class T>
void jacobi_eigh(const ref_linalg_dims& dims, const LapackCall<T>& call) {
  real_kernels<T>(default_isa()).eigh(&dims, call.in[0], call.out[0], call.out[1], call.work, 0, 1);
}

template <class T>
void jacobi_svd(const ref_linalg_dims& dims, const LapackCall<T>& call) {
  real_kernels<T>(default_isa())
      .svd(&dims, call.in[0], call.out[0], call.out[1], call.out[2], call.work, 0, 1);
}

/// An operation: its routine for a type, and about how many times n k min(n, k) flops it takes.
template <class T>
struct Operation {
  typename Lapack<T>::Run run;
  typename Lapack<T>::Work work;
  double flops;
  bool is_factor = false;  // of n rows and k columns
  void (*instead)(const ref_linalg_dims&, const LapackCall<T>&) = nullptr;
  BadData complaint = BadData::kSingular;
  bool by_columns = false;  // each column of the right-hand side has a solution of its own
};

// Counts the columns that a unit of so many rows solves for. Bits depend on it, and it on no
// thread.
int64_t columns_of_part(int64_t n) {
  constexpr double kPartFlops = 1e9;  // less than interrupts may wait, and packs `n` rows rarely
  constexpr int64_t kLeast = 32, kMost = 256;
  const double rows = static_cast<double>(n);
  const auto columns = static_cast<int64_t>(kPartFlops / std::max(rows * rows, 1.0));
  return std::clamp(columns / kLeast * kLeast, kLeast, kMost);
}

template <class T>
core::Result<plan::Step> step_of(const KernelRequest& request, const Operation<T>& operation) {
  constexpr double kLongFlops = 2e8;  // about 20 ms on a slow core
  auto m = std::make_shared<Matrices<T>>();
  m->blas = vendored_openblas();
  m->run = operation.run;
  m->instead = operation.instead;
  m->complaint = operation.complaint;
  m->dims = operation.is_factor ? select::factor_dims(request) : select::linalg_dims(request);
  const int64_t batch = std::exchange(m->dims.batch, 1), n = m->dims.n, k = m->dims.k;
  const auto of_one = [&](const select::Operand& operand) {
    return *core::element_count(operand.shape) / std::max<int64_t>(batch, 1);
  };
  for (size_t i = 0; i < request.inputs.size(); ++i) m->in[i] = of_one(request.inputs[i]);
  for (size_t i = 0; i < request.outputs.size(); ++i) m->out[i] = of_one(request.outputs[i]);
  m->work = operation.work(*m->blas, n, k);
  const double flops = operation.flops * static_cast<double>(n) * static_cast<double>(n) *
                       static_cast<double>(operation.is_factor ? std::min(k, n) : std::max(n, k));
  m->part_columns = operation.by_columns ? columns_of_part(n) : k;
  m->parts = operation.by_columns ? core::ceil_div(k, m->part_columns) : 1;
  m->is_long = flops > kLongFlops && !operation.by_columns;
  plan::Step step;
  step.kernel = run<T>;
  step.units = batch * m->parts;
  step.grain =
      grain_of(static_cast<int64_t>(flops / static_cast<double>(std::max<int64_t>(m->parts, 1))));
  step.may_fail_on_data = request.op.name == "cholesky" || request.op.name == "solve";
  if (!m->is_long) step.scratch_bytes = static_cast<size_t>(m->work) * sizeof(T);
  step.data = std::move(m);
  return step;
}

template <template <class> class Of>
core::Result<plan::Step> make(const KernelRequest& request) {
  if (request.outputs[0].dtype == DType::kFloat32) return step_of<float>(request, Of<float>::kIs);
  return step_of<double>(request, Of<double>::kIs);
}

template <class T>
struct Cholesky {
  static constexpr Operation<T> kIs = {
      Lapack<T>::cholesky, Lapack<T>::no_work, 0.5, false, nullptr, BadData::kNotPositiveDefinite};
};
template <class T>
struct SolveTriangular {
  static constexpr Operation<T> kIs = {
      Lapack<T>::solve_triangular, Lapack<T>::no_work, 1, false, nullptr, BadData::kSingular, true};
};
template <class T>
struct Solve {
  static constexpr Operation<T> kIs = {Lapack<T>::solve, Lapack<T>::solve_work, 3};
};
template <class T>
struct Det {
  static constexpr Operation<T> kIs = {Lapack<T>::det, Lapack<T>::det_work, 0.7};
};
template <class T>
struct ScaledDet {
  static constexpr Operation<T> kIs = {Lapack<T>::scaled_det, Lapack<T>::det_work, 0.7};
};
template <class T>
struct Eigh {
  static constexpr Operation<T> kIs = {Lapack<T>::eigh, Lapack<T>::eigh_work, 9, false,
                                       jacobi_eigh<T>};
};
template <class T>
struct Qr {
  static constexpr Operation<T> kIs = {Lapack<T>::qr, Lapack<T>::qr_work, 4, true};
};
template <class T>
struct Svd {
  static constexpr Operation<T> kIs = {Lapack<T>::svd, Lapack<T>::svd_work, 20, true,
                                       jacobi_svd<T>};
};

/// Holds for matrices whose smaller size is at least kLeast, where OpenBLAS is there and wanted.
template <int64_t kLeast, int64_t kMost = INT_MAX>
bool is_large(const KernelRequest& request) {
  const std::vector<int64_t>& shape = request.inputs[0].shape;
  const int64_t n = shape[shape.size() - 2], k = shape.back();
  const bool fits = std::max(n, request.inputs.back().shape.back()) <= kMost && k <= kMost;
  return has_real_type(request) && std::min(n, k) >= kLeast && fits &&
         vendored_openblas() != nullptr;
}

template <int64_t kLeast, int64_t kMost = INT_MAX>
constexpr Condition large(const char* text) {
  return {is_large<kLeast, kMost>, text};
}

constexpr auto kOther = select::OrderClass::kOther;
constexpr int64_t kMostWithSquares = 20'000;  // sizes of LAPACK's scratch are 32-bit numbers

const select::KernelDef kKernels[] = {
    {"cholesky", "cholesky.lapack", kOther, true, large<48>("LAPACK, and at least 48 rows"),
     make<Cholesky>},
    {"solve_triangular", "solve_triangular.lapack", kOther, true,
     large<256>("LAPACK, and at least 256 rows"), make<SolveTriangular>},
    {"solve", "solve.lapack", kOther, true, large<256>("LAPACK, and at least 256 rows"),
     make<Solve>},
    {"det", "det.lapack", kOther, true, large<128>("LAPACK, and at least 128 rows"), make<Det>},
    {"scaled_det", "scaled_det.lapack", kOther, true, large<128>("LAPACK, and at least 128 rows"),
     make<ScaledDet>},
    {"eigh", "eigh.lapack", kOther, true,
     large<24, kMostWithSquares>("LAPACK, and 24 to 20,000 rows"), make<Eigh>},
    {"qr", "qr.lapack", kOther, true, large<32>("LAPACK, and at least 32 rows and columns"),
     make<Qr>},
    {"svd", "svd.lapack", kOther, true,
     large<12, kMostWithSquares>("LAPACK, and 12 to 20,000 rows and columns"), make<Svd>},
};

}  // namespace

std::span<const select::KernelDef> lapack_kernels() { return kKernels; }

}  // namespace mithril::cpu

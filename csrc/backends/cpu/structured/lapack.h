// Linear algebra of OpenBLAS on row-major matrices. Order class: other; one thread.
#pragma once
#include <cstdint>

#include "backends/cpu/structured/openblas.h"

namespace mithril::cpu {

/// One matrix of n rows and k columns (square ones: n rows; k columns of the right-hand side), with
/// what an operation reads and writes. `work` has the `work_size` elements that the operation's
/// `_work` asks for. Rows of a right-hand side and of its solution begin `stride` elements apart.
template <class T>
struct LapackCall {
  int n = 0, k = 0, stride = 0;
  bool lower = false, transposed = false;
  const T* in[2] = {};
  T* out[3] = {};
  T* work = nullptr;
  int64_t work_size = 0;
};

enum class LapackResult : uint8_t { kOk, kBadMatrix, kNotConverged };

/// Operations have the results, signs and complaints of the kernels of the same names in
/// reference/reference.h, but for roundings.
template <class T>
struct Lapack {
  using Run = LapackResult (*)(const OpenBlas&, const LapackCall<T>&);
  using Work = int64_t (*)(const OpenBlas&, int64_t n, int64_t k);

  static LapackResult cholesky(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult solve_triangular(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult solve(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult det(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult scaled_det(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult eigh(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult qr(const OpenBlas& blas, const LapackCall<T>& call);
  static LapackResult svd(const OpenBlas& blas, const LapackCall<T>& call);

  static int64_t no_work(const OpenBlas&, int64_t, int64_t) { return 0; }
  static int64_t solve_work(const OpenBlas& blas, int64_t n, int64_t k);
  static int64_t det_work(const OpenBlas& blas, int64_t n, int64_t k);
  static int64_t eigh_work(const OpenBlas& blas, int64_t n, int64_t k);
  static int64_t qr_work(const OpenBlas& blas, int64_t n, int64_t k);
  static int64_t svd_work(const OpenBlas& blas, int64_t n, int64_t k);
};

extern template struct Lapack<float>;
extern template struct Lapack<double>;

}  // namespace mithril::cpu

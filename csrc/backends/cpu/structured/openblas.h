// OpenBLAS behind a table of functions: opened at run time, never linked, one thread.
#pragma once
#include <string>

#include "backends/cpu/gemm/gemm.h"
#include "core/status.h"

namespace mithril::cpu {

/// Functions for elements of type T. Those of LAPACK see matrices column after column; the lengths
/// of their texts are their last arguments, as Fortran has it.
template <class T>
struct OpenBlasRoutines {
  // CBLAS: order, transposes, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
  void (*gemm)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  // CBLAS: order, side, which triangle, transpose, diagonal, m, n, alpha, a, lda, b, ldb
  void (*trsm)(int, int, int, int, int, int, int, T, const T*, int, T*, int);
  void (*potrf)(const char*, const int* n, T* a, const int* lda, int* info, size_t);
  void (*getrf)(const int* m, const int* n, T* a, const int* lda, int* pivots, int* info);
  void (*getrs)(const char*, const int* n, const int* columns, const T* a, const int* lda,
                const int* pivots, T* b, const int* ldb, int* info, size_t);
  void (*geqrf)(const int* m, const int* n, T* a, const int* lda, T* tau, T* work,
                const int* work_size, int* info);
  void (*orgqr)(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau,
                T* work, const int* work_size, int* info);
  void (*syevd)(const char*, const char*, const int* n, T* a, const int* lda, T* values, T* work,
                const int* work_size, int* integers, const int* integer_size, int* info, size_t,
                size_t);
  void (*gesdd)(const char*, const int* m, const int* n, T* a, const int* lda, T* values, T* u,
                const int* ldu, T* vt, const int* ldvt, T* work, const int* work_size,
                int* integers, int* info, size_t);
};

/// The functions that we use of one opened library; lives as long as the process.
struct OpenBlas {
  OpenBlasRoutines<float> f32;
  OpenBlasRoutines<double> f64;
  template <class T>
  const OpenBlasRoutines<T>& of() const {
    if constexpr (sizeof(T) == 4) return f32;
    if constexpr (sizeof(T) == 8) return f64;
  }
};

/// Opens the library at `path` (names with the prefix `scipy_`, or plain ones) and sets it to one
/// thread. The first library that opens stays; later calls return it whatever their path. Fails
/// with DeviceNotAvailable where there is none, which a later call may repair. Thread-safe.
core::Result<const OpenBlas*> open_openblas(const std::string& path);

/// Returns the library that is open, or opens the one that the package brings (`_openblas/` beside
/// the extension); null where there is none. Thread-safe.
const OpenBlas* vendored_openblas();

/// Tells whether OpenBLAS takes these strides and sizes: one unit stride in each operand, 32-bit
/// sizes.
bool fits_openblas(const GemmDims& dims);

/// Order class: other (a stated bound, not the canonical order). Computes the range of C, then runs
/// the epilogue on all of it; the caller hands out ranges to its own threads. `dims` must fit.
void openblas_gemm(const OpenBlas& blas, const GemmDims& dims, const float* a, const float* b,
                   float* c, const GemmRange& range, const Epilogue<float>& epilogue);
void openblas_gemm(const OpenBlas& blas, const GemmDims& dims, const double* a, const double* b,
                   double* c, const GemmRange& range, const Epilogue<double>& epilogue);

}  // namespace mithril::cpu

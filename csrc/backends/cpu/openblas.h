// OpenBLAS behind a table of functions: opened at run time, never linked, one thread.
#pragma once
#include <string>

#include "backends/cpu/gemm.h"
#include "core/status.h"

namespace mithril::cpu {

/// The functions that we use of one opened library; lives as long as the process.
struct OpenBlas {
  // CBLAS: order, transposes, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
  void (*sgemm)(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                float*, int);
  void (*dgemm)(int, int, int, int, int, int, double, const double*, int, const double*, int,
                double, double*, int);
};

/// Opens the library at `path` (names with the prefix `scipy_`, or plain ones) and sets it to one
/// thread. The first library that opens stays; later calls return it whatever their path. Fails
/// with DeviceNotAvailable where there is none, which a later call may repair. Thread-safe.
core::Result<const OpenBlas*> open_openblas(const std::string& path);

/// Whether OpenBLAS takes these strides and sizes: one unit stride in each operand, 32-bit sizes.
bool fits_openblas(const GemmDims& dims);

/// Order class: other (a stated bound, not the canonical order). Computes the range of C, then runs
/// the epilogue on all of it; the caller hands out ranges to its own threads. `dims` must fit.
void openblas_gemm(const OpenBlas& blas, const GemmDims& dims, const float* a, const float* b,
                   float* c, const GemmRange& range, const Epilogue<float>& epilogue);
void openblas_gemm(const OpenBlas& blas, const GemmDims& dims, const double* a, const double* b,
                   double* c, const GemmRange& range, const Epilogue<double>& epilogue);

}  // namespace mithril::cpu

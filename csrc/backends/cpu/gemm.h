// Our own matrix product: register-blocked, packed, in canonical order (equal to ref_matmul to the
// last bit), with an epilogue on finished blocks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backends/cpu/cpuid.h"

namespace mithril::cpu {

/// What an epilogue and its maker agree on; opaque here.
struct EpiArgs;

/// Called once for each block of finished results while it is in cache: bias, activation,
/// residual. `tile` lies in C itself, with leading dimension `ldt`; row0 and col0 say where.
template <class T>
struct Epilogue {
  void (*run)(const EpiArgs*, T* tile, int64_t ldt, int64_t rows, int64_t cols, int64_t row0,
              int64_t col0) = nullptr;
  const EpiArgs* args = nullptr;
};

/// C[m, n] = A[m, k] B[k, n]. Strides in elements, any sign for A and B; C's columns are dense.
struct GemmDims {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row;
};

/// The part of C that one call computes.
struct GemmRange {
  int64_t row_begin, row_end, col_begin, col_end;
};

/// `scratch`: kGemmScratchBytes, 64-byte aligned, of this thread's own.
template <class T>
using GemmFn = void (*)(const GemmDims& dims, const T* a, const T* b, T* c, const GemmRange& range,
                        const Epilogue<T>& epilogue, void* scratch);

struct GemmKernels {
  GemmFn<float> f32;
  GemmFn<double> f64;
};

inline constexpr size_t kGemmScratchBytes = (size_t{32} << 10) + (size_t{256} << 10);

/// Order class: canonical, for every instruction set, range and thread count. kGeneric runs the
/// reference kernel.
const GemmKernels& gemm_kernels(Isa isa);

/// How C is cut into units for threads: blocks of rows, then of columns, in row-major order.
struct GemmTiling {
  int64_t rows = 1, cols = 1;            // of a unit
  int64_t row_units = 0, col_units = 0;  // how many
  int64_t units() const { return row_units * col_units; }
  GemmRange range(const GemmDims& dims, int64_t unit) const;
};

/// Units large enough to pay for being handed out, at least `threads` of them where the product
/// is large enough.
GemmTiling tile_gemm(const GemmDims& dims, int threads);

namespace generic {
extern const GemmKernels kGemm;
}
#if defined(__x86_64__)
namespace avx2 {
extern const GemmKernels kGemm;
}
namespace avx512 {
extern const GemmKernels kGemm;
}
#endif

}  // namespace mithril::cpu

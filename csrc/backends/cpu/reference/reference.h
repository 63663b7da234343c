// The reference kernels as compiled for each instruction set; all give the same bits.
#pragma once
#include "backends/cpu/machine/cpuid.h"
#include "reference/reference.h"

namespace mithril::cpu {

/// The functions of reference/reference.h for one instruction set, REAL being T.
template <class T>
struct RealKernels {
  void (*matmul)(const ref_matmul_dims*, const T*, const T*, T*, int64_t, int64_t);
  void (*conv2d)(const ref_conv2d_dims*, const T*, const T*, T*, int64_t, int64_t);
  void (*conv2d_dx)(const ref_conv2d_dims*, const T*, const T*, T*, int64_t, int64_t);
  void (*conv2d_dw)(const ref_conv2d_dims*, const T*, const T*, T*, int64_t, int64_t);
  void (*max_pool2d)(const ref_pool2d_dims*, const T*, T*, int64_t, int64_t);
  void (*max_pool2d_grad)(const ref_pool2d_dims*, const T*, const T*, T*, int64_t, int64_t);
  void (*avg_pool2d)(const ref_pool2d_dims*, const T*, T*, int64_t, int64_t);
  void (*avg_pool2d_grad)(const ref_pool2d_dims*, const T*, T*, int64_t, int64_t);
  int64_t (*gather_grad_i32)(const ref_gather_dims*, const int32_t*, const T*, T*, int64_t,
                             int64_t);
  int64_t (*gather_grad_i64)(const ref_gather_dims*, const int64_t*, const T*, T*, int64_t,
                             int64_t);
  int64_t (*cholesky)(const ref_linalg_dims*, const T*, T*, int64_t, int64_t);
  void (*solve_triangular)(const ref_linalg_dims*, const T*, const T*, T*, int64_t, int64_t);
  int64_t (*solve)(const ref_linalg_dims*, const T*, const T*, T*, T*, int64_t, int64_t);
  void (*det)(const ref_linalg_dims*, const T*, T*, T*, int64_t, int64_t);
  void (*scaled_det)(const ref_linalg_dims*, const T*, T*, T*, T*, int64_t, int64_t);
  void (*cofactor)(const ref_linalg_dims*, const T*, T*, T*, int64_t, int64_t);
  void (*eigh)(const ref_linalg_dims*, const T*, T*, T*, T*, int64_t, int64_t);
  void (*qr)(const ref_linalg_dims*, const T*, T*, T*, T*, int64_t, int64_t);
  void (*svd)(const ref_linalg_dims*, const T*, T*, T*, T*, T*, int64_t, int64_t);
};

/// Rows added where they came from, of integers: they wrap.
template <class T>
struct GatherGradKernels {
  int64_t (*gather_grad_i32)(const ref_gather_dims*, const int32_t*, const T*, T*, int64_t,
                             int64_t);
  int64_t (*gather_grad_i64)(const ref_gather_dims*, const int64_t*, const T*, T*, int64_t,
                             int64_t);
};

/// Lists the kernels that move or order whole elements along an axis, of type T.
template <class T>
struct AxisKernels {
  void (*linear_scan)(const ref_axis_dims*, const T*, const T*, T*, int64_t, int64_t);
  void (*argsort)(const ref_axis_dims*, int64_t, const T*, void*, int64_t*, int64_t, int64_t);
};

/// Fourier transforms: sizes and contents of a table, and what reads it.
struct DftKernels {
  template <class T>
  using Run = void (*)(const ref_axis_dims*, double*, const T*, const T*, T*, T*, double*, int64_t,
                       int64_t);
  template <class T>
  using RunReal = void (*)(const ref_axis_dims*, double*, const T*, T*, T*, double*, int64_t,
                           int64_t);
  int64_t (*table)(int64_t);
  int64_t (*scratch)(int64_t);
  int64_t (*width)(int64_t);
  void (*prepare)(int64_t, double*, double*);
  Run<float> f32;
  Run<double> f64;
  RunReal<float> real_f32;
  RunReal<double> real_f64;
};

struct ReferenceKernels {
  RealKernels<float> f32;
  RealKernels<double> f64;
  void (*matmul_i32)(const ref_matmul_dims*, const int32_t*, const int32_t*, int32_t*, int64_t,
                     int64_t);
  void (*matmul_i64)(const ref_matmul_dims*, const int64_t*, const int64_t*, int64_t*, int64_t,
                     int64_t);
  GatherGradKernels<uint32_t> rows_u32;
  GatherGradKernels<uint64_t> rows_u64;
  int64_t (*gather_i32)(const ref_gather_dims*, int64_t, const void*, const int32_t*, void*,
                        int64_t, int64_t);
  int64_t (*gather_i64)(const ref_gather_dims*, int64_t, const void*, const int64_t*, void*,
                        int64_t, int64_t);
  void (*copy)(const ref_copy_dims*, int64_t, const void*, void*, int64_t, int64_t);
  int64_t (*copy_units)(const ref_copy_dims*);
  AxisKernels<float> axis_f32;
  AxisKernels<double> axis_f64;
  AxisKernels<int32_t> axis_i32;
  AxisKernels<int64_t> axis_i64;
  int64_t (*last_writers_i32)(const ref_gather_dims*, int64_t, const int32_t*, void*, int64_t,
                              int64_t);
  int64_t (*last_writers_i64)(const ref_gather_dims*, int64_t, const int64_t*, void*, int64_t,
                              int64_t);
  void (*true_places_i32)(int64_t, const unsigned char*, int32_t*, int32_t*, int64_t, int64_t);
  void (*true_places_i64)(int64_t, const unsigned char*, int64_t*, int64_t*, int64_t, int64_t);
  DftKernels dft;
};

namespace generic {
extern const ReferenceKernels kReference;
}
#if defined(__x86_64__)
namespace avx2 {
extern const ReferenceKernels kReference;
}
namespace avx512 {
extern const ReferenceKernels kReference;
}
#endif

const ReferenceKernels& reference_kernels(Isa isa);

template <class T>
const RealKernels<T>& real_kernels(Isa isa) {
  const ReferenceKernels& all = reference_kernels(isa);
  if constexpr (sizeof(T) == 4) return all.f32;
  if constexpr (sizeof(T) == 8) return all.f64;
}

}  // namespace mithril::cpu

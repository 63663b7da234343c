// The reference kernels, compiled here for one instruction set: their C text is included in a
// namespace of its own, once for each float type.
#include "core/interrupt.h"
#define REF_STOPS() mithril::core::is_interrupted()
#include <cmath>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cpu/reference/reference.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

// As builtins they become one instruction where the set has it.
inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

#define FMA fused
namespace f32 {
#define REAL float
#define NAMED(name) name
#include "reference/conv2d.c"
#include "reference/conv2d_dw.c"
#include "reference/conv2d_dx.c"
#include "reference/factors.c"
#include "reference/gather_grad.c"
#include "reference/linalg.c"
#include "reference/matmul.c"
#include "reference/pool2d.c"
#undef REAL
}  // namespace f32

namespace f64 {
#define REAL double
#include "reference/conv2d.c"
#include "reference/conv2d_dw.c"
#include "reference/conv2d_dx.c"
#include "reference/factors.c"
#include "reference/gather_grad.c"
#include "reference/linalg.c"
#include "reference/matmul.c"
#include "reference/pool2d.c"
#undef REAL
}  // namespace f64

// Unsigned: sums wrap.
namespace u32 {
#define REAL uint32_t
#include "reference/gather_grad.c"
#undef REAL
}  // namespace u32

namespace u64 {
#define REAL uint64_t
#include "reference/gather_grad.c"
#undef NAMED
#undef REAL
}  // namespace u64

namespace bytes {
#include "reference/copy.c"
#include "reference/dft.c"
#include "reference/gather.c"
#include "reference/matmul_integer.c"
#include "reference/scan.c"
#include "reference/sort.c"
#include "reference/true_places.c"
}  // namespace bytes

#define MITHRIL_REAL_KERNELS(space)                                                                \
  {                                                                                                \
    space::ref_matmul, space::ref_conv2d, space::ref_conv2d_dx, space::ref_conv2d_dw,              \
        space::ref_max_pool2d, space::ref_max_pool2d_grad, space::ref_avg_pool2d,                  \
        space::ref_avg_pool2d_grad, space::ref_gather_grad_i32, space::ref_gather_grad_i64,        \
        space::ref_cholesky, space::ref_solve_triangular, space::ref_solve, space::ref_det,        \
        space::ref_scaled_det, space::ref_cofactor, space::ref_eigh, space::ref_qr, space::ref_svd \
  }

}  // namespace

// A member that is forgotten here would be called as a null pointer.
#pragma GCC diagnostic error "-Wmissing-field-initializers"
const ReferenceKernels kReference = {
    MITHRIL_REAL_KERNELS(f32),
    MITHRIL_REAL_KERNELS(f64),
    bytes::ref_matmul_i32,
    bytes::ref_matmul_i64,
    {u32::ref_gather_grad_i32, u32::ref_gather_grad_i64},
    {u64::ref_gather_grad_i32, u64::ref_gather_grad_i64},
    bytes::ref_gather_i32,
    bytes::ref_gather_i64,
    bytes::ref_copy,
    bytes::ref_copy_units,
    {bytes::ref_linear_scan_f32, bytes::ref_argsort_f32},
    {bytes::ref_linear_scan_f64, bytes::ref_argsort_f64},
    {bytes::ref_linear_scan_i32, bytes::ref_argsort_i32},
    {bytes::ref_linear_scan_i64, bytes::ref_argsort_i64},
    bytes::ref_last_writers_i32,
    bytes::ref_last_writers_i64,
    bytes::ref_true_places_i32,
    bytes::ref_true_places_i64,
    {bytes::ref_dft_table, bytes::ref_dft_scratch, bytes::ref_dft_width, bytes::ref_dft_prepare,
     bytes::ref_dft_f32, bytes::ref_dft_f64, bytes::ref_rdft_f32, bytes::ref_rdft_f64},
};

}  // namespace mithril::cpu::MITHRIL_ISA

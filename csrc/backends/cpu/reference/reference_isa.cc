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

}  // namespace

#define MITHRIL_IN_F32(name) f32::ref_##name,
#define MITHRIL_IN_F64(name) f64::ref_##name,
#define MITHRIL_OF_F32(name) bytes::ref_##name##_f32,
#define MITHRIL_OF_F64(name) bytes::ref_##name##_f64,
#define MITHRIL_OF_I32(name) bytes::ref_##name##_i32,
#define MITHRIL_OF_I64(name) bytes::ref_##name##_i64,
#define MITHRIL_OF_BYTES(name) bytes::ref_##name,

// A member that is forgotten here would be called as a null pointer.
#pragma GCC diagnostic error "-Wmissing-field-initializers"
const ReferenceKernels kReference = {
    {MITHRIL_REAL_REFERENCES(MITHRIL_IN_F32)},
    {MITHRIL_REAL_REFERENCES(MITHRIL_IN_F64)},
    {u32::ref_gather_grad_i32, u32::ref_gather_grad_i64},
    {u64::ref_gather_grad_i32, u64::ref_gather_grad_i64},
    {MITHRIL_AXIS_REFERENCES(MITHRIL_OF_F32)},
    {MITHRIL_AXIS_REFERENCES(MITHRIL_OF_F64)},
    {MITHRIL_AXIS_REFERENCES(MITHRIL_OF_I32)},
    {MITHRIL_AXIS_REFERENCES(MITHRIL_OF_I64)},
    {bytes::ref_dft_table, bytes::ref_dft_scratch, bytes::ref_dft_width, bytes::ref_dft_prepare,
     bytes::ref_dft_f32, bytes::ref_dft_f64, bytes::ref_rdft_f32, bytes::ref_rdft_f64},
    MITHRIL_BYTE_REFERENCES(MITHRIL_OF_BYTES)};

}  // namespace mithril::cpu::MITHRIL_ISA

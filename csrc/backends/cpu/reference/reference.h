// The reference kernels as compiled for each instruction set; all give the same bits.
#pragma once
#include "backends/cpu/machine/cpuid.h"
#include "reference/reference.h"

namespace mithril::cpu {

// The functions of reference/reference.h by the types they exist for: `X(name)` makes the members
// below and, in reference_isa.cc, their instances.
#define MITHRIL_REAL_REFERENCES(X) \
  X(matmul)                        \
  X(conv2d)                        \
  X(conv2d_dx)                     \
  X(conv2d_dw)                     \
  X(max_pool2d)                    \
  X(max_pool2d_grad)               \
  X(avg_pool2d)                    \
  X(avg_pool2d_grad)               \
  X(gather_grad_i32)               \
  X(gather_grad_i64)               \
  X(cholesky)                      \
  X(solve_triangular)              \
  X(solve)                         \
  X(det)                           \
  X(scaled_det)                    \
  X(cofactor)                      \
  X(eigh)                          \
  X(qr)                            \
  X(svd)
#define MITHRIL_AXIS_REFERENCES(X) \
  X(linear_scan)                   \
  X(argsort)
#define MITHRIL_BYTE_REFERENCES(X) \
  X(matmul_i32)                    \
  X(matmul_i64)                    \
  X(gather_i32)                    \
  X(gather_i64)                    \
  X(copy)                          \
  X(copy_units)                    \
  X(last_writers_i32)              \
  X(last_writers_i64)              \
  X(true_places_i32)               \
  X(true_places_i64)

#define MITHRIL_MEMBER(name) decltype(ref_##name)* name;
#define MITHRIL_MEMBER_F32(name) decltype(ref_##name##_f32)* name;
#define MITHRIL_MEMBER_F64(name) decltype(ref_##name##_f64)* name;
#define MITHRIL_MEMBER_I32(name) decltype(ref_##name##_i32)* name;
#define MITHRIL_MEMBER_I64(name) decltype(ref_##name##_i64)* name;

/// Holds the functions of real numbers, REAL being T, for one instruction set.
template <class T>
struct RealKernels;
template <>
struct RealKernels<float> {
  MITHRIL_REAL_REFERENCES(MITHRIL_MEMBER_F32)
};
template <>
struct RealKernels<double> {
  MITHRIL_REAL_REFERENCES(MITHRIL_MEMBER_F64)
};

/// Holds those that move or order whole elements of type T along an axis.
template <class T>
struct AxisKernels;
template <>
struct AxisKernels<float> {
  MITHRIL_AXIS_REFERENCES(MITHRIL_MEMBER_F32)
};
template <>
struct AxisKernels<double> {
  MITHRIL_AXIS_REFERENCES(MITHRIL_MEMBER_F64)
};
template <>
struct AxisKernels<int32_t> {
  MITHRIL_AXIS_REFERENCES(MITHRIL_MEMBER_I32)
};
template <>
struct AxisKernels<int64_t> {
  MITHRIL_AXIS_REFERENCES(MITHRIL_MEMBER_I64)
};

/// Rows added where they came from, of integers: they wrap.
template <class T>
struct GatherGradKernels {
  int64_t (*gather_grad_i32)(const ref_gather_dims*, const int32_t*, const T*, T*, int64_t,
                             int64_t);
  int64_t (*gather_grad_i64)(const ref_gather_dims*, const int64_t*, const T*, T*, int64_t,
                             int64_t);
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
  GatherGradKernels<uint32_t> rows_u32;
  GatherGradKernels<uint64_t> rows_u64;
  AxisKernels<float> axis_f32;
  AxisKernels<double> axis_f64;
  AxisKernels<int32_t> axis_i32;
  AxisKernels<int64_t> axis_i64;
  DftKernels dft;
  MITHRIL_BYTE_REFERENCES(MITHRIL_MEMBER)
};

#undef MITHRIL_MEMBER
#undef MITHRIL_MEMBER_F32
#undef MITHRIL_MEMBER_F64
#undef MITHRIL_MEMBER_I32
#undef MITHRIL_MEMBER_I64

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

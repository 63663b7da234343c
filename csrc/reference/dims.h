/* What the structured ops are told of sizes and strides, in plain C99; what their texts stand on.
 */
#ifndef MITHRIL_REFERENCE_DIMS_H_
#define MITHRIL_REFERENCE_DIMS_H_

#include <stddef.h>
#include <stdint.h>

#ifndef __cplusplus
#define REF_RESTRICT restrict
#else
#define REF_RESTRICT __restrict__
#endif

/* Of a type whose pointers reach elements of any other. */
#ifdef __GNUC__
#define REF_ANY_TYPE __attribute__((may_alias))
#else
#define REF_ANY_TYPE
#endif

/* Before the definition of each function that others call. */
#ifndef REF_API
#define REF_API
#endif

/* Whether to end early and leave results of no use; asked at least every 20 ms. Whoever compiles
 * the text may say. */
#ifndef REF_STOPS
#define REF_STOPS() 0
#endif
/* Asked in a step of a loop, once in some ten thousand operations, where each step does `work`. */
#define REF_STOPS_AT(step, work)                            \
  (((uint64_t)(step) * (uint64_t)(work)) >> 14 !=           \
       (((uint64_t)(step) + 1) * (uint64_t)(work)) >> 14 && \
   REF_STOPS())
/* The same of steps of little work. */
#define REF_STOPS_RARELY(step) (((step)&65535) == 65535 && REF_STOPS())

#define REF_BLOCK 256
#define REF_MAX_RANK 16

/* C[batch, i, j] = sum over p of A[batch, i, p] * B[batch, p, j]. Batch strides may be 0. */
typedef struct {
  int64_t batch_rank; /* at most REF_MAX_RANK */
  int64_t batch[REF_MAX_RANK];
  int64_t a_batch[REF_MAX_RANK], b_batch[REF_MAX_RANK], c_batch[REF_MAX_RANK];
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row, c_col;
} ref_matmul_dims;

/* Dense NCHW input and output, OIHW weights; padding below and on the right follows from h_out and
 * w_out. Input channels = groups * c_in, output channels = groups * c_out. */
typedef struct {
  int64_t batch, groups, c_in, h_in, w_in, c_out, h_out, w_out, kh, kw;
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
} ref_conv2d_dims;

/* Dense planes (all leading dimensions as one). */
typedef struct {
  int64_t planes, h_in, w_in, h_out, w_out, kh, kw;
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;
} ref_pool2d_dims;

/* Dense x[outer, bound, inner], index[count] -> y[outer, count, inner]. Indices from `lowest` (0,
 * or -bound when they may count from the end) to bound - 1 are good. */
typedef struct {
  int64_t outer, bound, inner, count, lowest;
} ref_gather_dims;

/* Dense x[outer, n, inner]; what is done along n, in rising order or in falling order. */
typedef struct {
  int64_t outer, n, inner;
  int falling;
} ref_axis_dims;

/* Strides may be zero (source) or negative. */
typedef struct {
  int64_t rank; /* at most REF_MAX_RANK */
  int64_t size[REF_MAX_RANK], from[REF_MAX_RANK], to[REF_MAX_RANK];
} ref_copy_dims;

/* `batch` dense matrices of n rows; k: columns of the right hand side. */
typedef struct {
  int64_t batch, n, k;
  int lower, transposed; /* of a triangular matrix: which half is read, and how */
} ref_linalg_dims;

#endif

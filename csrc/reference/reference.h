/* The structured ops in canonical order, in plain C99: the meaning of each op to the last bit, the
 * fallback of every native backend, and the text that exported C carries. Each file states one op
 * for the element type REAL; whoever compiles it may set REAL, FMA and NAMED (default: float).
 *
 * All functions do the units [begin, end) of their work and may be called for different units at
 * the same time; results do not depend on how units are split. Sizes and strides are in elements;
 * every size may be zero. Canonical order of a sum over k: blocks of 256 in rising order; in a
 * block sequential fma from +0; the first block's sum is stored, the others are added to it. An
 * empty sum is +0. */
#ifndef MITHRIL_REFERENCE_H_
#define MITHRIL_REFERENCE_H_

#include "reference/dims.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REF_DECLARE_REAL(REAL, S)                                                                    \
  /* Units: rows, batch * m. */                                                                      \
  void ref_matmul_##S(const ref_matmul_dims* d, const REAL* a, const REAL* b, REAL* c,               \
                      int64_t begin, int64_t end);                                                   \
  /* Units: output rows, batch * groups * c_out * h_out. k = (c, kh, kw); taps in the padding        \
   * are products with +0. */                                                                        \
  void ref_conv2d_##S(const ref_conv2d_dims* d, const REAL* x, const REAL* w, REAL* y,               \
                      int64_t begin, int64_t end);                                                   \
  /* Gradient with respect to x. Units: input rows, batch * groups * c_in * h_in. k = (o, kh,        \
   * kw) over those taps that meet the grid of the output (the position is a multiple of the         \
   * stride); taps beyond the output's edge are products with +0. */                                 \
  void ref_conv2d_dx_##S(const ref_conv2d_dims* d, const REAL* dy, const REAL* w, REAL* dx,          \
                         int64_t begin, int64_t end);                                                \
  /* Gradient with respect to w. Units: ref_conv2d_dw_units(d). k = (n, oh, ow); taps in the         \
   * padding are products with +0. */                                                                \
  void ref_conv2d_dw_##S(const ref_conv2d_dims* d, const REAL* x, const REAL* dy, REAL* dw,          \
                         int64_t begin, int64_t end);                                                \
  /* Units: planes. The first maximum of a window in row-major order (NaN counts as largest);        \
   * padding never wins; a window of padding alone gives -inf. */                                    \
  void ref_max_pool2d_##S(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,           \
                          int64_t end);                                                              \
  /* Units: planes. Each cotangent goes to the element that its window chose, windows in             \
   * row-major order, added from +0. */                                                              \
  void ref_max_pool2d_grad_##S(const ref_pool2d_dims* d, const REAL* x, const REAL* dy, REAL* dx,    \
                               int64_t begin, int64_t end);                                          \
  /* Units: planes. Sum in row-major order from +0, divided by kh * kw (padding counts). */          \
  void ref_avg_pool2d_##S(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,           \
                          int64_t end);                                                              \
  /* Units: planes. dy / (kh * kw), windows in row-major order, added from +0. */                    \
  void ref_avg_pool2d_grad_##S(const ref_pool2d_dims* d, const REAL* dy, REAL* dx, int64_t begin,    \
                               int64_t end);                                                         \
  /* dx = 0, then dx[o, index[j], i] += dy[o, j, i] with j rising. Units: rows of dx, outer *        \
   * max(bound, 1), the first of which is at `dx`. Returns the first j whose index is bad (it is     \
   * left out), or -1. */                                                                            \
  int64_t ref_gather_grad_i32_##S(const ref_gather_dims* d, const int32_t* index, const REAL* dy,    \
                                  REAL* dx, int64_t begin, int64_t end);                             \
  int64_t ref_gather_grad_i64_##S(const ref_gather_dims* d, const int64_t* index, const REAL* dy,    \
                                  REAL* dx, int64_t begin, int64_t end);                             \
  /* Units of linear algebra: matrices. Lower l with l lᵀ = (x + xᵀ) / 2. Returns the first unit \
   * that is not positive definite, or -1. */                                                        \
  int64_t ref_cholesky_##S(const ref_linalg_dims* d, const REAL* x, REAL* l, int64_t begin,          \
                           int64_t end);                                                             \
  /* t y = b, or tᵀ y = b, for one half of t; zeros on the diagonal give inf or NaN. */            \
  void ref_solve_triangular_##S(const ref_linalg_dims* d, const REAL* t, const REAL* b, REAL* y,     \
                                int64_t begin, int64_t end);                                         \
  /* a y = b. `scratch`: n * n. Returns the first unit that is singular, or -1. */                   \
  int64_t ref_solve_##S(const ref_linalg_dims* d, const REAL* a, const REAL* b, REAL* y,             \
                        REAL* scratch, int64_t begin, int64_t end);                                  \
  /* Determinants. `scratch`: n * n. */                                                              \
  void ref_det_##S(const ref_linalg_dims* d, const REAL* a, REAL* y, REAL* scratch, int64_t begin,   \
                   int64_t end);                                                                     \
  /* Determinants as fraction * 2^exponent, 0.5 <= |fraction| < 1 or both 0. `scratch`: n * n. */    \
  void ref_scaled_det_##S(const ref_linalg_dims* d, const REAL* a, REAL* fraction, REAL* exponent,   \
                          REAL* scratch, int64_t begin, int64_t end);                                \
  /* Cofactors, the derivatives of the determinant; also of singular matrices. `scratch`: two        \
   * matrices and n numbers. */                                                                      \
  void ref_cofactor_##S(const ref_linalg_dims* d, const REAL* a, REAL* y, REAL* scratch,             \
                        int64_t begin, int64_t end);                                                 \
  /* Of (x + xᵀ) / 2 by Jacobi's rotations: eigenvalues, rising, and eigenvectors as columns, the  \
   * largest component of each positive. `scratch`: n * n. */                                        \
  void ref_eigh_##S(const ref_linalg_dims* d, const REAL* x, REAL* values, REAL* vectors,            \
                    REAL* scratch, int64_t begin, int64_t end);                                      \
  /* Of matrices of n rows and k columns, p = min(n, k). x = q r, q [n, p] with orthonormal          \
   * columns, r [p, k] upper triangular, no negative number on its diagonal. `scratch`: n * k        \
   * + 3 * p. */                                                                                     \
  void ref_qr_##S(const ref_linalg_dims* d, const REAL* x, REAL* q, REAL* r, REAL* scratch,          \
                  int64_t begin, int64_t end);                                                       \
  /* x = u diag(values) vt, u [n, p], vt [p, k], values falling; the largest component of each       \
   * column of u is positive. `scratch`: n * k + p * p. */                                           \
  void ref_svd_##S(const ref_linalg_dims* d, const REAL* x, REAL* u, REAL* values, REAL* vt,         \
                   REAL* scratch, int64_t begin, int64_t end);

REF_DECLARE_REAL(float, f32)
REF_DECLARE_REAL(double, f64)

/* Integer products wrap. Units as above. */
void ref_matmul_i32(const ref_matmul_dims* d, const int32_t* a, const int32_t* b, int32_t* c,
                    int64_t begin, int64_t end);
void ref_matmul_i64(const ref_matmul_dims* d, const int64_t* a, const int64_t* b, int64_t* c,
                    int64_t begin, int64_t end);

/* y[o, j, :] = x[o, index[j], :] for elements of `size` bytes. Units: outer * count. Returns the
 * smallest bad j among its units (its output is set to zero bytes), or -1. */
int64_t ref_gather_i32(const ref_gather_dims* d, int64_t size, const void* x, const int32_t* index,
                       void* y, int64_t begin, int64_t end);
int64_t ref_gather_i64(const ref_gather_dims* d, int64_t size, const void* x, const int64_t* index,
                       void* y, int64_t begin, int64_t end);

/* y[0] = x[0], y[i] = a[i] * y[i - 1] + x[i] (one fma; integers wrap), from the last place on where
 * it falls. Units: outer * inner. */
void ref_linear_scan_f32(const ref_axis_dims* d, const float* a, const float* x, float* y,
                         int64_t begin, int64_t end);
void ref_linear_scan_f64(const ref_axis_dims* d, const double* a, const double* x, double* y,
                         int64_t begin, int64_t end);
void ref_linear_scan_i32(const ref_axis_dims* d, const int32_t* a, const int32_t* x, int32_t* y,
                         int64_t begin, int64_t end);
void ref_linear_scan_i64(const ref_axis_dims* d, const int64_t* a, const int64_t* x, int64_t* y,
                         int64_t begin, int64_t end);

/* Places in the order of their elements, as integers of `size` bytes (4 or 8). Stable; NaN is the
 * largest element. Units: outer * inner. `scratch`: 2 * n. */
void ref_argsort_f32(const ref_axis_dims* d, int64_t size, const float* x, void* y,
                     int64_t* scratch, int64_t begin, int64_t end);
void ref_argsort_f64(const ref_axis_dims* d, int64_t size, const double* x, void* y,
                     int64_t* scratch, int64_t begin, int64_t end);
void ref_argsort_i32(const ref_axis_dims* d, int64_t size, const int32_t* x, void* y,
                     int64_t* scratch, int64_t begin, int64_t end);
void ref_argsort_i64(const ref_axis_dims* d, int64_t size, const int64_t* x, void* y,
                     int64_t* scratch, int64_t begin, int64_t end);

/* Discrete Fourier transforms of re + i im (im null: 0), falling: with the other sign of the
 * exponent; not divided by n, which is not 0. Units: outer * inner. Elements of a table, of
 * scratch, and how many units are done together; prepare fills a table with the help of scratch. */
int64_t ref_dft_table(int64_t n);
int64_t ref_dft_scratch(int64_t n);
int64_t ref_dft_width(int64_t n);
void ref_dft_prepare(int64_t n, double* table, double* scratch);
/* `table` is only read. */
void ref_dft_f32(const ref_axis_dims* d, double* table, const float* re, const float* im,
                 float* yre, float* yim, double* scratch, int64_t begin, int64_t end);
void ref_dft_f64(const ref_axis_dims* d, double* table, const double* re, const double* im,
                 double* yre, double* yim, double* scratch, int64_t begin, int64_t end);
/* The first n / 2 + 1 places of the transform of real lines, with the same table and scratch. */
void ref_rdft_f32(const ref_axis_dims* d, double* table, const float* x, float* yre, float* yim,
                  double* scratch, int64_t begin, int64_t end);
void ref_rdft_f64(const ref_axis_dims* d, double* table, const double* x, double* yre, double* yim,
                  double* scratch, int64_t begin, int64_t end);

/* y[k] = the largest j with index[j] = k, or -1, as integers of `size` bytes (4 or 8); outer and
 * inner are 1. Units: places k. Returns the first bad j (it is left out), or -1. */
int64_t ref_last_writers_i32(const ref_gather_dims* d, int64_t size, const int32_t* index, void* y,
                             int64_t begin, int64_t end);
int64_t ref_last_writers_i64(const ref_gather_dims* d, int64_t size, const int64_t* index, void* y,
                             int64_t begin, int64_t end);

/* places[0 .. count) = the i with mask[i] not 0, rising; n places are there to be written, and what
 * is in those behind means nothing. Units: 1. */
void ref_true_places_i32(int64_t n, const unsigned char* mask, int32_t* places, int32_t* count,
                         int64_t begin, int64_t end);
void ref_true_places_i64(int64_t n, const unsigned char* mask, int64_t* places, int64_t* count,
                         int64_t begin, int64_t end);

/* Strided copy of elements of `size` bytes: slices, transposes, broadcasts, parts of a concat.
 * `from` and `to` do not overlap. Units: ref_copy_units(d), rows along the last axis. */
void ref_copy(const ref_copy_dims* d, int64_t size, const void* from, void* to, int64_t begin,
              int64_t end);
int64_t ref_copy_units(const ref_copy_dims* d);

int64_t ref_conv2d_dw_units(const ref_conv2d_dims* d);

#ifdef __cplusplus
}
#endif

#endif

/* Matrix product in canonical order, batched, any strides. */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

#define REF_MATMUL_WIDTH 32

/* `width` columns of one row of C, for one block of k. */
static void NAMED(ref_matmul_strided)(const REAL* a, int64_t a_col, const REAL* b, int64_t b_row,
                                      int64_t b_col, int64_t depth, int64_t width, REAL* sum) {
  for (int64_t j = 0; j < width; ++j) sum[j] = 0;
  for (int64_t p = 0; p < depth; ++p) {
    const REAL left = a[p * a_col];
    const REAL* right = b + p * b_row;
    for (int64_t j = 0; j < width; ++j) sum[j] = FMA(left, right[j * b_col], sum[j]);
  }
}

/* The same for a full width of contiguous columns. */
static void NAMED(ref_matmul_dense)(const REAL* a, int64_t a_col, const REAL* b, int64_t b_row,
                                    int64_t depth, REAL* REF_RESTRICT sum) {
  for (int j = 0; j < REF_MATMUL_WIDTH; ++j) sum[j] = 0;
  for (int64_t p = 0; p < depth; ++p) {
    const REAL left = a[p * a_col];
    const REAL* REF_RESTRICT right = b + p * b_row;
    for (int j = 0; j < REF_MATMUL_WIDTH; ++j) sum[j] = FMA(left, right[j], sum[j]);
  }
}

static void NAMED(ref_matmul_row)(const ref_matmul_dims* d, const REAL* a, const REAL* b, REAL* c) {
  REAL sum[REF_MATMUL_WIDTH] = {0};
  for (int64_t j = 0; j < d->n; j += REF_MATMUL_WIDTH) {
    const int64_t width = d->n - j < REF_MATMUL_WIDTH ? d->n - j : REF_MATMUL_WIDTH;
    if (REF_STOPS_AT(j, d->k)) return;
    REAL* out = c + j * d->c_col;
    for (int64_t p = 0; p == 0 || p < d->k; p += REF_BLOCK) {
      if (REF_STOPS_AT(p, REF_MATMUL_WIDTH)) return;
      const int64_t depth = d->k - p < REF_BLOCK ? d->k - p : REF_BLOCK;
      const REAL* left = a + p * d->a_col;
      const REAL* right = b + p * d->b_row + j * d->b_col;
      if (d->b_col == 1 && width == REF_MATMUL_WIDTH) {
        NAMED(ref_matmul_dense)(left, d->a_col, right, d->b_row, depth, sum);
      } else {
        NAMED(ref_matmul_strided)(left, d->a_col, right, d->b_row, d->b_col, depth, width, sum);
      }
      for (int64_t i = 0; i < width; ++i) {
        out[i * d->c_col] = p == 0 ? sum[i] : out[i * d->c_col] + sum[i];
      }
    }
  }
}

REF_API void NAMED(ref_matmul)(const ref_matmul_dims* d, const REAL* a, const REAL* b, REAL* c,
                               int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t row = unit % d->m;
    int64_t rest = unit / d->m;
    int64_t at_a = row * d->a_row, at_b = 0, at_c = row * d->c_row;
    for (int64_t axis = d->batch_rank - 1; axis >= 0; rest /= d->batch[axis--]) {
      const int64_t place = rest % d->batch[axis];
      at_a += place * d->a_batch[axis];
      at_b += place * d->b_batch[axis];
      at_c += place * d->c_batch[axis];
    }
    NAMED(ref_matmul_row)(d, a + at_a, b + at_b, c + at_c);
  }
}

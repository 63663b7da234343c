/* Matrix product of integers: sums wrap, so any order gives the same. */
#include "reference/reference.h"

#define REF_MATMUL_INTEGER(NAME, INT, UINT)                                                      \
  REF_API void NAME(const ref_matmul_dims* d, const INT* a, const INT* b, INT* c, int64_t begin, \
                    int64_t end) {                                                               \
    for (int64_t unit = begin; unit < end; ++unit) {                                             \
      const int64_t row = unit % d->m;                                                           \
      int64_t rest = unit / d->m;                                                                \
      int64_t at_a = row * d->a_row, at_b = 0, at_c = row * d->c_row;                            \
      for (int64_t axis = d->batch_rank - 1; axis >= 0; rest /= d->batch[axis--]) {              \
        const int64_t place = rest % d->batch[axis];                                             \
        at_a += place * d->a_batch[axis];                                                        \
        at_b += place * d->b_batch[axis];                                                        \
        at_c += place * d->c_batch[axis];                                                        \
      }                                                                                          \
      INT* out = c + at_c;                                                                       \
      for (int64_t j = 0; j < d->n; ++j) out[j * d->c_col] = 0;                                  \
      for (int64_t p = 0; p < d->k; ++p) {                                                       \
        if (REF_STOPS_AT(p, d->n)) return;                                                       \
        const UINT left = (UINT)a[at_a + p * d->a_col];                                          \
        const INT* right = b + at_b + p * d->b_row;                                              \
        for (int64_t j = 0; j < d->n; ++j) {                                                     \
          const UINT sum = (UINT)out[j * d->c_col] + left * (UINT)right[j * d->b_col];           \
          out[j * d->c_col] = (INT)sum;                                                          \
        }                                                                                        \
      }                                                                                          \
    }                                                                                            \
  }

REF_MATMUL_INTEGER(ref_matmul_i32, int32_t, uint32_t)
REF_MATMUL_INTEGER(ref_matmul_i64, int64_t, uint64_t)

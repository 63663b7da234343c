/* Gradient of gather: rows are added where they came from, in rising order. */
#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

/* A unit is a row of dx; a table without rows has one unit, which looks at the indices. */
#define REF_GATHER_GRAD(NAME, INDEX)                                                           \
  REF_API int64_t NAME(const ref_gather_dims* d, const INDEX* index, const REAL* dy, REAL* dx, \
                       int64_t begin, int64_t end) {                                           \
    const int64_t rows = d->bound > 0 ? d->bound : 1, inner = d->inner;                        \
    int64_t bad = -1;                                                                          \
    for (int64_t unit = begin; unit < end;) {                                                  \
      /* rows [first, last) of one outer slice */                                              \
      const int64_t outer = unit / rows, first = unit % rows;                                  \
      const int64_t last = rows - first < end - unit ? rows : first + (end - unit);            \
      const REAL* from = dy + outer * d->count * inner;                                        \
      REAL* to = dx + (unit - begin) * inner;                                                  \
      if (d->bound > 0) {                                                                      \
        for (int64_t i = 0; i < (last - first) * inner; ++i) to[i] = 0;                        \
      }                                                                                        \
      for (int64_t j = 0; j < d->count; ++j) {                                                 \
        if (REF_STOPS_RARELY(j)) return -1;                                                    \
        int64_t row = (int64_t)index[j];                                                       \
        if (row < d->lowest || row >= d->bound) {                                              \
          if (bad < 0 || j < bad) bad = j;                                                     \
          continue;                                                                            \
        }                                                                                      \
        if (row < 0) row += d->bound;                                                          \
        if (row < first || row >= last) continue;                                              \
        if (REF_STOPS_AT(j, inner)) return -1;                                                 \
        REAL* at = to + (row - first) * inner;                                                 \
        for (int64_t i = 0; i < inner; ++i) at[i] += from[j * inner + i];                      \
      }                                                                                        \
      unit += last - first;                                                                    \
    }                                                                                          \
    return bad;                                                                                \
  }

REF_GATHER_GRAD(NAMED(ref_gather_grad_i32), int32_t)
REF_GATHER_GRAD(NAMED(ref_gather_grad_i64), int64_t)

#undef REF_GATHER_GRAD

/* Gradient of gather: rows are added where they came from, in rising order. */
#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

#define REF_GATHER_GRAD(NAME, INDEX)                                                        \
  int64_t NAME(const ref_gather_dims* d, const INDEX* index, const REAL* dy, REAL* dx,      \
               int64_t begin, int64_t end) {                                                \
    int64_t bad = -1;                                                                       \
    for (int64_t unit = begin; unit < end;) {                                               \
      /* columns [first, last) of one outer slice */                                        \
      const int64_t outer = unit / d->inner, first = unit % d->inner;                       \
      const int64_t last = d->inner - first < end - unit ? d->inner : first + (end - unit); \
      const REAL* from = dy + outer * d->count * d->inner;                                  \
      REAL* to = dx + outer * d->bound * d->inner;                                          \
      for (int64_t row = 0; row < d->bound; ++row) {                                        \
        for (int64_t i = first; i < last; ++i) to[row * d->inner + i] = 0;                  \
      }                                                                                     \
      for (int64_t j = 0; j < d->count; ++j) {                                              \
        const int64_t value = (int64_t)index[j];                                            \
        if (value < d->lowest || value >= d->bound) {                                       \
          if (bad < 0 || j < bad) bad = j;                                                  \
          continue;                                                                         \
        }                                                                                   \
        REAL* REF_RESTRICT row = to + (value < 0 ? value + d->bound : value) * d->inner;    \
        for (int64_t i = first; i < last; ++i) row[i] += from[j * d->inner + i];            \
      }                                                                                     \
      unit += last - first;                                                                 \
    }                                                                                       \
    return bad;                                                                             \
  }

REF_GATHER_GRAD(NAMED(ref_gather_grad_i32), int32_t)
REF_GATHER_GRAD(NAMED(ref_gather_grad_i64), int64_t)

#undef REF_GATHER_GRAD

/* Rows picked by an index, for elements of any size. */
#include "reference/reference.h"

/* Each index is read once; what was checked is what is used. */
#define REF_GATHER(NAME, INDEX)                                                                   \
  REF_API int64_t NAME(const ref_gather_dims* d, int64_t size, const void* x, const INDEX* index, \
                       void* y, int64_t begin, int64_t end) {                                     \
    const int64_t bytes = d->inner * size;                                                        \
    int64_t bad = -1;                                                                             \
    for (int64_t unit = begin; unit < end; ++unit) {                                              \
      if (REF_STOPS_AT(unit, d->inner)) return -1;                                                \
      const int64_t outer = unit / d->count, j = unit % d->count;                                 \
      const int64_t value = (int64_t)index[j];                                                    \
      unsigned char* REF_RESTRICT to = (unsigned char*)y + unit * bytes;                          \
      if (value < d->lowest || value >= d->bound) {                                               \
        if (bad < 0 || j < bad) bad = j;                                                          \
        for (int64_t i = 0; i < bytes; ++i) to[i] = 0;                                            \
        continue;                                                                                 \
      }                                                                                           \
      const int64_t row = outer * d->bound + (value < 0 ? value + d->bound : value);              \
      const unsigned char* from = (const unsigned char*)x + row * bytes;                          \
      for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];                                        \
    }                                                                                             \
    return bad;                                                                                   \
  }

REF_GATHER(ref_gather_i32, int32_t)
REF_GATHER(ref_gather_i64, int64_t)

/* Linear recurrences along an axis. Those of float32 run in double, each place rounded once. */
#include <math.h>

#include "reference/reference.h"

/* Integers wrap, as unsigned arithmetic does. */
#define REF_WRAP32(a, y, x) (int32_t)((uint32_t)(a) * (uint32_t)(y) + (uint32_t)(x))
#define REF_WRAP64(a, y, x) (int64_t)((uint64_t)(a) * (uint64_t)(y) + (uint64_t)(x))

#define REF_LINEAR_SCAN(NAME, TYPE, WIDE, STEP)                                                   \
  REF_API void NAME(const ref_axis_dims* d, const TYPE* a, const TYPE* x, TYPE* y, int64_t begin, \
                    int64_t end) {                                                                \
    for (int64_t unit = begin; unit < end; ++unit) {                                              \
      const int64_t base = unit / d->inner * d->n * d->inner + unit % d->inner;                   \
      WIDE before = 0;                                                                            \
      for (int64_t i = 0; i < d->n; ++i) {                                                        \
        if (REF_STOPS_RARELY(i)) return;                                                          \
        const int64_t at = base + (d->falling ? d->n - 1 - i : i) * d->inner;                     \
        before = i == 0 ? x[at] : STEP(a[at], before, x[at]);                                     \
        y[at] = (TYPE)before;                                                                     \
      }                                                                                           \
    }                                                                                             \
  }

REF_LINEAR_SCAN(ref_linear_scan_f32, float, double, fma)
REF_LINEAR_SCAN(ref_linear_scan_f64, double, double, fma)
REF_LINEAR_SCAN(ref_linear_scan_i32, int32_t, int32_t, REF_WRAP32)
REF_LINEAR_SCAN(ref_linear_scan_i64, int64_t, int64_t, REF_WRAP64)

#undef REF_LINEAR_SCAN
#undef REF_WRAP32
#undef REF_WRAP64

/* Maximum over windows, a row of the result at a time: the values of reference/pool2d.c. */
#include <math.h>

#include "reference/dims.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

/* One tap of the columns [first, last) of a row: column i looks at x[left + i * step]. */
static void NAMED(max_pool2d_tap)(const REAL* REF_RESTRICT x, int64_t left, int64_t step,
                                  REAL* REF_RESTRICT best, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    const REAL value = x[left + i * step], so_far = best[i];
    best[i] = (value > so_far) | ((value != value) & (so_far == so_far)) ? value : so_far;
  }
}

/* The columns whose tap at `origin` of the first column lies in a row of `w` elements. */
static void NAMED(max_pool2d_inside)(int64_t origin, int64_t step, int64_t w, int64_t columns,
                                     int64_t* first, int64_t* last) {
  *first = origin < 0 ? (step - 1 - origin) / step : 0;
  *last = origin < w ? (w - 1 - origin) / step + 1 : 0;
  if (*last > columns) *last = columns;
}

/* Units: planes. */
REF_API void NAMED(max_pool2d_rows)(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,
                                    int64_t end) {
  for (int64_t row = begin * d->h_out; row < end * d->h_out; ++row) {
    const REAL* const plane = x + row / d->h_out * d->h_in * d->w_in;
    const int64_t top = row % d->h_out * d->stride_h - d->pad_top;
    REAL* const best = y + row * d->w_out;
    for (int64_t i = 0; i < d->w_out; ++i) best[i] = (REAL)-INFINITY;
    for (int64_t i = 0; i < d->kh; ++i) {
      const int64_t at = top + i * d->dilation_h;
      if (at < 0 || at >= d->h_in) continue;
      for (int64_t j = 0; j < d->kw; ++j) {
        const int64_t left = j * d->dilation_w - d->pad_left;
        int64_t first, last;
        NAMED(max_pool2d_inside)(left, d->stride_w, d->w_in, d->w_out, &first, &last);
        NAMED(max_pool2d_tap)(plane + at * d->w_in, left, d->stride_w, best, first, last);
      }
    }
  }
}

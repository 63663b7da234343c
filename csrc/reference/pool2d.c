/* Maximum and average over windows, with their gradients. */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

/* The taps of a window along one axis that are not padding: [*first, *last). */
static void NAMED(ref_pool_taps)(int64_t origin, int64_t dilation, int64_t taps, int64_t size,
                                 int64_t* first, int64_t* last) {
  *first = origin < 0 ? (dilation - 1 - origin) / dilation : 0;
  *last = taps;
  while (*last > *first && origin + (*last - 1) * dilation >= size) --*last;
}

/* Position in the plane of the first maximum of a window, or -1 when all of it is padding. */
static int64_t NAMED(ref_pool_argmax)(const ref_pool2d_dims* d, const REAL* x, int64_t oh,
                                      int64_t ow) {
  const int64_t top = oh * d->stride_h - d->pad_top, left = ow * d->stride_w - d->pad_left;
  int64_t i_first, i_last, j_first, j_last;
  NAMED(ref_pool_taps)(top, d->dilation_h, d->kh, d->h_in, &i_first, &i_last);
  NAMED(ref_pool_taps)(left, d->dilation_w, d->kw, d->w_in, &j_first, &j_last);
  if (i_first >= i_last || j_first >= j_last) return -1;
  int64_t best = (top + i_first * d->dilation_h) * d->w_in + left + j_first * d->dilation_w;
  REAL highest = x[best];
  for (int64_t i = i_first; i < i_last; ++i) {
    for (int64_t j = j_first; j < j_last; ++j) {
      const int64_t at = (top + i * d->dilation_h) * d->w_in + left + j * d->dilation_w;
      const REAL value = x[at];
      /* Selected, not branched on: which tap is the largest is anybody's guess. */
      const int64_t better =
          -(int64_t)((value > highest) | ((value != value) & (highest == highest)));
      best = (at & better) | (best & ~better);
      highest = x[best];
    }
  }
  return best;
}

REF_API void NAMED(ref_max_pool2d)(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,
                                   int64_t end) {
  for (int64_t plane = begin; plane < end; ++plane) {
    const REAL* in = x + plane * d->h_in * d->w_in;
    REAL* out = y + plane * d->h_out * d->w_out;
    for (int64_t oh = 0; oh < d->h_out; ++oh) {
      if (REF_STOPS_AT(oh, d->w_out * d->kh * d->kw)) return;
      for (int64_t ow = 0; ow < d->w_out; ++ow) {
        const int64_t at = NAMED(ref_pool_argmax)(d, in, oh, ow);
        *out++ = at < 0 ? (REAL)-INFINITY : in[at];
      }
    }
  }
}

REF_API void NAMED(ref_max_pool2d_grad)(const ref_pool2d_dims* d, const REAL* x, const REAL* dy,
                                        REAL* dx, int64_t begin, int64_t end) {
  for (int64_t plane = begin; plane < end; ++plane) {
    const REAL* in = x + plane * d->h_in * d->w_in;
    const REAL* given = dy + plane * d->h_out * d->w_out;
    REAL* out = dx + plane * d->h_in * d->w_in;
    for (int64_t i = 0; i < d->h_in * d->w_in; ++i) out[i] = 0;
    for (int64_t oh = 0; oh < d->h_out; ++oh) {
      if (REF_STOPS_AT(oh, d->w_out * d->kh * d->kw)) return;
      for (int64_t ow = 0; ow < d->w_out; ++ow, ++given) {
        const int64_t at = NAMED(ref_pool_argmax)(d, in, oh, ow);
        if (at >= 0) out[at] += *given;
      }
    }
  }
}

/* The sum of a window; with `share`, `in` is left alone and each element of `out` gets it. */
static REAL NAMED(ref_pool_window)(const ref_pool2d_dims* d, const REAL* in, REAL share, REAL* out,
                                   int64_t oh, int64_t ow) {
  REAL sum = 0;
  for (int64_t i = 0; i < d->kh; ++i) {
    const int64_t ih = oh * d->stride_h + i * d->dilation_h - d->pad_top;
    if (ih < 0 || ih >= d->h_in) continue;
    for (int64_t j = 0; j < d->kw; ++j) {
      const int64_t iw = ow * d->stride_w + j * d->dilation_w - d->pad_left;
      if (iw < 0 || iw >= d->w_in) continue;
      if (out) {
        out[ih * d->w_in + iw] += share;
      } else {
        sum += in[ih * d->w_in + iw];
      }
    }
  }
  return sum;
}

REF_API void NAMED(ref_avg_pool2d)(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,
                                   int64_t end) {
  const REAL divisor = (REAL)(d->kh * d->kw);
  for (int64_t plane = begin; plane < end; ++plane) {
    const REAL* in = x + plane * d->h_in * d->w_in;
    for (int64_t unit = 0; unit < d->h_out * d->w_out; ++unit) {
      if (REF_STOPS_RARELY(unit)) return;
      const REAL sum = NAMED(ref_pool_window)(d, in, 0, NULL, unit / d->w_out, unit % d->w_out);
      y[plane * d->h_out * d->w_out + unit] = sum / divisor;
    }
  }
}

REF_API void NAMED(ref_avg_pool2d_grad)(const ref_pool2d_dims* d, const REAL* dy, REAL* dx,
                                        int64_t begin, int64_t end) {
  const REAL divisor = (REAL)(d->kh * d->kw);
  for (int64_t plane = begin; plane < end; ++plane) {
    REAL* out = dx + plane * d->h_in * d->w_in;
    for (int64_t i = 0; i < d->h_in * d->w_in; ++i) out[i] = 0;
    for (int64_t unit = 0; unit < d->h_out * d->w_out; ++unit) {
      if (REF_STOPS_RARELY(unit)) return;
      const REAL share = dy[plane * d->h_out * d->w_out + unit] / divisor;
      NAMED(ref_pool_window)(d, NULL, share, out, unit / d->w_out, unit % d->w_out);
    }
  }
}

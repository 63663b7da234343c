/* Maximum and average over windows, with their gradients. */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

/* Position in the plane of the first maximum of a window, or -1 when all of it is padding. */
static int64_t NAMED(ref_pool_argmax)(const ref_pool2d_dims* d, const REAL* x, int64_t oh,
                                      int64_t ow) {
  int64_t best = -1;
  for (int64_t i = 0; i < d->kh; ++i) {
    const int64_t ih = oh * d->stride_h + i * d->dilation_h - d->pad_top;
    if (ih < 0 || ih >= d->h_in) continue;
    for (int64_t j = 0; j < d->kw; ++j) {
      const int64_t iw = ow * d->stride_w + j * d->dilation_w - d->pad_left;
      if (iw < 0 || iw >= d->w_in) continue;
      const int64_t at = ih * d->w_in + iw;
      const int best_is_number = best < 0 || x[best] == x[best];
      if (best < 0 || x[at] > x[best] || (x[at] != x[at] && best_is_number)) best = at;
    }
  }
  return best;
}

void NAMED(ref_max_pool2d)(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,
                           int64_t end) {
  for (int64_t plane = begin; plane < end; ++plane) {
    const REAL* in = x + plane * d->h_in * d->w_in;
    for (int64_t unit = 0; unit < d->h_out * d->w_out; ++unit) {
      const int64_t at = NAMED(ref_pool_argmax)(d, in, unit / d->w_out, unit % d->w_out);
      y[plane * d->h_out * d->w_out + unit] = at < 0 ? (REAL)-INFINITY : in[at];
    }
  }
}

void NAMED(ref_max_pool2d_grad)(const ref_pool2d_dims* d, const REAL* x, const REAL* dy, REAL* dx,
                                int64_t begin, int64_t end) {
  for (int64_t plane = begin; plane < end; ++plane) {
    const REAL* in = x + plane * d->h_in * d->w_in;
    REAL* out = dx + plane * d->h_in * d->w_in;
    for (int64_t i = 0; i < d->h_in * d->w_in; ++i) out[i] = 0;
    for (int64_t unit = 0; unit < d->h_out * d->w_out; ++unit) {
      const int64_t at = NAMED(ref_pool_argmax)(d, in, unit / d->w_out, unit % d->w_out);
      if (at >= 0) out[at] += dy[plane * d->h_out * d->w_out + unit];
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

void NAMED(ref_avg_pool2d)(const ref_pool2d_dims* d, const REAL* x, REAL* y, int64_t begin,
                           int64_t end) {
  const REAL divisor = (REAL)(d->kh * d->kw);
  for (int64_t plane = begin; plane < end; ++plane) {
    const REAL* in = x + plane * d->h_in * d->w_in;
    for (int64_t unit = 0; unit < d->h_out * d->w_out; ++unit) {
      const REAL sum = NAMED(ref_pool_window)(d, in, 0, NULL, unit / d->w_out, unit % d->w_out);
      y[plane * d->h_out * d->w_out + unit] = sum / divisor;
    }
  }
}

void NAMED(ref_avg_pool2d_grad)(const ref_pool2d_dims* d, const REAL* dy, REAL* dx, int64_t begin,
                                int64_t end) {
  const REAL divisor = (REAL)(d->kh * d->kw);
  for (int64_t plane = begin; plane < end; ++plane) {
    REAL* out = dx + plane * d->h_in * d->w_in;
    for (int64_t i = 0; i < d->h_in * d->w_in; ++i) out[i] = 0;
    for (int64_t unit = 0; unit < d->h_out * d->w_out; ++unit) {
      const REAL share = dy[plane * d->h_out * d->w_out + unit] / divisor;
      NAMED(ref_pool_window)(d, NULL, share, out, unit / d->w_out, unit % d->w_out);
    }
  }
}

/* Convolution forward, in canonical order over (c, kh, kw). */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

#define REF_CONV_WIDTH 32

/* taps[i] = x[first + i * step] where that lies in [0, w_in), else +0. */
static void NAMED(ref_conv_taps)(const REAL* x, int64_t w_in, int64_t first, int64_t step,
                                 int64_t width, REAL* REF_RESTRICT taps) {
  if (step == 1 && first >= 0 && first + width <= w_in) {
    for (int64_t i = 0; i < width; ++i) taps[i] = x[first + i];
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    const int64_t at = first + i * step;
    taps[i] = at >= 0 && at < w_in ? x[at] : 0;
  }
}

static void NAMED(ref_conv_fma)(REAL weight, const REAL* REF_RESTRICT taps,
                                REAL* REF_RESTRICT sum) {
  for (int i = 0; i < REF_CONV_WIDTH; ++i) sum[i] = FMA(taps[i], weight, sum[i]);
}

/* Adds what a block has summed to the output, or stores it if it is the first. */
static void NAMED(ref_conv_flush)(REAL* sum, REAL* y, int64_t width, int first) {
  for (int64_t i = 0; i < width; ++i) y[i] = first ? sum[i] : y[i] + sum[i];
  for (int i = 0; i < REF_CONV_WIDTH; ++i) sum[i] = 0;
}

/* x: the group's first plane of one image; w: one filter; y: one output row from column `ow`. */
static void NAMED(ref_conv_span)(const ref_conv2d_dims* d, const REAL* x, const REAL* w, REAL* y,
                                 int64_t oh, int64_t ow, int64_t width) {
  REAL sum[REF_CONV_WIDTH] = {0}, taps[REF_CONV_WIDTH] = {0};
  int64_t depth = 0;
  for (int64_t c = 0; c < d->c_in; ++c) {
    for (int64_t i = 0; i < d->kh; ++i) {
      const int64_t ih = oh * d->stride_h + i * d->dilation_h - d->pad_top;
      const int inside = ih >= 0 && ih < d->h_in;
      const REAL* row = inside ? x + (c * d->h_in + ih) * d->w_in : x;
      for (int64_t j = 0; j < d->kw; ++j) {
        const int64_t iw = ow * d->stride_w + j * d->dilation_w - d->pad_left;
        NAMED(ref_conv_taps)(row, inside ? d->w_in : 0, iw, d->stride_w, width, taps);
        NAMED(ref_conv_fma)(w[depth], taps, sum);
        if (++depth % REF_BLOCK == 0) NAMED(ref_conv_flush)(sum, y, width, depth == REF_BLOCK);
      }
    }
  }
  if (depth == 0 || depth % REF_BLOCK != 0) {
    NAMED(ref_conv_flush)(sum, y, width, depth < REF_BLOCK);
  }
}

REF_API void NAMED(ref_conv2d)(const ref_conv2d_dims* d, const REAL* x, const REAL* w, REAL* y,
                               int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t oh = unit % d->h_out;
    const int64_t plane = unit / d->h_out; /* (n, group, o) */
    const int64_t o = plane % (d->groups * d->c_out);
    const int64_t n = plane / (d->groups * d->c_out);
    const int64_t input_plane = (n * d->groups + o / d->c_out) * d->c_in;
    const REAL* image = x + input_plane * d->h_in * d->w_in;
    const REAL* filter = w + o * d->c_in * d->kh * d->kw;
    for (int64_t ow = 0; ow < d->w_out; ow += REF_CONV_WIDTH) {
      const int64_t width = d->w_out - ow < REF_CONV_WIDTH ? d->w_out - ow : REF_CONV_WIDTH;
      NAMED(ref_conv_span)(d, image, filter, y + unit * d->w_out + ow, oh, ow, width);
    }
  }
}

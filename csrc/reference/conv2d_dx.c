/* Gradient of a convolution with respect to its input, in canonical order over (o, kh, kw). */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

#define REF_DX_WIDTH 32

/* `numerator` / `stride`, rounded down; *meets: it is a whole number. */
static int64_t NAMED(ref_dx_output)(int64_t numerator, int64_t stride, int* meets) {
  const int64_t rest = (numerator % stride + stride) % stride;
  *meets = rest == 0;
  return (numerator - rest) / stride;
}

static void NAMED(ref_dx_flush)(REAL* sum, REAL* dx, int64_t step, int64_t width, int first) {
  for (int64_t i = 0; i < width; ++i) dx[i * step] = first ? sum[i] : dx[i * step] + sum[i];
  for (int i = 0; i < REF_DX_WIDTH; ++i) sum[i] = 0;
}

static void NAMED(ref_dx_tap)(const REAL* row, int64_t ow, int64_t w_out, int64_t width,
                              REAL weight, REAL* REF_RESTRICT taps, REAL* REF_RESTRICT sum) {
  for (int64_t q = 0; q < width; ++q) {
    taps[q] = ow + q >= 0 && ow + q < w_out ? row[ow + q] : 0;
  }
  for (int q = 0; q < REF_DX_WIDTH; ++q) sum[q] = FMA(taps[q], weight, sum[q]);
}

/* Input columns iw, iw + stride, ... (`width` of them) of one input row: they meet the same taps.
 * dy: the group's first plane of one image; w: the filters of the group at this input channel. */
static void NAMED(ref_dx_span)(const ref_conv2d_dims* d, const REAL* dy, const REAL* w, REAL* dx,
                               int64_t ih, int64_t iw, int64_t width) {
  REAL sum[REF_DX_WIDTH] = {0}, taps[REF_DX_WIDTH] = {0};
  int64_t depth = 0;
  for (int64_t o = 0; o < d->c_out; ++o) {
    for (int64_t i = 0; i < d->kh; ++i) {
      int meets = 0;
      const int64_t oh =
          NAMED(ref_dx_output)(ih + d->pad_top - i * d->dilation_h, d->stride_h, &meets);
      if (!meets) continue;
      const int inside = oh >= 0 && oh < d->h_out;
      const REAL* row = inside ? dy + (o * d->h_out + oh) * d->w_out : dy;
      for (int64_t j = 0; j < d->kw; ++j) {
        const int64_t ow =
            NAMED(ref_dx_output)(iw + d->pad_left - j * d->dilation_w, d->stride_w, &meets);
        if (!meets) continue;
        const REAL weight = w[(o * d->c_in * d->kh + i) * d->kw + j];
        NAMED(ref_dx_tap)(row, ow, inside ? d->w_out : 0, width, weight, taps, sum);
        if (++depth % REF_BLOCK == 0) {
          NAMED(ref_dx_flush)(sum, dx, d->stride_w, width, depth == REF_BLOCK);
        }
      }
    }
  }
  if (depth == 0 || depth % REF_BLOCK != 0) {
    NAMED(ref_dx_flush)(sum, dx, d->stride_w, width, depth < REF_BLOCK);
  }
}

REF_API void NAMED(ref_conv2d_dx)(const ref_conv2d_dims* d, const REAL* dy, const REAL* w, REAL* dx,
                                  int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t ih = unit % d->h_in;
    const int64_t plane = unit / d->h_in; /* (n, group, c) */
    const int64_t c = plane % d->c_in;
    const int64_t group = plane / d->c_in % d->groups;
    const int64_t n = plane / d->c_in / d->groups;
    const REAL* image = dy + (n * d->groups + group) * d->c_out * d->h_out * d->w_out;
    const REAL* filters = w + (group * d->c_out * d->c_in + c) * d->kh * d->kw;
    for (int64_t phase = 0; phase < d->stride_w && phase < d->w_in; ++phase) {
      const int64_t count = (d->w_in - phase - 1) / d->stride_w + 1;
      for (int64_t q = 0; q < count; q += REF_DX_WIDTH) {
        const int64_t width = count - q < REF_DX_WIDTH ? count - q : REF_DX_WIDTH;
        const int64_t iw = phase + q * d->stride_w;
        NAMED(ref_dx_span)(d, image, filters, dx + unit * d->w_in + iw, ih, iw, width);
      }
    }
  }
}

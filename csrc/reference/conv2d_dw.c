/* Gradient of a convolution with respect to its weights, in canonical order over (n, oh, ow). */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#define REF_FIRST_TYPE
#endif

#define REF_DW_WIDTH 16

/* panel[p][t] = x at tap `tap + t` of output position `from + p`; +0 in the padding. */
static void NAMED(ref_dw_gather)(const ref_conv2d_dims* d, const REAL* x, int64_t group,
                                 int64_t tap, int64_t width, int64_t from, int64_t depth,
                                 REAL* REF_RESTRICT panel) {
  for (int64_t t = 0; t < width; ++t) {
    const int64_t c = (tap + t) / (d->kh * d->kw);
    const int64_t i = (tap + t) / d->kw % d->kh, j = (tap + t) % d->kw;
    for (int64_t p = 0; p < depth; ++p) {
      const int64_t oh = (from + p) / d->w_out % d->h_out, ow = (from + p) % d->w_out;
      const int64_t n = (from + p) / d->w_out / d->h_out;
      const int64_t ih = oh * d->stride_h + i * d->dilation_h - d->pad_top;
      const int64_t iw = ow * d->stride_w + j * d->dilation_w - d->pad_left;
      const int64_t plane = (n * d->groups + group) * d->c_in + c;
      const int inside = ih >= 0 && ih < d->h_in && iw >= 0 && iw < d->w_in;
      panel[p * REF_DW_WIDTH + t] = inside ? x[(plane * d->h_in + ih) * d->w_in + iw] : 0;
    }
  }
}

/* left[p] = dy of output channel `o` (of all groups) at output position `from + p`. */
static void NAMED(ref_dw_cotangents)(const ref_conv2d_dims* d, const REAL* dy, int64_t o,
                                     int64_t from, int64_t depth, REAL* REF_RESTRICT left) {
  const int64_t plane = d->h_out * d->w_out;
  for (int64_t p = 0; p < depth; ++p) {
    const int64_t n = (from + p) / plane;
    left[p] = dy[(n * d->groups * d->c_out + o) * plane + (from + p) % plane];
  }
}

static void NAMED(ref_dw_block)(const REAL* REF_RESTRICT left, const REAL* REF_RESTRICT panel,
                                int64_t depth, REAL* REF_RESTRICT sum) {
  for (int t = 0; t < REF_DW_WIDTH; ++t) sum[t] = 0;
  for (int64_t p = 0; p < depth; ++p) {
    for (int t = 0; t < REF_DW_WIDTH; ++t) {
      sum[t] = FMA(panel[p * REF_DW_WIDTH + t], left[p], sum[t]);
    }
  }
}

REF_API void NAMED(ref_conv2d_dw)(const ref_conv2d_dims* d, const REAL* x, const REAL* dy, REAL* dw,
                                  int64_t begin, int64_t end) {
  REAL panel[REF_BLOCK * REF_DW_WIDTH] = {0}, left[REF_BLOCK], sum[REF_DW_WIDTH];
  const int64_t taps = d->c_in * d->kh * d->kw;
  const int64_t spans = (taps + REF_DW_WIDTH - 1) / REF_DW_WIDTH;
  const int64_t total = d->batch * d->h_out * d->w_out;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t group = unit / spans, tap = unit % spans * REF_DW_WIDTH;
    const int64_t width = taps - tap < REF_DW_WIDTH ? taps - tap : REF_DW_WIDTH;
    for (int64_t from = 0; from == 0 || from < total; from += REF_BLOCK) {
      const int64_t depth = total - from < REF_BLOCK ? total - from : REF_BLOCK;
      NAMED(ref_dw_gather)(d, x, group, tap, width, from, depth, panel);
      for (int64_t o = group * d->c_out; o < (group + 1) * d->c_out; ++o) {
        REAL* out = dw + o * taps + tap;
        NAMED(ref_dw_cotangents)(d, dy, o, from, depth, left);
        NAMED(ref_dw_block)(left, panel, depth, sum);
        for (int64_t t = 0; t < width; ++t) out[t] = from == 0 ? sum[t] : out[t] + sum[t];
      }
    }
  }
}

#ifdef REF_FIRST_TYPE
REF_API int64_t ref_conv2d_dw_units(const ref_conv2d_dims* d) {
  return d->groups * ((d->c_in * d->kh * d->kw + REF_DW_WIDTH - 1) / REF_DW_WIDTH);
}
#endif

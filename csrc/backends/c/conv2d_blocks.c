/* Convolution and its gradients as products over gathered taps (im2col) by gemm.inc: sums run in
 * the order of reference/, taps in the padding are products with +0. */
#include "backends/c/gemm.inc"

/* Planes whose elements are gathered: tap (c, i, j) of position (y, x) of the result is element
 * (y * row_step + i * tap_row + row, x * column_step + j * tap_column + column) of plane c. */
typedef struct {
  const REAL* at;
  int64_t h, w, kh, kw, width; /* of planes, of windows, of rows of the result */
  int64_t row_step, column_step, tap_row, tap_column, row, column;
} NAMED(conv_taps);

/* One tap of positions that lie in one row of the result. */
static void NAMED(conv_run)(const REAL* REF_RESTRICT row, int64_t w, int64_t first, int64_t step,
                            int64_t count, REAL* REF_RESTRICT to) {
  if (step == 1) {
    int64_t begin = first < 0 ? -first : 0, end = w - first;
    if (begin > count) begin = count;
    if (end > count) end = count;
    if (end < begin) end = begin;
    for (int64_t i = 0; i < begin; ++i) to[i] = 0;
    for (int64_t i = begin; i < end; ++i) to[i] = row[first + i];
    for (int64_t i = end; i < count; ++i) to[i] = 0;
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = first + i * step;
    to[i] = at >= 0 && at < w ? row[at] : 0;
  }
}

/* Rows are taps, columns positions. */
static void NAMED(conv_pack)(const void* right, int64_t p, int64_t depth, int64_t j,
                             int64_t columns, REAL* to) {
  const NAMED(conv_taps)* t = right;
  int64_t plane = p / (t->kh * t->kw), i = p / t->kw % t->kh, tap = p % t->kw;
  for (int64_t q = 0; q < depth; ++q, to += GEMM_COLUMNS) {
    int64_t y = j / t->width, x = j % t->width, done = 0;
    while (done < columns) {
      const int64_t left = t->width - x, count = left < columns - done ? left : columns - done;
      const int64_t row = y * t->row_step + i * t->tap_row + t->row;
      const int inside = row >= 0 && row < t->h;
      NAMED(conv_run)
      (inside ? t->at + (plane * t->h + row) * t->w : t->at, inside ? t->w : 0,
       x * t->column_step + tap * t->tap_column + t->column, t->column_step, count, to + done);
      done += count;
      x = 0;
      ++y;
    }
    for (; done < GEMM_COLUMNS; ++done) to[done] = 0;
    if (++tap == t->kw) {
      tap = 0;
      if (++i == t->kh) {
        i = 0;
        ++plane;
      }
    }
  }
}

/* Rows are positions (n, y, x), columns taps. */
typedef struct {
  NAMED(conv_taps) taps;
  int64_t image, height; /* from one image to the next; rows of the result */
} NAMED(conv_positions);

static void NAMED(conv_pack_positions)(const void* right, int64_t p, int64_t depth, int64_t j,
                                       int64_t columns, REAL* to) {
  const NAMED(conv_positions)* source = right;
  const NAMED(conv_taps)* t = &source->taps;
  for (int64_t k = 0; k < GEMM_COLUMNS; ++k) {
    if (k >= columns) {
      for (int64_t q = 0; q < depth; ++q) to[q * GEMM_COLUMNS + k] = 0;
      continue;
    }
    const int64_t plane = (j + k) / (t->kh * t->kw);
    const int64_t i = (j + k) / t->kw % t->kh, tap = (j + k) % t->kw;
    const REAL* const planes = t->at + plane * t->h * t->w;
    int64_t x = p % t->width, y = p / t->width % source->height;
    int64_t n = p / t->width / source->height;
    for (int64_t q = 0; q < depth; ++n, y = 0) {
      for (; y < source->height && q < depth; ++y, x = 0) {
        const int64_t row = y * t->row_step + i * t->tap_row + t->row;
        const int inside = row >= 0 && row < t->h;
        const REAL* const from = inside ? planes + n * source->image + row * t->w : planes;
        for (; x < t->width && q < depth; ++x, ++q) {
          const int64_t at = x * t->column_step + tap * t->tap_column + t->column;
          to[q * GEMM_COLUMNS + k] = inside && at >= 0 && at < t->w ? from[at] : 0;
        }
      }
    }
  }
}

/* Units: blocks of positions of a group of an image. */
#define CONV_UNIT (GEMM_PANELS * GEMM_COLUMNS)

REF_API void NAMED(conv2d_blocks)(const ref_conv2d_dims* d, const REAL* x, const REAL* w, REAL* y,
                                  void* scratch, int64_t begin, int64_t end) {
  const int64_t plane = d->h_out * d->w_out, k = d->c_in * d->kh * d->kw;
  const int64_t blocks = (plane + CONV_UNIT - 1) / CONV_UNIT;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % blocks * CONV_UNIT, part = unit / blocks; /* (n, group) */
    const int64_t last = plane - first < CONV_UNIT ? plane : first + CONV_UNIT;
    const NAMED(gemm_left) left = {w + part % d->groups * d->c_out * k, k, k, 0, 1};
    const NAMED(conv_taps) right = {x + part * d->c_in * d->h_in * d->w_in,
                                    d->h_in,
                                    d->w_in,
                                    d->kh,
                                    d->kw,
                                    d->w_out,
                                    d->stride_h,
                                    d->stride_w,
                                    d->dilation_h,
                                    d->dilation_w,
                                    -d->pad_top,
                                    -d->pad_left};
    NAMED(gemm)
    (d->c_out, k, &left, NAMED(conv_pack), &right, NULL, 0, y + part * d->c_out * plane, plane,
     scratch, first, last);
  }
}

/* Strides of 1 only: then every input position meets all taps. */
REF_API void NAMED(conv2d_dx_blocks)(const ref_conv2d_dims* d, const REAL* dy, const REAL* w,
                                     REAL* dx, void* scratch, int64_t begin, int64_t end) {
  const int64_t plane = d->h_in * d->w_in, taps = d->kh * d->kw;
  const int64_t blocks = (plane + CONV_UNIT - 1) / CONV_UNIT;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % blocks * CONV_UNIT, part = unit / blocks; /* (n, group) */
    const int64_t last = plane - first < CONV_UNIT ? plane : first + CONV_UNIT;
    const NAMED(gemm_left)
        left = {w + part % d->groups * d->c_out * d->c_in * taps, taps, taps, d->c_in * taps, 1};
    const NAMED(conv_taps) right = {dy + part * d->c_out * d->h_out * d->w_out,
                                    d->h_out,
                                    d->w_out,
                                    d->kh,
                                    d->kw,
                                    d->w_in,
                                    1,
                                    1,
                                    -d->dilation_h,
                                    -d->dilation_w,
                                    d->pad_top,
                                    d->pad_left};
    NAMED(gemm)
    (d->c_in, d->c_out * taps, &left, NAMED(conv_pack), &right, NULL, 0,
     dx + part * d->c_in * plane, plane, scratch, first, last);
  }
}

/* Units: blocks of taps of a group. */
REF_API void NAMED(conv2d_dw_blocks)(const ref_conv2d_dims* d, const REAL* x, const REAL* dy,
                                     REAL* dw, void* scratch, int64_t begin, int64_t end) {
  const int64_t plane = d->h_out * d->w_out, taps = d->c_in * d->kh * d->kw;
  const int64_t blocks = (taps + CONV_UNIT - 1) / CONV_UNIT;
  const int64_t image = d->c_in * d->h_in * d->w_in;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % blocks * CONV_UNIT, group = unit / blocks;
    const int64_t last = taps - first < CONV_UNIT ? taps : first + CONV_UNIT;
    const NAMED(gemm_left) left = {dy + group * d->c_out * plane, plane, plane > 0 ? plane : 1,
                                   d->groups * d->c_out * plane, 1};
    const NAMED(conv_positions)
        right = {{x + group * image, d->h_in, d->w_in, d->kh, d->kw, d->w_out, d->stride_h,
                  d->stride_w, d->dilation_h, d->dilation_w, -d->pad_top, -d->pad_left},
                 d->groups * image,
                 d->h_out};
    NAMED(gemm)
    (d->c_out, d->batch * plane, &left, NAMED(conv_pack_positions), &right, NULL, 0,
     dw + group * d->c_out * taps, taps, scratch, first, last);
  }
}

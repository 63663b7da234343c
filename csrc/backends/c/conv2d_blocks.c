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

/* Rows are short: calls of memcpy would take longer. */
static void NAMED(conv_copy)(const REAL* REF_RESTRICT from, int64_t count, REAL* REF_RESTRICT to) {
  for (; count >= 8; count -= 8, from += 8, to += 8) memcpy(to, from, 8 * sizeof(REAL));
  if (count & 4) {
    memcpy(to, from, 4 * sizeof(REAL));
    from += 4;
    to += 4;
  }
  if (count & 2) {
    memcpy(to, from, 2 * sizeof(REAL));
    from += 2;
    to += 2;
  }
  if (count & 1) *to = *from;
}

/* One tap of `count` positions that lie in one row of the result; those in the padding stay. */
static void NAMED(conv_run)(const REAL* REF_RESTRICT row, int64_t w, int64_t first, int64_t step,
                            int64_t count, REAL* REF_RESTRICT to) {
  if (step == 1) {
    const int64_t begin = first < 0 ? -first : 0, end = w - first < count ? w - first : count;
    if (begin < end) NAMED(conv_copy)(row + first + begin, end - begin, to + begin);
    return;
  }
  const int64_t begin = first < 0 ? (step - 1 - first) / step : 0;
  int64_t end = first < w ? (w - 1 - first) / step + 1 : 0;
  if (end > count) end = count;
  if (step == 2) {
    for (int64_t i = begin; i < end; ++i) to[i] = row[first + i * 2];
  } else {
    for (int64_t i = begin; i < end; ++i) to[i] = row[first + i * step];
  }
}

/* Rows are taps, columns positions. */
static void NAMED(conv_pack)(const void* right, int64_t p, int64_t depth, int64_t j,
                             int64_t columns, REAL* to) {
  const NAMED(conv_taps)* t = right;
  const int64_t first_y = j / t->width, first_x = j % t->width;
  int64_t plane = p / (t->kh * t->kw), i = p / t->kw % t->kh, tap = p % t->kw;
  for (int64_t q = 0; q < depth; ++q, to += GEMM_COLUMNS) {
    int64_t y = first_y, x = first_x;
    memset(to, 0, GEMM_COLUMNS * sizeof(REAL));
    for (int64_t done = 0; done < columns; x = 0, ++y) {
      const int64_t left = t->width - x, count = left < columns - done ? left : columns - done;
      const int64_t row = y * t->row_step + i * t->tap_row + t->row;
      if (row >= 0 && row < t->h) {
        NAMED(conv_run)
        (t->at + (plane * t->h + row) * t->w, t->w,
         x * t->column_step + tap * t->tap_column + t->column, t->column_step, count, to + done);
      }
      done += count;
    }
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

/* `depth` positions from p on of one tap. */
static void NAMED(conv_column)(const NAMED(conv_positions) * source, int64_t p, int64_t depth,
                               int64_t column, REAL* to) {
  const NAMED(conv_taps)* t = &source->taps;
  const int64_t i = column / t->kw % t->kh, tap = column % t->kw;
  const REAL* const planes = t->at + column / (t->kh * t->kw) * t->h * t->w;
  int64_t x = p % t->width, y = p / t->width % source->height;
  int64_t n = p / t->width / source->height;
  memset(to, 0, (size_t)depth * sizeof(REAL));
  for (int64_t q = 0; q < depth; x = 0) {
    const int64_t left = t->width - x, count = left < depth - q ? left : depth - q;
    const int64_t row = y * t->row_step + i * t->tap_row + t->row;
    if (row >= 0 && row < t->h) {
      NAMED(conv_run)
      (planes + n * source->image + row * t->w, t->w,
       x * t->column_step + tap * t->tap_column + t->column, t->column_step, count, to + q);
    }
    q += count;
    if (++y == source->height) {
      y = 0;
      ++n;
    }
  }
}

static void NAMED(conv_pack_positions)(const void* right, int64_t p, int64_t depth, int64_t j,
                                       int64_t columns, REAL* to) {
  REAL four[4 * REF_BLOCK];
  for (int64_t k = 0; k < GEMM_COLUMNS; k += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      if (k + i < columns) {
        NAMED(conv_column)(right, p, depth, j + k + i, four + i * REF_BLOCK);
      } else {
        memset(four + i * REF_BLOCK, 0, (size_t)depth * sizeof(REAL));
      }
    }
    int64_t q = 0;
    for (; q + 4 <= depth; q += 4) {
      NAMED(gemm_turn)(four + q, REF_BLOCK, to + q * GEMM_COLUMNS + k, GEMM_COLUMNS);
    }
    for (; q < depth; ++q) {
      for (int64_t i = 0; i < 4; ++i) to[q * GEMM_COLUMNS + k + i] = four[i * REF_BLOCK + q];
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

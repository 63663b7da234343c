/* Convolution of 3x3 windows with strides of 1 by tiles of 4x4 results: Winograd's F(4x4, 3x3),
 * interpolated at 0, infinity and the square roots of 1/2 and 2 (Lavin and Gray, arXiv:1509.09308;
 * the paper's points 1 and 2 round four times as much). Patches of 6x6 elements, filters and
 * results are transformed along their columns, then along their rows; between them stand 36
 * products over channels by gemm.inc. Tiles are counted over all images, and GEMM_COLUMNS of them
 * lie side by side. */
#include "backends/c/gemm.inc"

#define TILES_SHARE 32                 /* filters that are transformed at once */
#define TILES_LANES GEMM_COLUMNS       /* tiles, or channels of a filter */
#define TILES_STEP (GEMM_COLUMNS + 4)  /* of lanes that are turned by fours */
#define TILES_ROOT ((REAL)1.41421356f) /* of 2 */
#define TILES_HUGE                                                               \
  ((REAL)309485009821345068724781056.0f) /* 2^88: more than 2^40 times it is not \
                                          */

/* A unit: tiles [first, first + count) of `room`, a multiple of TILES_LANES, and its memory. */
typedef struct {
  const ref_conv2d_dims* d;
  int64_t tile_rows, tile_columns, first, count, room;
  REAL *v, *u, *m;                /* 36 matrices each, of patches, filters and products, */
  int64_t v_step, u_step, m_step; /* which are so far apart */
  REAL *check, *patch;            /* of each tile 0, or NaN; 36 elements of each channel */
} NAMED(tiles_unit);

/* Tiles side by side: where the first one is, and how many at most `most` there are. */
typedef struct {
  int64_t image, row, column, count;
} NAMED(tiles_run);

static NAMED(tiles_run) NAMED(tiles_from)(const NAMED(tiles_unit) * s, int64_t tile, int64_t most) {
  const int64_t row = tile / s->tile_columns, column = tile % s->tile_columns;
  const int64_t left = s->tile_columns - column;
  const NAMED(tiles_run)
      run = {row / s->tile_rows, row % s->tile_rows, column, left < most ? left : most};
  return run;
}

/* ---- transforms of lanes: from `step` elements apart to `to` elements apart ---- */

static void NAMED(tiles_input)(const REAL* REF_RESTRICT d, int64_t step, REAL* REF_RESTRICT v,
                               int64_t to) {
  for (int l = 0; l < TILES_LANES; ++l) {
    const REAL d0 = d[l], d1 = d[step + l], d2 = d[2 * step + l], d3 = d[3 * step + l];
    const REAL d4 = d[4 * step + l], d5 = d[5 * step + l];
    const REAL near_even = FMA(-2, d2, d4), near_odd = FMA(-2, d1, d3);
    const REAL far_even = FMA((REAL)-0.5, d2, d4), far_odd = FMA((REAL)-0.5, d1, d3);
    v[l] = FMA((REAL)-2.5, d2, d0 + d4);
    v[to + l] = FMA(TILES_ROOT / 2, near_odd, near_even);
    v[2 * to + l] = FMA(-TILES_ROOT / 2, near_odd, near_even);
    v[3 * to + l] = FMA(TILES_ROOT, far_odd, far_even);
    v[4 * to + l] = FMA(-TILES_ROOT, far_odd, far_even);
    v[5 * to + l] = FMA((REAL)-2.5, d3, d1 + d5);
  }
}

static void NAMED(tiles_filter)(const REAL* REF_RESTRICT g, int64_t step, REAL* REF_RESTRICT u,
                                int64_t to) {
  for (int l = 0; l < TILES_LANES; ++l) {
    const REAL g0 = g[l], g1 = g[step + l], g2 = g[2 * step + l];
    const REAL near = FMA(2, g0, g2) * ((REAL)-1 / 3), near_odd = g1 * (-TILES_ROOT / 3);
    const REAL far = FMA(2, g2, g0) * ((REAL)1 / 6), far_odd = g1 * (TILES_ROOT / 6);
    u[l] = g0;
    u[to + l] = near + near_odd;
    u[2 * to + l] = near - near_odd;
    u[3 * to + l] = far + far_odd;
    u[4 * to + l] = far - far_odd;
    u[5 * to + l] = g2;
  }
}

static void NAMED(tiles_output)(const REAL* REF_RESTRICT m, int64_t step, REAL* REF_RESTRICT y,
                                int64_t to) {
  for (int l = 0; l < TILES_LANES; ++l) {
    const REAL m1 = m[step + l], m2 = m[2 * step + l], m3 = m[3 * step + l], m4 = m[4 * step + l];
    const REAL near = m1 + m2, near_odd = m1 - m2, far = m3 + m4, far_odd = m3 - m4;
    y[l] = m[l] + (near + far);
    y[to + l] = TILES_ROOT * FMA((REAL)0.5, near_odd, far_odd);
    y[2 * to + l] = FMA(2, far, (REAL)0.5 * near);
    y[3 * to + l] = FMA(TILES_ROOT, FMA(2, far_odd, (REAL)0.25 * near_odd), m[5 * step + l]);
  }
}

/* ---- patches ---- */

/* Elements [first, first + count) of a row of `w`, zeros outside of it. */
static void NAMED(tiles_row)(const REAL* REF_RESTRICT row, int64_t w, int64_t first, int64_t count,
                             REAL* REF_RESTRICT to) {
  const int64_t begin = first < 0 ? -first : 0, end = w - first < count ? w - first : count;
  memset(to, 0, (size_t)count * sizeof(REAL));
  if (begin < end) memcpy(to + begin, row + first + begin, (size_t)(end - begin) * sizeof(REAL));
}

/* to[row][8][TILES_STEP]: what the tiles from `tile` on see of a channel; two columns too many. */
static void NAMED(tiles_gather)(const NAMED(tiles_unit) * s, const REAL* x, int64_t channel,
                                int64_t tile, int64_t count, REAL* to) {
  const ref_conv2d_dims* const d = s->d;
  REAL row[4 * TILES_STEP + 4];
  NAMED(tiles_run) run;
  for (int64_t lane = 0; lane < count; lane += run.count) {
    run = NAMED(tiles_from)(s, tile + lane, count - lane);
    const REAL* const plane = x + (run.image * d->c_in + channel) * d->h_in * d->w_in;
    for (int64_t i = 0; i < 6; ++i) {
      const int64_t y = 4 * run.row + i - d->pad_top;
      const int inside = y >= 0 && y < d->h_in;
      NAMED(tiles_row)
      (plane + (inside ? y * d->w_in : 0), inside ? d->w_in : 0, 4 * run.column - d->pad_left,
       4 * (run.count + 4), row);
      for (int64_t l = 0; l < run.count; l += 4) {
        REAL* const at = to + i * 8 * TILES_STEP + lane + l;
        NAMED(gemm_turn)(row + 4 * l, 4, at, TILES_STEP);
        NAMED(gemm_turn)(row + 4 * l + 4, 4, at + 4 * TILES_STEP, TILES_STEP);
      }
    }
  }
}

/* v[36][channel][tile] */
static void NAMED(tiles_patches)(const NAMED(tiles_unit) * s, const REAL* x) {
  REAL patch[6 * 8 * TILES_STEP], columns[36 * TILES_LANES], row[6 * TILES_LANES];
  memset(patch, 0, sizeof patch);
  for (int64_t tile = 0; tile < s->room; tile += TILES_LANES) {
    const int64_t left = s->count - tile, count = left < TILES_LANES ? left : TILES_LANES;
    for (int64_t c = 0; c < s->d->c_in; ++c) {
      NAMED(tiles_gather)(s, x, c, s->first + tile, count, patch);
      for (int64_t j = 0; j < 6; ++j) {
        NAMED(tiles_input)
        (patch + j * TILES_STEP, 8 * TILES_STEP, columns + j * TILES_LANES, 6 * TILES_LANES);
      }
      for (int64_t i = 0; i < 6; ++i) { /* stores whose distance is not known are no vectors */
        NAMED(tiles_input)(columns + 6 * i * TILES_LANES, TILES_LANES, row, TILES_LANES);
        for (int64_t j = 0; j < 6; ++j) {
          memcpy(s->v + (6 * i + j) * s->v_step + c * s->room + tile, row + j * TILES_LANES,
                 TILES_LANES * sizeof(REAL));
        }
      }
    }
  }
}

/* ---- filters ---- */

/* u[36][filter][channel] */
static void NAMED(tiles_filters)(const NAMED(tiles_unit) * s, const REAL* w, int64_t filters) {
  const int64_t channels = s->d->c_in;
  REAL taps[9 * TILES_LANES], columns[18 * TILES_LANES], all[36 * TILES_LANES];
  memset(taps, 0, sizeof taps);
  for (int64_t f = 0; f < filters; ++f) {
    for (int64_t c = 0; c < channels; c += TILES_LANES) {
      const int64_t left = channels - c, count = left < TILES_LANES ? left : TILES_LANES;
      const REAL* const from = w + (f * channels + c) * 9;
      for (int64_t l = 0; l < count; ++l) {
        for (int64_t tap = 0; tap < 9; ++tap) taps[tap * TILES_LANES + l] = from[9 * l + tap];
      }
      for (int64_t j = 0; j < 3; ++j) {
        NAMED(tiles_filter)
        (taps + j * TILES_LANES, 3 * TILES_LANES, columns + j * TILES_LANES, 3 * TILES_LANES);
      }
      for (int64_t i = 0; i < 6; ++i) {
        NAMED(tiles_filter)
        (columns + 3 * i * TILES_LANES, TILES_LANES, all + 6 * i * TILES_LANES, TILES_LANES);
      }
      for (int64_t e = 0; e < 36; ++e) {
        REAL* const to = s->u + e * s->u_step + f * channels + c;
        if (count == TILES_LANES) {
          memcpy(to, all + e * TILES_LANES, TILES_LANES * sizeof(REAL));
        } else {
          memcpy(to, all + e * TILES_LANES, (size_t)count * sizeof(REAL));
        }
      }
    }
  }
}

/* m[36][filter][tile]. Few rows at once take the right operand where it is: nothing is packed. */
static void NAMED(tiles_products)(const NAMED(tiles_unit) * s, int64_t filters) {
  const int64_t channels = s->d->c_in;
  for (int64_t e = 0; e < 36; ++e) {
    const REAL* const v = s->v + e * s->v_step;
    for (int64_t tile = 0; tile < s->room; tile += TILES_LANES) {
      for (int64_t f = 0; f < filters; f += GEMM_ROWS) {
        const int64_t rows = filters - f < GEMM_ROWS ? filters - f : GEMM_ROWS;
        const NAMED(gemm_left)
            left = {s->u + e * s->u_step + f * channels, channels, channels, 0, 1};
        NAMED(gemm)
        (rows, channels, &left, NULL, NULL, v, s->room, s->m + e * s->m_step + f * s->room, s->room,
         s->patch, tile, tile + TILES_LANES);
      }
    }
  }
}

/* ---- results ---- */

/* Adds 0 times each value: NaN from the first on that is not finite, or so large that its rounding
 * would drown what lies beside it. */
static void NAMED(tiles_check)(const REAL* REF_RESTRICT y, REAL* REF_RESTRICT check) {
  for (int e = 0; e < 16; ++e) {
    for (int l = 0; l < TILES_LANES; ++l) {
      check[l] = FMA(y[e * TILES_STEP + l] * TILES_HUGE, 0, check[l]);
    }
  }
}

/* Tiles from `tile` on of a filter, of[row][column][TILES_STEP], to their places in y. */
static void NAMED(tiles_scatter)(const NAMED(tiles_unit) * s, const REAL* of, int64_t filter,
                                 int64_t tile, int64_t count, REAL* y) {
  const ref_conv2d_dims* const d = s->d;
  REAL row[4 * TILES_STEP];
  NAMED(tiles_run) run;
  for (int64_t lane = 0; lane < count; lane += run.count) {
    run = NAMED(tiles_from)(s, tile + lane, count - lane);
    REAL* const plane = y + (run.image * d->c_out + filter) * d->h_out * d->w_out;
    const int64_t left = d->w_out - 4 * run.column;
    const int64_t width = left < 4 * run.count ? left : 4 * run.count;
    for (int64_t r = 0; r < 4 && 4 * run.row + r < d->h_out; ++r) {
      for (int64_t l = 0; l < run.count; l += 4) {
        NAMED(gemm_turn)(of + 4 * r * TILES_STEP + lane + l, TILES_STEP, row + 4 * l, 4);
      }
      memcpy(plane + (4 * run.row + r) * d->w_out + 4 * run.column, row,
             (size_t)width * sizeof(REAL));
    }
  }
}

static void NAMED(tiles_results)(const NAMED(tiles_unit) * s, int64_t first, int64_t filters,
                                 REAL* y) {
  REAL columns[24 * TILES_LANES], tiles[16 * TILES_STEP];
  memset(tiles, 0, sizeof tiles);
  for (int64_t f = 0; f < filters; ++f) {
    for (int64_t tile = 0; tile < s->room; tile += TILES_LANES) {
      const int64_t left = s->count - tile, count = left < TILES_LANES ? left : TILES_LANES;
      const REAL* const m = s->m + f * s->room + tile;
      for (int64_t j = 0; j < 6; ++j) {
        NAMED(tiles_output)
        (m + j * s->m_step, 6 * s->m_step, columns + j * TILES_LANES, 6 * TILES_LANES);
      }
      for (int64_t r = 0; r < 4; ++r) {
        NAMED(tiles_output)
        (columns + 6 * r * TILES_LANES, TILES_LANES, tiles + 4 * r * TILES_STEP, TILES_STEP);
      }
      NAMED(tiles_check)(tiles, s->check + tile);
      NAMED(tiles_scatter)(s, tiles, first + f, s->first + tile, count, y);
    }
  }
}

/* A tile by the definition: sums over a patch have made NaN of results that do not see what is
 * infinite, NaN or huge in it. */
static void NAMED(tiles_mend)(const NAMED(tiles_unit) * s, int64_t tile, const REAL* x,
                              const REAL* w, REAL* y) {
  const ref_conv2d_dims* const d = s->d;
  const NAMED(tiles_run) at = NAMED(tiles_from)(s, tile, 1);
  const REAL* const image = x + at.image * d->c_in * d->h_in * d->w_in;
  for (int64_t c = 0; c < d->c_in; ++c) {
    for (int64_t i = 0; i < 6; ++i) {
      const int64_t row = 4 * at.row + i - d->pad_top;
      const int inside = row >= 0 && row < d->h_in;
      NAMED(tiles_row)
      (image + (c * d->h_in + (inside ? row : 0)) * d->w_in, inside ? d->w_in : 0,
       4 * at.column - d->pad_left, 6, s->patch + 36 * c + 6 * i);
    }
  }
  for (int64_t f = 0; f < d->c_out; ++f) {
    REAL sums[16];
    memset(sums, 0, sizeof sums);
    for (int64_t c = 0; c < d->c_in; ++c) {
      const REAL* const taps = w + (f * d->c_in + c) * 9;
      for (int tap = 0; tap < 9; ++tap) {
        const REAL* const from = s->patch + 36 * c + 6 * (tap / 3) + tap % 3;
        for (int e = 0; e < 16; ++e) sums[e] += taps[tap] * from[6 * (e / 4) + e % 4];
      }
    }
    REAL* const plane = y + (at.image * d->c_out + f) * d->h_out * d->w_out;
    for (int64_t e = 0; e < 16; ++e) {
      const int64_t row = 4 * at.row + e / 4, column = 4 * at.column + e % 4;
      if (row < d->h_out && column < d->w_out) plane[row * d->w_out + column] = sums[e];
    }
  }
}

/* Units: `room` tiles. `scratch`: as much as make_tiles in products.cc says. */
REF_API void NAMED(conv2d_tiles)(const ref_conv2d_dims* d, int64_t room, const REAL* x,
                                 const REAL* w, REAL* y, void* scratch, int64_t begin,
                                 int64_t end) {
  NAMED(tiles_unit) s;
  s.d = d;
  s.tile_rows = (d->h_out + 3) / 4;
  s.tile_columns = (d->w_out + 3) / 4;
  s.room = room;
  s.v_step = d->c_in * room + 16; /* no multiples of a page, which fall on one set of a cache */
  s.u_step = d->c_in * TILES_SHARE + 16;
  s.m_step = room * TILES_SHARE + 16;
  s.v = scratch;
  s.u = s.v + 36 * s.v_step;
  s.m = s.u + 36 * s.u_step;
  s.check = s.m + 36 * s.m_step;
  s.patch = s.check + room;
  const int64_t all = d->batch * s.tile_rows * s.tile_columns;
  for (int64_t unit = begin; unit < end; ++unit) {
    s.first = unit * room;
    s.count = all - s.first < room ? all - s.first : room;
    memset(s.check, 0, (size_t)room * sizeof(REAL));
    NAMED(tiles_patches)(&s, x);
    for (int64_t f = 0; f < d->c_out; f += TILES_SHARE) {
      const int64_t left = d->c_out - f, filters = left < TILES_SHARE ? left : TILES_SHARE;
      NAMED(tiles_filters)(&s, w + f * d->c_in * 9, filters);
      NAMED(tiles_products)(&s, filters);
      NAMED(tiles_results)(&s, f, filters, y);
    }
    for (int64_t tile = 0; tile < s.count; ++tile) {
      if (s.check[tile] != s.check[tile]) NAMED(tiles_mend)(&s, s.first + tile, x, w, y);
    }
  }
}

// Attention as FlashAttention-2 has it (Dao, arXiv:2307.08691). Factors of products are halves: of
// weights and slopes, which are float32, the half nearest to each and the half nearest to the rest
// are multiplied one after the other, as these numbers are rounded nowhere else. A rest times what
// is not finite would be NaN, as is the rest of an infinite slope: where a sum is not finite, the
// tile is done again, with 0 in place of these.
#include "backends/cuda/attention_text.h"

namespace mithril::cuda {

const char* const kTileMacros = R"(
/* How many keys query i sees. */
#define M_SEEN(i) \
  (!IS_CAUSAL || offset >= KEYS - (i) - 1 ? KEYS : offset < -(i) - 1 ? 0 : (int)offset + (i) + 1)
/* `size` rows, side by side, of 0 behind `width`: each is `at` of the declarations in `declared`,
   where that is there; r is its number. */
#define M_STAGE(to, room, width, width_room, size, declared, at, step, is_there) \
  for (int e = thread; e < size * (width_room / 8); e += THREADS) { \
    const int r = e / (width_room / 8), d = e % (width_room / 8) * 8; \
    declared; \
    m_tile_stage(to + r * room + d, at + d * step, step, is_there ? width - d : 0); \
  }
#define M_ROW(from) \
  const int row = from + r; \
  const m_i64 head = row / QUERIES, i = row % QUERIES
#define M_KEY(from) const m_i64 head = 0, k = from + r
#define M_STAGE_QUERIES(to, from, size) \
  M_STAGE(to, KEY_ROOM, DEPTH, DEPTH_ROOM, size, M_ROW(from), (AT_Q) + i * Q_ROW, Q_COL, row < ROWS)
#define M_STAGE_KEYS(depths, widths, from, size, past) \
  M_STAGE(depths, KEY_ROOM, DEPTH, DEPTH_ROOM, size, M_KEY(from), (AT_K) + k * K_ROW, K_COL, \
          k < past) \
  M_STAGE(widths, VALUE_ROOM, WIDTH, WIDTH_ROOM, size, M_KEY(from), (AT_V) + k * V_ROW, V_COL, \
          k < past)
/* to += factors side, of the 16 places from 16 k on. */
#define M_ADD_PRODUCTS(to, factors, side, room, columns) { \
    m_w32 near[4], rest[4]; \
    _Pragma("unroll") for (int r = 0; r < 4; ++r) { \
      const float x = factors[2 * k + r / 2][r % 2 * 2]; \
      const float y = factors[2 * k + r / 2][r % 2 * 2 + 1]; \
      near[r] = m_tile_pair_HALF(x, y); \
      rest[r] = m_tile_pair_HALF(x - m_tile_low_HALF(near[r]), y - m_tile_high_HALF(near[r])); \
      if (is_careful) rest[r] = m_tile_finite(rest[r], EXPONENT); \
    } \
    _Pragma("unroll") for (int c = 0; c < columns / 8; c += 2) { \
      m_w32 b[4]; \
      m_tile_load_transposed(b, side + (k * 16 + lane % 16) * room + c * 8 + lane / 16 * 8); \
      m_tile_multiply_HALF(to[c], near, b[0], b[1]); \
      m_tile_multiply_HALF(to[c + 1], near, b[2], b[3]); \
      if (is_careful) { \
        for (int r = 0; r < 4; ++r) b[r] = m_tile_finite(b[r], EXPONENT); \
      } \
      m_tile_multiply_HALF(to[c], rest, b[0], b[1]); \
      m_tile_multiply_HALF(to[c + 1], rest, b[2], b[3]); \
    } \
  }
)";

const char* const kEndOfTileMacros = R"(
#undef M_SEEN
#undef M_STAGE
#undef M_ROW
#undef M_KEY
#undef M_STAGE_QUERIES
#undef M_STAGE_KEYS
#undef M_ADD_PRODUCTS
)";

const char* const kAttentionOfTile = R"(
  __shared__ __align__(16) m_w16 keys[TILE * KEY_ROOM], values[TILE * VALUE_ROOM];
  const int thread = (int)threadIdx.x, lane = thread % 32, top = thread / 32 * 16;
  const int left = lane / 4, pair = lane % 4 * 2;
  const m_i64 offset = OFFSET;
  for (m_i64 unit = begin; unit < end; ++unit) {
    /* Those that see most keys come first. */
    const m_i64 batch = unit / ROW_TILES;
    const int first = (ROW_TILES - 1 - (int)(unit % ROW_TILES)) * TILE;
    M_STAGE_QUERIES(keys, first, TILE)
    __syncthreads();
    m_w32 q[DEPTH_ROOM / 16][4];
#pragma unroll
    for (int d = 0; d < DEPTH_ROOM / 16; ++d) {
      m_tile_load(q[d], keys + (top + lane % 16) * KEY_ROOM + d * 16 + lane / 16 * 8);
    }
    const int last = ROWS - first < TILE ? ROWS - 1 : first + TILE - 1;
    const int latest = last / QUERIES == first / QUERIES ? last % QUERIES : QUERIES - 1;
    const int past = M_SEEN(latest), row0 = first + top + left, row1 = row0 + 8;
    const int seen[2] = {row0 < ROWS ? M_SEEN(row0 % QUERIES) : 0,
                         row1 < ROWS ? M_SEEN(row1 % QUERIES) : 0};
    float sums[WIDTH_ROOM / 8][4], largest[2], total[2];
    for (int is_careful = 0; is_careful < 2; ++is_careful) {
      for (int h = 0; h < 2; ++h) largest[h] = -M_INFINITY, total[h] = 0;
#pragma unroll
      for (int c = 0; c < WIDTH_ROOM / 8; ++c)
        for (int e = 0; e < 4; ++e) sums[c][e] = 0;
      for (int at = 0; at < past; at += TILE) {
        __syncthreads();
        M_STAGE_KEYS(keys, values, at, TILE, past)
        __syncthreads();
        if (first + top >= ROWS) continue;
        float scores[TILE / 8][4];
#pragma unroll
        for (int n = 0; n < TILE / 8; n += 2) {
          for (int e = 0; e < 4; ++e) scores[n][e] = scores[n + 1][e] = 0;
#pragma unroll
          for (int d = 0; d < DEPTH_ROOM / 16; ++d) {
            m_w32 b[4];
            m_tile_load(b, keys + (n * 8 + lane / 16 * 8 + lane % 8) * KEY_ROOM + d * 16 +
                               lane / 8 % 2 * 8);
            m_tile_multiply_HALF(scores[n], q[d], b[0], b[1]);
            m_tile_multiply_HALF(scores[n + 1], q[d], b[2], b[3]);
          }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int visible = seen[h] - at;
          const int row = h == 0 ? row0 : row1;
          const m_i64 head = row / QUERIES, i = row % QUERIES;
          (void)head, (void)i;
          float best = largest[h];
#pragma unroll
          for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
              const int x = n * 8 + pair + e - 2 * h;
              const m_i64 k = at + x;
              (void)k;
              float s = scores[n][e] * SCALE;
              if (x < visible) {
                BESIDE
              } else {
                s = -M_INFINITY;
              }
              scores[n][e] = s;
              best = fmaxf(best, s);
            }
          best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
          best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
          const float less = best == -M_INFINITY ? 0 : best;
          const float factor = m_c_exp_f32(largest[h] - less);
          float part = 0;
#pragma unroll
          for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
              scores[n][e] = m_c_exp_f32(scores[n][e] - less) * WEIGHT_UNIT;
              part += scores[n][e];
            }
          largest[h] = best;
          total[h] = total[h] * factor + part;
#pragma unroll
          for (int c = 0; c < WIDTH_ROOM / 8; ++c) {
            sums[c][2 * h] *= factor;
            sums[c][2 * h + 1] *= factor;
          }
        }
#pragma unroll
        for (int k = 0; k < TILE / 16; ++k) {
          M_ADD_PRODUCTS(sums, scores, values, VALUE_ROOM, WIDTH_ROOM)
        }
      }
      int is_odd = 0;
#pragma unroll
      for (int c = 0; c < WIDTH_ROOM / 8; ++c)
        for (int e = 0; e < 4; ++e) is_odd |= !(sums[c][e] - sums[c][e] == 0);
      if (!__syncthreads_or(is_odd)) break;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
      const int row = h == 0 ? row0 : row1;
      const m_i64 at = batch * ROWS + row;
      if (row >= ROWS) continue;
#pragma unroll
      for (int c = 0; c < WIDTH_ROOM / 8; ++c)
        for (int e = 0; e < 2; ++e) {
          const int column = c * 8 + pair + e;
          if (column < WIDTH) OUT0[at * WIDTH + column] = OF_FLOAT(sums[c][2 * h + e] / total[h]);
        }
      const float logsumexp = largest[h] + m_c_log_f32(total[h] / WEIGHT_UNIT);
      if (pair == 0) {
        TELL_LOGSUMEXP
      }
    }
  }
)";

const char* const kGradientOfTile = R"(
  __shared__ __align__(16) m_w16 own_depth[TILE * KEY_ROOM], own_width[TILE * VALUE_ROOM];
  __shared__ __align__(16) m_w16 side_depth[SIDE * KEY_ROOM], side_width[SIDE * VALUE_ROOM];
  __shared__ int seen[TILE];
  __shared__ float less[TILE], mean[TILE];
  const int thread = (int)threadIdx.x, lane = thread % 32, top = thread / 32 * 16;
  const int left = lane / 4, pair = lane % 4 * 2;
  const m_i64 offset = OFFSET;
/* Queries and slopes of `size` rows, with what is known of each row. */
#define M_STAGE_ROWS(depths, widths, from, size) \
  M_STAGE_QUERIES(depths, from, size) \
  M_STAGE(widths, VALUE_ROOM, WIDTH, WIDTH_ROOM, size, M_ROW(from), (AT_DY) + i * DY_ROW, DY_COL, \
          row < ROWS) \
  for (int r = thread / 32; r < size; r += THREADS / 32) { \
    const int row = from + r; \
    const m_i64 head = row / QUERIES, i = row % QUERIES; \
    float sum = 0; \
    for (int c = lane; row < ROWS && c < WIDTH; c += 32) { \
      sum = m_c_fma_f32(m_float_of_HALF(((AT_DY) + i * DY_ROW)[c * DY_COL]), \
                        ((AT_Y) + i * Y_ROW)[c * Y_COL], sum); \
    } \
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other); \
    if (lane == 0) { \
      mean[r] = sum; \
      less[r] = row < ROWS ? (AT_LSE)[i * LSE_ROW] : 0; \
      seen[r] = row < ROWS ? M_SEEN((int)i) : 0; \
    } \
  }
/* to = own side^T, by columns of 16 places. */
#define M_PRODUCTS(to, own, side, room, places) \
  _Pragma("unroll") for (int n = 0; n < SIDE / 8; ++n) \
    for (int e = 0; e < 4; ++e) to[n][e] = 0; \
  _Pragma("unroll") for (int p = 0; p < places / 16; ++p) { \
    m_w32 a[4], b[4]; \
    m_tile_load(a, own + (top + lane % 16) * room + p * 16 + lane / 16 * 8); \
    _Pragma("unroll") for (int n = 0; n < SIDE / 8; n += 2) { \
      m_tile_load(b, side + (n * 8 + lane / 16 * 8 + lane % 8) * room + p * 16 + \
                         lane / 8 % 2 * 8); \
      m_tile_multiply_HALF(to[n], a, b[0], b[1]); \
      m_tile_multiply_HALF(to[n + 1], a, b[2], b[3]); \
    } \
  }
/* Rows of factors times a power of two each, and their sums in step: the largest one so far is
   below 2^15, or all are below 2^-86 and count for nothing. What is above 2^-40 of it counts, so
   that the range of float16 is no matter. Beside an infinite one nothing else does. */
#if IS_NARROW
#define M_FIT(to, factors, fits, columns) \
  _Pragma("unroll") for (int h = 0; h < 2; ++h) { \
    float most = 0; \
    _Pragma("unroll") for (int n = 0; n < SIDE / 8; ++n) \
      for (int e = 2 * h; e < 2 * h + 2; ++e) most = fmaxf(most, m_abs_f32(factors[n][e])); \
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1)); \
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)); \
    const int wanted = 268 - (int)(m_bits_f32(most) >> 23); \
    const int fit = wanted < fits[h] ? wanted : fits[h], lost = fits[h] - fit; \
    const float factor = m_of_bits_f32((lost < 126 ? 127 - lost : 1) << 23); \
    const float unit = m_of_bits_f32(fit << 23); \
    _Pragma("unroll") for (int c = 0; c < columns / 8; ++c) { \
      to[c][2 * h] *= factor; \
      to[c][2 * h + 1] *= factor; \
    } \
    _Pragma("unroll") for (int n = 0; n < SIDE / 8; ++n) { \
      factors[n][2 * h] *= unit; \
      factors[n][2 * h + 1] *= unit; \
    } \
    fits[h] = fit; \
  }
#define M_UNFIT(fit) m_of_bits_f32((254 - (fit)) << 23)
#else
#define M_FIT(to, factors, fits, columns)
#define M_UNFIT(fit) ((void)(fit), 1.0f)
#endif
  for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 batch = unit / (ROW_TILES + KEY_TILES);
    const int place = (int)(unit % (ROW_TILES + KEY_TILES)), is_of_keys = place >= ROW_TILES;
    const int first = (is_of_keys ? place - ROW_TILES : place) * TILE;
    const int count = is_of_keys ? KEYS : ROWS, sides = is_of_keys ? ROWS : KEYS;
    float sums[DEPTH_ROOM / 8][4], of_value[WIDTH_ROOM / 8][4];
    int of_slopes[2], of_weights[2]; /* exponents of what they are times, as float32 has them */
    if (is_of_keys) {
      M_STAGE_KEYS(own_depth, own_width, first, TILE, KEYS)
    } else {
      M_STAGE_ROWS(own_depth, own_width, first, TILE)
    }
    for (int is_careful = 0; is_careful < 2; ++is_careful) {
#pragma unroll
      for (int c = 0; c < DEPTH_ROOM / 8; ++c)
        for (int e = 0; e < 4; ++e) sums[c][e] = 0;
#pragma unroll
      for (int c = 0; c < WIDTH_ROOM / 8; ++c)
        for (int e = 0; e < 4; ++e) of_value[c][e] = 0;
      for (int h = 0; h < 2; ++h) of_slopes[h] = of_weights[h] = 227;
      for (int at = 0; at < sides; at += SIDE) {
        /* Nothing is seen where the last of the rows does not see the first of the keys. */
        const int from = is_of_keys ? at : first, size = is_of_keys ? SIDE : TILE;
        const int last = ROWS - from < size ? ROWS - 1 : from + size - 1;
        const int latest = last / QUERIES == from / QUERIES ? last % QUERIES : QUERIES - 1;
        if (M_SEEN(latest) <= (is_of_keys ? first : at)) continue;
        __syncthreads();
        if (is_of_keys) {
          M_STAGE_ROWS(side_depth, side_width, at, SIDE)
        } else {
          M_STAGE_KEYS(side_depth, side_width, at, SIDE, KEYS)
        }
        __syncthreads();
        if (first + top >= count) continue;
        float weights[SIDE / 8][4], slopes[SIDE / 8][4];
        M_PRODUCTS(weights, own_depth, side_depth, KEY_ROOM, DEPTH_ROOM)
        M_PRODUCTS(slopes, own_width, side_width, VALUE_ROOM, WIDTH_ROOM)
#pragma unroll
        for (int n = 0; n < SIDE / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int own = top + left + e / 2 * 8, side = n * 8 + pair + e % 2;
            const int r = is_of_keys ? side : own;
            const m_i64 k = is_of_keys ? first + own : at + side;
            float p = 0, ds = 0;
            if (k < seen[r]) {
              const int row = from + r;
              const m_i64 head = row / QUERIES, i = row % QUERIES;
              (void)head, (void)i;
              float s = weights[n][e] * SCALE;
              BESIDE
              p = m_c_exp_f32(s - less[r]);
              ds = p * (slopes[n][e] - mean[r]);
            }
            weights[n][e] = p;
            slopes[n][e] = ds;
          }
        M_FIT(sums, slopes, of_slopes, DEPTH_ROOM)
        if (is_of_keys) {
          M_FIT(of_value, weights, of_weights, WIDTH_ROOM)
        }
#pragma unroll
        for (int k = 0; k < SIDE / 16; ++k) {
          M_ADD_PRODUCTS(sums, slopes, side_depth, KEY_ROOM, DEPTH_ROOM)
          if (is_of_keys) M_ADD_PRODUCTS(of_value, weights, side_width, VALUE_ROOM, WIDTH_ROOM)
        }
      }
      int is_odd = 0;
#pragma unroll
      for (int c = 0; c < DEPTH_ROOM / 8; ++c)
        for (int e = 0; e < 4; ++e) is_odd |= !(sums[c][e] - sums[c][e] == 0);
#pragma unroll
      for (int c = 0; c < WIDTH_ROOM / 8; ++c)
        for (int e = 0; e < 4; ++e) is_odd |= !(of_value[c][e] - of_value[c][e] == 0);
      if (!__syncthreads_or(is_odd)) break;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int own = first + top + left + e / 2 * 8;
      if (own >= count) continue;
      const float slope_unit = M_UNFIT(of_slopes[e / 2]), weight_unit = M_UNFIT(of_weights[e / 2]);
#pragma unroll
      for (int c = 0; c < DEPTH_ROOM / 8; ++c) {
        const int d = c * 8 + pair + e % 2;
        if (d >= DEPTH) continue;
        if (is_of_keys) {
          OUT1[(batch * KEYS + own) * DEPTH + d] = sums[c][e] * slope_unit * SCALE;
        } else {
          OUT0[(batch * ROWS + own) * DEPTH + d] = sums[c][e] * slope_unit * SCALE;
        }
      }
#pragma unroll
      for (int c = 0; c < WIDTH_ROOM / 8; ++c) {
        const int column = c * 8 + pair + e % 2;
        if (is_of_keys && column < WIDTH) {
          OUT2[(batch * KEYS + own) * WIDTH + column] = of_value[c][e] * weight_unit;
        }
      }
    }
  }
#undef M_STAGE_ROWS
#undef M_PRODUCTS
#undef M_FIT
#undef M_UNFIT
)";

}  // namespace mithril::cuda

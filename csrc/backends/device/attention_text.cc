// Attention as Milakov & Gimelshein, arXiv:1805.02867, and Dao, arXiv:2307.08691, have it: the
// softmax of a row is kept up to date as keys stream past, and gradients find the weights again
// from the logarithm of the sum of each row.
#include "backends/device/attention_text.h"

namespace mithril::device {

const char* const kAttentionOfRow = R"(const m_i64 offset = OFFSET;
  for (m_i64 at = begin; at < end; ++at) {
    const m_i64 batch = at / ROWS, row = at % ROWS, head = row / QUERIES, i = row % QUERIES;
    M_GLOBAL const m_TYPE* const q = (AT_Q) + i * Q_ROW;
    M_GLOBAL const m_TYPE* const keys = AT_K;
    M_GLOBAL const m_TYPE* const values = AT_V;
    const m_i64 seen = !IS_CAUSAL || offset >= KEYS - i - 1 ? KEYS : i + offset + 1;
    m_TYPE sum[WIDTH], largest = -M_INFINITY, total = 0;
    for (int c = 0; c < WIDTH; ++c) sum[c] = 0;
    for (m_i64 k = 0; k < seen; ++k) {
      m_TYPE s = 0;
      for (int d = 0; d < DEPTH; ++d) s = m_fma_TYPE(q[d * Q_COL], keys[k * K_ROW + d * K_COL], s);
      s *= SCALE;
      BESIDE
      if (s > largest || s != s) {
        const m_TYPE factor = m_c_exp_TYPE(largest - s);
        total *= factor;
        for (int c = 0; c < WIDTH; ++c) sum[c] *= factor;
        largest = s;
      }
      const m_TYPE weight = s == -M_INFINITY ? 0 : m_c_exp_TYPE(s - largest);
      total += weight;
      for (int c = 0; c < WIDTH; ++c) {
        sum[c] = m_fma_TYPE(weight, values[k * V_ROW + c * V_COL], sum[c]);
      }
    }
    const m_TYPE logsumexp = largest + m_c_log_TYPE(total);
    for (int c = 0; c < WIDTH; ++c) OUT0[at * WIDTH + c] = sum[c] / total;
    TELL_LOGSUMEXP
  })";

// The slope `ds` of the score of a row and a key `k`, whose weight is p.
const char* const kSlope = R"(m_TYPE s = 0, dp = 0, mean = 0;
      for (int d = 0; d < DEPTH; ++d) s = m_fma_TYPE(q[d * Q_COL], key[d * K_COL], s);
      for (int c = 0; c < WIDTH; ++c) dp = m_fma_TYPE(dy[c * DY_COL], value[c * V_COL], dp);
      for (int c = 0; c < WIDTH; ++c) mean = m_fma_TYPE(dy[c * DY_COL], y[c * Y_COL], mean);
      s *= SCALE;
      BESIDE
      const m_TYPE p = m_c_exp_TYPE(s - (AT_LSE)[i * LSE_ROW]), ds = p * (dp - mean);)";

const char* const kRow = R"(const m_i64 head = row / QUERIES, i = row % QUERIES;
      M_GLOBAL const m_TYPE* const q = (AT_Q) + i * Q_ROW;
      M_GLOBAL const m_TYPE* const y = (AT_Y) + i * Y_ROW;
      M_GLOBAL const m_TYPE* const dy = (AT_DY) + i * DY_ROW;
      const m_i64 seen = !IS_CAUSAL || offset >= KEYS - i - 1 ? KEYS : i + offset + 1;)";

const char* const kKeyAndValue = R"(M_GLOBAL const m_TYPE* const key = (AT_K) + k * K_ROW;
      M_GLOBAL const m_TYPE* const value = (AT_V) + k * V_ROW;)";

const char* const kGradientOfRow = R"(const m_i64 offset = OFFSET;
  for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 batch = unit / (ROWS + KEYS), place = unit % (ROWS + KEYS);
    m_TYPE sum[DEPTH];
    for (int d = 0; d < DEPTH; ++d) sum[d] = 0;
    if (place < ROWS) {
      const m_i64 row = place;
      ROW_OF_QUERIES
      for (m_i64 k = 0; k < KEYS; ++k) {
        const m_i64 at = (batch * ROWS + row) * KEYS + k;
        if (k >= seen) {
          const m_TYPE ds = 0;
          TELL_SCORES
          (void)ds, (void)at;
          continue;
        }
        KEY_AND_VALUE
        SLOPE
        TELL_SCORES
        for (int d = 0; d < DEPTH; ++d) sum[d] = m_fma_TYPE(ds, key[d * K_COL], sum[d]);
        (void)at;
      }
      for (int d = 0; d < DEPTH; ++d) OUT0[(batch * ROWS + row) * DEPTH + d] = sum[d] * SCALE;
      continue;
    }
    const m_i64 k = place - ROWS;
    m_TYPE of_value[WIDTH];
    for (int c = 0; c < WIDTH; ++c) of_value[c] = 0;
    for (m_i64 row = 0; row < ROWS; ++row) {
      ROW_OF_QUERIES
      KEY_AND_VALUE
      if (k >= seen) continue;
      SLOPE
      for (int d = 0; d < DEPTH; ++d) sum[d] = m_fma_TYPE(ds, q[d * Q_COL], sum[d]);
      for (int c = 0; c < WIDTH; ++c) of_value[c] = m_fma_TYPE(p, dy[c * DY_COL], of_value[c]);
    }
    for (int d = 0; d < DEPTH; ++d) OUT1[(batch * KEYS + k) * DEPTH + d] = sum[d] * SCALE;
    for (int c = 0; c < WIDTH; ++c) OUT2[(batch * KEYS + k) * WIDTH + c] = of_value[c];
  })";

const char* const kVectorProducts = R"text(
/* C += A B by four rows and one or two vectors of columns at a time; element (i, p) of A is
   a[i * a_row + p * a_place]. Rows are a multiple of 4, columns one of N. And a row of softmax whose
   weights take the place of its scores, as blocks of keys go by: the factor of what was before. */
#define M_VECTOR_PRODUCTS(T, V, N) \
  M_FN void m_add_product_##T(const m_##T* a, int a_row, int a_place, const m_##T* b, int b_row, \
                              m_##T* c, int c_row, int rows, int columns, int places) { \
    int i, j, p; \
    for (j = 0; j < columns; j += 2 * N) { \
      const int second = columns - j > N ? N : 0; \
      for (i = 0; i < rows; i += 4) { \
        const m_##T* left = a + i * a_row; \
        m_##T* to = c + i * c_row + j; \
        V x0 = vload##N(0, to), x1 = vload##N(0, to + c_row); \
        V x2 = vload##N(0, to + 2 * c_row), x3 = vload##N(0, to + 3 * c_row); \
        V y0 = vload##N(0, to + second), y1 = vload##N(0, to + c_row + second); \
        V y2 = vload##N(0, to + 2 * c_row + second), y3 = vload##N(0, to + 3 * c_row + second); \
        for (p = 0; p < places; ++p) { \
          const V x = vload##N(0, b + p * b_row + j), y = vload##N(0, b + p * b_row + j + second); \
          const V l0 = (V)(left[p * a_place]), l1 = (V)(left[a_row + p * a_place]); \
          const V l2 = (V)(left[2 * a_row + p * a_place]), l3 = (V)(left[3 * a_row + p * a_place]); \
          x0 = fma(l0, x, x0), x1 = fma(l1, x, x1), x2 = fma(l2, x, x2), x3 = fma(l3, x, x3); \
          y0 = fma(l0, y, y0), y1 = fma(l1, y, y1), y2 = fma(l2, y, y2), y3 = fma(l3, y, y3); \
        } \
        vstore##N(y0, 0, to + second), vstore##N(y1, 0, to + c_row + second); \
        vstore##N(y2, 0, to + 2 * c_row + second), vstore##N(y3, 0, to + 3 * c_row + second); \
        vstore##N(x0, 0, to), vstore##N(x1, 0, to + c_row); \
        vstore##N(x2, 0, to + 2 * c_row), vstore##N(x3, 0, to + 3 * c_row); \
      } \
    } \
  } \
  M_FN m_##T m_weights_##T(m_##T* s, int n, m_##T* largest, m_##T* total) { \
    V best = vload##N(0, s), sum = 0; \
    m_##T lanes[N], next = *largest, factor; \
    int j; \
    for (j = N; j < n; j += N) best = fmax(best, vload##N(0, s + j)); \
    vstore##N(best, 0, lanes); \
    for (j = 0; j < N; ++j) next = next >= lanes[j] ? next : lanes[j]; \
    if (next == -M_INFINITY) { \
      for (j = 0; j < n; ++j) s[j] = 0; \
      return 1; \
    } \
    for (j = 0; j < n; j += N) { \
      const V weights = exp(vload##N(0, s + j) - (V)(next)); \
      sum += weights; \
      vstore##N(weights, 0, s + j); \
    } \
    vstore##N(sum, 0, lanes); \
    factor = *largest == next ? 1 : exp(*largest - next); \
    *largest = next; \
    *total *= factor; \
    for (j = 0; j < N; ++j) *total += lanes[j]; \
    return factor; \
  } \
  M_FN void m_exp_of_##T(m_##T* s, int n, m_##T less) { \
    int j; \
    for (j = 0; j < n; j += N) vstore##N(exp(vload##N(0, s + j) - (V)(less)), 0, s + j); \
  }
M_VECTOR_PRODUCTS(f32, float16, 16)
M_VECTOR_PRODUCTS(f64, double8, 8)
)text";

// A row that is not there repeats the last one, and is dropped.
const char* const kAttentionOfBlock =
    R"(m_TYPE queries[BLOCK_ROWS * DEPTH], keys[DEPTH * BLOCK_KEYS];
  m_TYPE values[BLOCK_KEYS * WIDTH_ROOM], scores[BLOCK_ROWS * BLOCK_KEYS];
  m_TYPE sums[BLOCK_ROWS * WIDTH_ROOM], largest[BLOCK_ROWS], total[BLOCK_ROWS];
  m_i64 seen[BLOCK_ROWS];
  const m_i64 offset = OFFSET;
  for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 batch = unit / ROW_BLOCKS, first = unit % ROW_BLOCKS * BLOCK_ROWS;
    const int rows = ROWS - first < BLOCK_ROWS ? (int)(ROWS - first) : BLOCK_ROWS;
    m_i64 past = 0;
    for (int r = 0; r < BLOCK_ROWS; ++r) {
      const m_i64 row = first + (r < rows ? r : rows - 1), head = row / QUERIES, i = row % QUERIES;
      M_GLOBAL const m_TYPE* const q = (AT_Q) + i * Q_ROW;
      for (int d = 0; d < DEPTH; ++d) queries[r * DEPTH + d] = q[d * Q_COL];
      seen[r] = !IS_CAUSAL || offset >= KEYS - i - 1 ? KEYS : i + offset + 1;
      past = seen[r] > past ? seen[r] : past;
      largest[r] = -M_INFINITY;
      total[r] = 0;
    }
    for (int e = 0; e < BLOCK_ROWS * WIDTH_ROOM; ++e) sums[e] = 0;
    for (m_i64 first_key = 0; first_key < past; first_key += BLOCK_KEYS) {
      const int count = past - first_key < BLOCK_KEYS ? (int)(past - first_key) : BLOCK_KEYS;
      {
        const m_i64 head = 0;
        M_GLOBAL const m_TYPE* const key = (AT_K) + first_key * K_ROW;
        M_GLOBAL const m_TYPE* const value = (AT_V) + first_key * V_ROW;
        (void)head;
        for (int k = 0; k < BLOCK_KEYS; ++k) {
          const int is_there = k < count;
          for (int d = 0; d < DEPTH; ++d) {
            keys[d * BLOCK_KEYS + k] = is_there ? key[k * K_ROW + d * K_COL] : 0;
          }
          for (int c = 0; c < WIDTH_ROOM; ++c) {
            values[k * WIDTH_ROOM + c] = is_there && c < WIDTH ? value[k * V_ROW + c * V_COL] : 0;
          }
        }
      }
      for (int e = 0; e < BLOCK_ROWS * BLOCK_KEYS; ++e) scores[e] = 0;
      m_add_product_TYPE(queries, DEPTH, 1, keys, BLOCK_KEYS, scores, BLOCK_KEYS, BLOCK_ROWS,
                         BLOCK_KEYS, DEPTH);
      for (int r = 0; r < rows; ++r) {
        m_TYPE* const line = scores + r * BLOCK_KEYS;
        const m_i64 left = seen[r] - first_key;
        const int visible = left > count ? count : left < 0 ? 0 : (int)left;
        for (int x = 0; x < BLOCK_KEYS; ++x) line[x] *= SCALE;
        if (HAS_BESIDE) {
          const m_i64 row = first + r, head = row / QUERIES, i = row % QUERIES;
          for (int x = 0; x < visible; ++x) {
            const m_i64 k = first_key + x;
            m_TYPE s = line[x];
            BESIDE
            line[x] = s;
            (void)k, (void)head, (void)i;
          }
        }
        for (int x = visible; x < BLOCK_KEYS; ++x) line[x] = -M_INFINITY;
        const m_TYPE factor = m_weights_TYPE(line, BLOCK_KEYS, largest + r, total + r);
        if (factor != 1) {
          for (int c = 0; c < WIDTH_ROOM; ++c) sums[r * WIDTH_ROOM + c] *= factor;
        }
      }
      m_add_product_TYPE(scores, BLOCK_KEYS, 1, values, WIDTH_ROOM, sums, WIDTH_ROOM, BLOCK_ROWS,
                         WIDTH_ROOM, BLOCK_KEYS);
    }
    for (int r = 0; r < rows; ++r) {
      const m_i64 at = batch * ROWS + first + r;
      const m_TYPE logsumexp = largest[r] + m_c_log_TYPE(total[r]);
      for (int c = 0; c < WIDTH; ++c) OUT0[at * WIDTH + c] = sums[r * WIDTH_ROOM + c] / total[r];
      TELL_LOGSUMEXP
    }
  })";

const char* const kGradientOfBlocks =
    R"(m_TYPE q[BLOCK_ROWS * DEPTH_ROOM], dy[BLOCK_ROWS * WIDTH_ROOM];
  m_TYPE keys[BLOCK_KEYS * DEPTH_ROOM], columns[DEPTH * BLOCK_KEYS], values[WIDTH * BLOCK_KEYS];
  m_TYPE weights[BLOCK_ROWS * BLOCK_KEYS], slopes[BLOCK_ROWS * BLOCK_KEYS];
  m_TYPE dq[BLOCK_ROWS * DEPTH_ROOM], dk[BLOCK_KEYS * DEPTH_ROOM], dv[BLOCK_KEYS * WIDTH_ROOM];
  const m_i64 offset = OFFSET;
  for (m_i64 batch = begin; batch < end; ++batch) {
    for (m_i64 e = 0; e < (m_i64)ROWS * DEPTH; ++e) OUT0[batch * ROWS * DEPTH + e] = 0;
    for (m_i64 first_key = 0; first_key < KEYS; first_key += BLOCK_KEYS) {
      const int count = KEYS - first_key < BLOCK_KEYS ? (int)(KEYS - first_key) : BLOCK_KEYS;
      {
        const m_i64 head = 0;
        M_GLOBAL const m_TYPE* const key = (AT_K) + first_key * K_ROW;
        M_GLOBAL const m_TYPE* const value = (AT_V) + first_key * V_ROW;
        (void)head;
        for (int k = 0; k < BLOCK_KEYS; ++k) {
          const int is_there = k < count;
          for (int d = 0; d < DEPTH_ROOM; ++d) {
            const m_TYPE element = is_there && d < DEPTH ? key[k * K_ROW + d * K_COL] : 0;
            keys[k * DEPTH_ROOM + d] = element;
            if (d < DEPTH) columns[d * BLOCK_KEYS + k] = element;
          }
          for (int c = 0; c < WIDTH; ++c) {
            values[c * BLOCK_KEYS + k] = is_there ? value[k * V_ROW + c * V_COL] : 0;
          }
        }
      }
      for (int e = 0; e < BLOCK_KEYS * DEPTH_ROOM; ++e) dk[e] = 0;
      for (int e = 0; e < BLOCK_KEYS * WIDTH_ROOM; ++e) dv[e] = 0;
      for (m_i64 first = 0; first < ROWS; first += BLOCK_ROWS) {
        const int rows = ROWS - first < BLOCK_ROWS ? (int)(ROWS - first) : BLOCK_ROWS;
        m_TYPE mean[BLOCK_ROWS], less[BLOCK_ROWS];
        int visible[BLOCK_ROWS], most = 0;
        for (int r = 0; r < BLOCK_ROWS; ++r) {
          const m_i64 row = first + (r < rows ? r : rows - 1), head = row / QUERIES;
          const m_i64 i = row % QUERIES;
          M_GLOBAL const m_TYPE* const query = (AT_Q) + i * Q_ROW;
          M_GLOBAL const m_TYPE* const y = (AT_Y) + i * Y_ROW;
          M_GLOBAL const m_TYPE* const slope = (AT_DY) + i * DY_ROW;
          const m_i64 seen = !IS_CAUSAL || offset >= KEYS - i - 1 ? KEYS : i + offset + 1;
          const m_i64 left = seen - first_key;
          visible[r] = r >= rows || left < 0 ? 0 : left > count ? count : (int)left;
          most = visible[r] > most ? visible[r] : most;
          for (int d = 0; d < DEPTH_ROOM; ++d) {
            q[r * DEPTH_ROOM + d] = d < DEPTH ? query[d * Q_COL] : 0;
          }
          mean[r] = 0;
          for (int c = 0; c < WIDTH_ROOM; ++c) {
            dy[r * WIDTH_ROOM + c] = c < WIDTH ? slope[c * DY_COL] : 0;
            if (c < WIDTH) mean[r] = m_fma_TYPE(slope[c * DY_COL], y[c * Y_COL], mean[r]);
          }
          less[r] = (AT_LSE)[i * LSE_ROW];
        }
        if (most > 0) {
          for (int e = 0; e < BLOCK_ROWS * BLOCK_KEYS; ++e) weights[e] = slopes[e] = 0;
          m_add_product_TYPE(q, DEPTH_ROOM, 1, columns, BLOCK_KEYS, weights, BLOCK_KEYS,
                             BLOCK_ROWS, BLOCK_KEYS, DEPTH);
          m_add_product_TYPE(dy, WIDTH_ROOM, 1, values, BLOCK_KEYS, slopes, BLOCK_KEYS, BLOCK_ROWS,
                             BLOCK_KEYS, WIDTH);
        }
        for (int r = 0; r < BLOCK_ROWS; ++r) {
          m_TYPE* const line = weights + r * BLOCK_KEYS;
          m_TYPE* const slope = slopes + r * BLOCK_KEYS;
          for (int x = 0; x < BLOCK_KEYS; ++x) line[x] *= SCALE;
          const m_i64 row = first + r, head = row / QUERIES, i = row % QUERIES;
          if (HAS_BESIDE) {
            for (int x = 0; x < visible[r]; ++x) {
              const m_i64 k = first_key + x;
              m_TYPE s = line[x];
              BESIDE
              line[x] = s;
              (void)k;
            }
          }
          m_exp_of_TYPE(line, BLOCK_KEYS, less[r]);
          for (int x = 0; x < BLOCK_KEYS; ++x) slope[x] = line[x] * (slope[x] - mean[r]);
          for (int x = visible[r]; x < BLOCK_KEYS; ++x) line[x] = slope[x] = 0;
          for (int x = 0; r < rows && x < count; ++x) {
            const m_i64 at = (batch * ROWS + row) * KEYS + first_key + x;
            const m_TYPE ds = slope[x];
            TELL_SCORES
            (void)at, (void)ds;
          }
          (void)head, (void)i;
        }
        if (most == 0) continue;
        m_add_product_TYPE(weights, 1, BLOCK_KEYS, dy, WIDTH_ROOM, dv, WIDTH_ROOM, BLOCK_KEYS,
                           WIDTH_ROOM, BLOCK_ROWS);
        m_add_product_TYPE(slopes, 1, BLOCK_KEYS, q, DEPTH_ROOM, dk, DEPTH_ROOM, BLOCK_KEYS,
                           DEPTH_ROOM, BLOCK_ROWS);
        for (int e = 0; e < BLOCK_ROWS * DEPTH_ROOM; ++e) dq[e] = 0;
        m_add_product_TYPE(slopes, BLOCK_KEYS, 1, keys, DEPTH_ROOM, dq, DEPTH_ROOM, BLOCK_ROWS,
                           DEPTH_ROOM, BLOCK_KEYS);
        for (int r = 0; r < rows; ++r) {
          M_GLOBAL m_TYPE* const to = OUT0 + (batch * ROWS + first + r) * DEPTH;
          for (int d = 0; d < DEPTH; ++d) to[d] += dq[r * DEPTH_ROOM + d] * SCALE;
        }
      }
      for (int k = 0; k < count; ++k) {
        const m_i64 at = batch * KEYS + first_key + k;
        for (int d = 0; d < DEPTH; ++d) OUT1[at * DEPTH + d] = dk[k * DEPTH_ROOM + d] * SCALE;
        for (int c = 0; c < WIDTH; ++c) OUT2[at * WIDTH + c] = dv[k * WIDTH_ROOM + c];
      }
    }
  })";

}  // namespace mithril::device

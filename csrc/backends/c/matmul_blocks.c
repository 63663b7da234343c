/* Matrix products of any strides by gemm.inc, with rows of C that have no gaps. */
#include "backends/c/gemm.inc"

/* Units: blocks of columns of one batch after another. */
#define MATMUL_UNIT (GEMM_PANELS * GEMM_COLUMNS)

typedef struct {
  const REAL* at;
  int64_t row, column;
} NAMED(matmul_right);

static void NAMED(matmul_pack)(const void* right, int64_t p, int64_t depth, int64_t j,
                               int64_t columns, REAL* REF_RESTRICT to) {
  const NAMED(matmul_right)* b = right;
  const REAL* REF_RESTRICT from = b->at + p * b->row + j * b->column;
  if (columns < GEMM_COLUMNS) {
    for (int64_t i = 0; i < depth * GEMM_COLUMNS; ++i) to[i] = 0;
  }
  if (b->column == 1 && columns == GEMM_COLUMNS) {
    for (int64_t q = 0; q < depth; ++q) {
      memcpy(to + q * GEMM_COLUMNS, from + q * b->row, GEMM_COLUMNS * sizeof(REAL));
    }
    return;
  }
  const int64_t fours = b->row == 1 ? columns / 4 * 4 : 0, deep = fours > 0 ? depth / 4 * 4 : 0;
  for (int64_t q = 0; q < deep; q += 4) {
    for (int64_t column = 0; column < fours; column += 4) {
      NAMED(gemm_turn)
      (from + q + column * b->column, b->column, to + q * GEMM_COLUMNS + column, GEMM_COLUMNS);
    }
  }
  for (int64_t q = 0; q < depth; ++q) {
    for (int64_t column = q < deep ? fours : 0; column < columns; ++column) {
      to[q * GEMM_COLUMNS + column] = from[q * b->row + column * b->column];
    }
  }
}

REF_API void NAMED(matmul_blocks)(const ref_matmul_dims* d, const REAL* a, const REAL* b, REAL* c,
                                  void* scratch, int64_t begin, int64_t end) {
  const int64_t blocks = (d->n + MATMUL_UNIT - 1) / MATMUL_UNIT;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % blocks * MATMUL_UNIT;
    const int64_t last = d->n - first < MATMUL_UNIT ? d->n : first + MATMUL_UNIT;
    int64_t rest = unit / blocks, at_a = 0, at_b = 0, at_c = 0;
    for (int64_t axis = d->batch_rank - 1; axis >= 0; rest /= d->batch[axis--]) {
      const int64_t place = rest % d->batch[axis];
      at_a += place * d->a_batch[axis];
      at_b += place * d->b_batch[axis];
      at_c += place * d->c_batch[axis];
    }
    const NAMED(gemm_left) left = {a + at_a, d->a_row, d->k > 0 ? d->k : 1, 0, d->a_col};
    const NAMED(matmul_right) right = {b + at_b, d->b_row, d->b_col};
    NAMED(gemm)
    (d->m, d->k, &left, NAMED(matmul_pack), &right, d->b_col == 1 ? b + at_b : NULL, d->b_row,
     c + at_c, d->c_row, scratch, first, last);
  }
}

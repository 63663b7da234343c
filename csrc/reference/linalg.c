/* Square matrices, row after row, one unit each: factors, solutions, eigenvalues. Sums run in
 * rising order, one fma after the other, from the value that they are taken from. */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

/* Of float, too, correctly rounded: double has more than twice its digits. */
static REAL NAMED(ref_sqrt)(REAL x) { return (REAL)sqrt((double)x); }
static REAL NAMED(ref_abs)(REAL x) { return (REAL)fabs((double)x); }

/* Column j of a factor, behind those before it; whether its diagonal is not above 0. */
static int NAMED(ref_cholesky_column)(int64_t n, int64_t j, const REAL* from, REAL* to) {
  int bad = 0;
  for (int64_t first = j; first < n; first += REF_BLOCK) {
    const int64_t last = n - first < REF_BLOCK ? n : first + REF_BLOCK;
    if (first > j && j >= REF_BLOCK && REF_STOPS()) return 0;
    for (int64_t i = first; i < last; ++i) {
      REAL s = (from[i * n + j] + from[j * n + i]) * (REAL)0.5;
      for (int64_t p = 0; p < j; ++p) s = FMA(-to[i * n + p], to[j * n + p], s);
      if (i > j) {
        to[i * n + j] = s / to[j * n + j];
        continue;
      }
      bad = !(s > 0);
      to[j * n + j] = NAMED(ref_sqrt)(s);
    }
  }
  return bad;
}

REF_API int64_t NAMED(ref_cholesky)(const ref_linalg_dims* d, const REAL* x, REAL* l, int64_t begin,
                                    int64_t end) {
  const int64_t n = d->n;
  int64_t bad = -1;
  for (int64_t unit = begin; unit < end; ++unit) {
    const REAL* from = x + unit * n * n;
    REAL* to = l + unit * n * n;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < j; ++i) to[i * n + j] = 0;
      if (NAMED(ref_cholesky_column)(n, j, from, to) && bad < 0) bad = unit;
      if (REF_STOPS_AT(j, j * (n - j))) return -1;
    }
  }
  return bad;
}

REF_API void NAMED(ref_solve_triangular)(const ref_linalg_dims* d, const REAL* t, const REAL* b,
                                         REAL* y, int64_t begin, int64_t end) {
  const int64_t n = d->n, k = d->k;
  const int64_t row = d->transposed ? 1 : n, col = d->transposed ? n : 1;
  const int downwards = d->lower != d->transposed;
  for (int64_t unit = begin; unit < end; ++unit) {
    const REAL* from = t + unit * n * n;
    const REAL* right = b + unit * n * k;
    REAL* to = y + unit * n * k;
    for (int64_t step = 0; step < n; ++step) {
      if (REF_STOPS_AT(step, step * k)) return;
      const int64_t i = downwards ? step : n - 1 - step;
      for (int64_t c = 0; c < k; ++c) to[i * k + c] = right[i * k + c];
      for (int64_t done = 0; done < step; ++done) {
        if (REF_STOPS_AT(done, k)) return;
        const int64_t p = downwards ? done : n - 1 - done;
        const REAL factor = -from[i * row + p * col];
        for (int64_t c = 0; c < k; ++c) to[i * k + c] = FMA(factor, to[p * k + c], to[i * k + c]);
      }
      const REAL diagonal = from[i * row + i * col];
      for (int64_t c = 0; c < k; ++c) to[i * k + c] = to[i * k + c] / diagonal;
    }
  }
}

/* Gaussian elimination in place, rows with the largest pivot (the first of equals) first; the same
 * is done to the k columns of y. Returns the sign of the exchanges; 0 where a column has no pivot.
 * The pivots stand on the diagonal. */
static int NAMED(ref_eliminate)(int64_t n, int64_t k, REAL* a, REAL* y) {
  int sign = 1;
  for (int64_t j = 0; j < n; ++j) {
    if (REF_STOPS_AT(j, (n - j) * (n - j + k))) return 1;
    int64_t best = j;
    for (int64_t i = j + 1; i < n; ++i) {
      if (NAMED(ref_abs)(a[i * n + j]) > NAMED(ref_abs)(a[best * n + j])) best = i;
    }
    const REAL pivot = a[best * n + j];
    if (pivot == 0) return 0;
    if (best != j) sign = -sign;
    for (int64_t c = 0; best != j && c < n; ++c) {
      const REAL kept = a[j * n + c];
      a[j * n + c] = a[best * n + c];
      a[best * n + c] = kept;
    }
    for (int64_t c = 0; best != j && c < k; ++c) {
      const REAL kept = y[j * k + c];
      y[j * k + c] = y[best * k + c];
      y[best * k + c] = kept;
    }
    for (int64_t i = j + 1; i < n; ++i) {
      if (n - j + k >= 1024 && REF_STOPS_AT(i, n - j + k)) return 1;
      const REAL factor = -a[i * n + j] / pivot;
      for (int64_t c = j; c < n; ++c) a[i * n + c] = FMA(factor, a[j * n + c], a[i * n + c]);
      for (int64_t c = 0; c < k; ++c) y[i * k + c] = FMA(factor, y[j * k + c], y[i * k + c]);
    }
  }
  return sign;
}

REF_API int64_t NAMED(ref_solve)(const ref_linalg_dims* d, const REAL* a, const REAL* b, REAL* y,
                                 REAL* scratch, int64_t begin, int64_t end) {
  const int64_t n = d->n, k = d->k;
  int64_t bad = -1;
  for (int64_t unit = begin; unit < end; ++unit) {
    REAL* to = y + unit * n * k;
    for (int64_t i = 0; i < n * n; ++i) scratch[i] = a[unit * n * n + i];
    for (int64_t i = 0; i < n * k; ++i) to[i] = b[unit * n * k + i];
    if (NAMED(ref_eliminate)(n, k, scratch, to) == 0 && bad < 0) bad = unit;
    for (int64_t i = n - 1; i >= 0; --i) {
      if (REF_STOPS_AT(i, (n - i) * k)) return -1;
      for (int64_t p = n - 1; p > i; --p) {
        if (REF_STOPS_AT(p, k)) return -1;
        const REAL factor = -scratch[i * n + p];
        for (int64_t c = 0; c < k; ++c) to[i * k + c] = FMA(factor, to[p * k + c], to[i * k + c]);
      }
      for (int64_t c = 0; c < k; ++c) to[i * k + c] = to[i * k + c] / scratch[i * n + i];
    }
  }
  return bad;
}

REF_API void NAMED(ref_det)(const ref_linalg_dims* d, const REAL* a, REAL* y, REAL* scratch,
                            int64_t begin, int64_t end) {
  const int64_t n = d->n;
  for (int64_t unit = begin; unit < end; ++unit) {
    for (int64_t i = 0; i < n * n; ++i) scratch[i] = a[unit * n * n + i];
    REAL product = (REAL)NAMED(ref_eliminate)(n, 0, scratch, scratch);
    for (int64_t i = 0; product != 0 && i < n; ++i) product *= scratch[i * n + i];
    y[unit] = product;
  }
}

REF_API void NAMED(ref_scaled_det)(const ref_linalg_dims* d, const REAL* a, REAL* fraction,
                                   REAL* exponent, REAL* scratch, int64_t begin, int64_t end) {
  const int64_t n = d->n;
  for (int64_t unit = begin; unit < end; ++unit) {
    for (int64_t i = 0; i < n * n; ++i) scratch[i] = a[unit * n * n + i];
    double part = NAMED(ref_eliminate)(n, 0, scratch, scratch), shift = 0;
    for (int64_t i = -1; part != 0 && i < n; ++i) {
      int by = 0;
      part = frexp(i < 0 ? part : part * (double)scratch[i * n + i], &by);
      shift += by;
    }
    fraction[unit] = (REAL)part;
    exponent[unit] = (REAL)shift;
  }
}

static void NAMED(ref_exchange)(int64_t count, int64_t stride, REAL* x, REAL* y) {
  for (int64_t i = 0; i < count; ++i) {
    const REAL kept = x[i * stride];
    x[i * stride] = y[i * stride];
    y[i * stride] = kept;
  }
}

/* Gaussian elimination of all columns but the last, rows and columns with the largest element left
 * (the first of equals, NaN before all) first; the same is done to the rows of y, which has n
 * columns, and `column` gets which column each came from. Returns the product of the pivots with
 * the sign of the exchanges, divided by 2^*exponent; 0 where nothing but zeros is left. */
static REAL NAMED(ref_eliminate_fully)(int64_t n, REAL* a, REAL* y, REAL* column,
                                       int64_t* exponent) {
  REAL product = 1;
  *exponent = 0;
  for (int64_t j = 0; j + 1 < n; ++j) {
    int64_t row = j, col = j;
    for (int64_t i = j; i < n; ++i) {
      for (int64_t c = j; c < n; ++c) {
        const REAL size = NAMED(ref_abs)(a[i * n + c]), most = NAMED(ref_abs)(a[row * n + col]);
        if (!(size > most) && size == size) continue;
        row = i;
        col = c;
      }
    }
    const REAL pivot = a[row * n + col];
    if (pivot == 0) return 0;
    int by = 0;
    product = (row == j) == (col == j) ? product * pivot : -product * pivot;
    product = (REAL)frexp((double)product, &by);
    *exponent += by;
    column[j] = (REAL)col;
    NAMED(ref_exchange)(row == j ? 0 : n, 1, a + j * n, a + row * n);
    NAMED(ref_exchange)(row == j ? 0 : n, 1, y + j * n, y + row * n);
    NAMED(ref_exchange)(col == j ? 0 : n, n, a + j, a + col);
    for (int64_t i = j + 1; i < n; ++i) {
      const REAL factor = -a[i * n + j] / pivot;
      for (int64_t c = j; c < n; ++c) a[i * n + c] = FMA(factor, a[j * n + c], a[i * n + c]);
      for (int64_t c = 0; c < n; ++c) y[i * n + c] = FMA(factor, y[j * n + c], y[i * n + c]);
    }
  }
  return product;
}

/* Tells whether both 2^e and 2^e x are far from the ends of the numbers. */
static int NAMED(ref_is_ordinary)(int64_t e, REAL x) {
  const int most = sizeof(REAL) == 4 ? 120 : 1000;
  int by = 0;
  (void)frexp((double)x, &by);
  return e > -most && e < most && e + by > -most && e + by < most;
}

/* Of a = p l u q with l and the upper u, adj(a) = adj(q) adj(u) adj(l) adj(p); with u = [u1 c; 0
 * e], adj(u) = det(u1) [e u1^-1, -u1^-1 c; 0, 1]: nothing is divided by e, which may be 0. */
REF_API void NAMED(ref_cofactor)(const ref_linalg_dims* d, const REAL* a, REAL* y, REAL* scratch,
                                 int64_t begin, int64_t end) {
  const int64_t n = d->n;
  REAL *u = scratch, *x = u + n * n, *column = x + n * n;
  for (int64_t unit = begin; unit < end; ++unit) {
    REAL* to = y + unit * n * n;
    for (int64_t i = 0; i < n * n; ++i) {
      u[i] = a[unit * n * n + i];
      x[i] = i / n == i % n;
      to[i] = 0;
    }
    int64_t exponent = 0;
    REAL product = n == 0 ? 0 : NAMED(ref_eliminate_fully)(n, u, x, column, &exponent);
    if (product == 0) continue;
    if (NAMED(ref_is_ordinary)(exponent, u[n * n - 1])) {
      product = (REAL)ldexp((double)product, (int)exponent);
      exponent = 0;
    }
    REAL* last = x + (n - 1) * n;
    for (int64_t r = 0; r < n; ++r) last[r] = product * last[r];
    const REAL share = product * u[n * n - 1];
    for (int64_t i = n - 2; i >= 0; --i) {
      for (int64_t r = 0; r < n; ++r) x[i * n + r] = share * x[i * n + r];
      for (int64_t p = n - 1; p > i; --p) {
        const REAL factor = -u[i * n + p];
        for (int64_t r = 0; r < n; ++r) x[i * n + r] = FMA(factor, x[p * n + r], x[i * n + r]);
      }
      for (int64_t r = 0; r < n; ++r) x[i * n + r] = x[i * n + r] / u[i * n + i];
    }
    for (int64_t i = n - 2; i >= 0; --i) {
      const int64_t from = (int64_t)column[i];
      NAMED(ref_exchange)(from == i ? 0 : n, 1, x + i * n, x + from * n);
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t r = 0; r < n; ++r) to[r * n + i] = x[i * n + r];
    }
    for (int64_t i = 0; exponent != 0 && i < n * n; ++i) {
      to[i] = (REAL)ldexp((double)to[i], (int)exponent);
    }
  }
}

/* Turns rows and columns p and q of a, and columns p and q of v, so that a[p, q] becomes 0. */
static void NAMED(ref_rotate)(int64_t n, int64_t p, int64_t q, REAL* a, REAL* v) {
  const REAL theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
  const REAL root = NAMED(ref_abs)(theta) + NAMED(ref_sqrt)(FMA(theta, theta, 1));
  const REAL t = (theta < 0 ? -1 : 1) / root;
  const REAL c = 1 / NAMED(ref_sqrt)(FMA(t, t, 1)), s = t * c;
  for (int64_t i = 0; i < n; ++i) {
    const REAL x = a[i * n + p], y = a[i * n + q];
    a[i * n + p] = FMA(c, x, -(s * y));
    a[i * n + q] = FMA(s, x, c * y);
  }
  for (int64_t i = 0; i < n; ++i) {
    const REAL x = a[p * n + i], y = a[q * n + i];
    a[p * n + i] = FMA(c, x, -(s * y));
    a[q * n + i] = FMA(s, x, c * y);
  }
  a[p * n + q] = a[q * n + p] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const REAL x = v[i * n + p], y = v[i * n + q];
    v[i * n + p] = FMA(c, x, -(s * y));
    v[i * n + q] = FMA(s, x, c * y);
  }
}

/* The eigenvalue at `at` becomes the least of those from there on; its vector's largest component
 * (the first of equals) becomes positive. */
static void NAMED(ref_settle)(int64_t n, int64_t at, REAL* w, REAL* v) {
  int64_t least = at, largest = 0;
  for (int64_t i = at + 1; i < n; ++i) {
    if (w[i] < w[least]) least = i;
  }
  const REAL value = w[least];
  w[least] = w[at];
  w[at] = value;
  for (int64_t i = 0; i < n; ++i) {
    const REAL kept = v[i * n + least];
    v[i * n + least] = v[i * n + at];
    v[i * n + at] = kept;
    if (NAMED(ref_abs)(kept) > NAMED(ref_abs)(v[largest * n + at])) largest = i;
  }
  if (v[largest * n + at] >= 0) return;
  for (int64_t i = 0; i < n; ++i) v[i * n + at] = -v[i * n + at];
}

#define REF_MOST_SWEEPS 40 /* cyclic rotations converge after about ten */

REF_API void NAMED(ref_eigh)(const ref_linalg_dims* d, const REAL* x, REAL* values, REAL* vectors,
                             REAL* scratch, int64_t begin, int64_t end) {
  const int64_t n = d->n;
  const REAL least = sizeof(REAL) == 4 ? (REAL)1e-9 : (REAL)1e-18; /* of both diagonal elements */
  for (int64_t unit = begin; unit < end; ++unit) {
    const REAL* from = x + unit * n * n;
    REAL *w = values + unit * n, *v = vectors + unit * n * n;
    REAL zeros = 0; /* NaN where an element is not finite */
    for (int64_t i = 0; i < n; ++i) {
      if (REF_STOPS_AT(i, 8 * n)) return;
      for (int64_t j = 0; j < n; ++j) {
        scratch[i * n + j] = (from[i * n + j] + from[j * n + i]) * (REAL)0.5;
        zeros += scratch[i * n + j] * 0;
        v[i * n + j] = i == j;
      }
    }
    if (zeros != 0) {
      for (int64_t i = 0; i < n; ++i) w[i] = zeros;
      for (int64_t i = 0; i < n * n; ++i) v[i] = zeros;
      continue;
    }
    int turned = 1;
    for (int sweep = 0; turned && sweep < REF_MOST_SWEEPS; ++sweep) {
      turned = 0;
      for (int64_t p = 0; p < n; ++p) {
        if (REF_STOPS_AT(p, 8 * n * (n - p))) return;
        for (int64_t q = p + 1; q < n; ++q) {
          if (REF_STOPS_AT(q, 8 * n)) return;
          const REAL size = NAMED(ref_abs)(scratch[p * n + p]) + NAMED(ref_abs)(scratch[q * n + q]);
          const REAL off = NAMED(ref_abs)(scratch[p * n + q]);
          if (off <= least * size || off == 0) continue;
          NAMED(ref_rotate)(n, p, q, scratch, v);
          turned = 1;
        }
      }
    }
    for (int64_t i = 0; i < n; ++i) w[i] = scratch[i * n + i];
    for (int64_t i = 0; i < n; ++i) {
      if (REF_STOPS_AT(i, 8 * n)) return;
      NAMED(ref_settle)(n, i, w, v);
    }
  }
}

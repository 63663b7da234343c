/* Factors of matrices of n rows and k columns, row after row, one matrix a unit; p = min(n, k).
 * Sums run in rising order, one fma after the other, from the value that they are taken from. */
#include <math.h>

#include "reference/reference.h"

#ifndef REAL
#define REAL float
#define FMA fmaf
#define NAMED(name) name##_f32
#endif

/* Of float, too, correctly rounded: double has more than twice its digits. */
static REAL NAMED(ref_root)(REAL x) { return (REAL)sqrt((double)x); }
static REAL NAMED(ref_size)(REAL x) { return (REAL)fabs((double)x); }

/* The exponent e of the largest of n numbers, 2^(e - 1) <= |x| < 2^e; 0 where all are 0 or one is
 * infinite. */
static int NAMED(ref_exponent)(int64_t n, int64_t stride, const REAL* x) {
  REAL most = 0;
  int e = 0;
  for (int64_t i = 0; i < n; ++i) {
    const REAL size = NAMED(ref_size)(x[i * stride]);
    if (size > most) most = size;
  }
  if (most - most == 0) (void)frexp((double)most, &e);
  return e;
}

static void NAMED(ref_shift)(int64_t n, int64_t stride, int by, REAL* x) {
  for (int64_t i = 0; by != 0 && i < n; ++i) {
    x[i * stride] = (REAL)ldexp((double)x[i * stride], by);
  }
}

/* Tells whether sums of squares of numbers with that largest exponent may overflow or lose digits:
 * such numbers are divided by a power of two, which changes no digit. */
static int NAMED(ref_is_extreme)(int e) {
  const int room = sizeof(REAL) == 4 ? 32 : 256;
  return e > room || e < -room;
}

/* Takes from the column c of y, of rows of `columns`, what Householder's reflection with the vector
 * (head, a[j + 1, j], a[j + 2, j] …) takes; a has rows of k. */
static void NAMED(ref_reflect)(int64_t n, int64_t k, int64_t j, const REAL* a, REAL head, REAL tau,
                               int64_t columns, int64_t c, REAL* y) {
  REAL w = head * y[j * columns + c];
  for (int64_t i = j + 1; i < n; ++i) w = FMA(a[i * k + j], y[i * columns + c], w);
  w = -tau * w;
  y[j * columns + c] = FMA(w, head, y[j * columns + c]);
  for (int64_t i = j + 1; i < n; ++i) {
    y[i * columns + c] = FMA(w, a[i * k + j], y[i * columns + c]);
  }
}

REF_API void NAMED(ref_qr)(const ref_linalg_dims* d, const REAL* x, REAL* q, REAL* r, REAL* scratch,
                           int64_t begin, int64_t end) {
  const int64_t n = d->n, k = d->k, p = n < k ? n : k;
  const int most = sizeof(REAL) == 4 ? 96 : 992; /* sums of n numbers below 2^most stay finite */
  REAL *a = scratch, *heads = a + n * k, *taus = heads + p, *diagonal = taus + p;
  for (int64_t unit = begin; unit < end; ++unit) {
    REAL *to_q = q + unit * n * p, *to_r = r + unit * p * k;
    for (int64_t i = 0; i < n * k; ++i) a[i] = x[unit * n * k + i];
    const int largest = NAMED(ref_exponent)(n * k, 1, a);
    const int down = largest > most ? 32 : 0;
    NAMED(ref_shift)(n * k, 1, -down, a);
    for (int64_t j = 0; j < p; ++j) {
      if (REF_STOPS_AT(j, 8 * (n - j) * (k - j))) return;
      int by = NAMED(ref_exponent)(n - j, k, a + j * k + j);
      if (!NAMED(ref_is_extreme)(by) && !NAMED(ref_is_extreme)(largest)) by = 0;
      NAMED(ref_shift)(n - j, k, -by, a + j * k + j);
      REAL s = 0;
      for (int64_t i = j; i < n; ++i) s = FMA(a[i * k + j], a[i * k + j], s);
      const REAL norm = NAMED(ref_root)(s), first = a[j * k + j];
      diagonal[j] = first > 0 ? -norm : norm;
      heads[j] = first - diagonal[j];
      taus[j] = norm == 0 ? 0 : 1 / (norm * (norm + NAMED(ref_size)(first)));
      NAMED(ref_shift)(1, 1, by, diagonal + j);
      for (int64_t c = j + 1; c < k; ++c) {
        if (REF_STOPS_AT(c, 8 * (n - j))) return;
        NAMED(ref_reflect)(n, k, j, a, heads[j], taus[j], k, c, a);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < p; ++c) to_q[i * p + c] = i == c;
    }
    for (int64_t j = p - 1; j >= 0; --j) {
      if (REF_STOPS_AT(j, 8 * (n - j) * (p - j))) return;
      for (int64_t c = j; c < p; ++c) {
        if (REF_STOPS_AT(c, 8 * (n - j))) return;
        NAMED(ref_reflect)(n, k, j, a, heads[j], taus[j], p, c, to_q);
      }
    }
    for (int64_t i = 0; i < p; ++i) {
      if (REF_STOPS_AT(i, n + k)) return;
      const REAL sign = diagonal[i] < 0 ? -1 : 1;
      for (int64_t c = 0; c < k; ++c) {
        to_r[i * k + c] = c < i ? 0 : sign * (c == i ? diagonal[i] : a[i * k + c]);
      }
      for (int64_t j = 0; j < n; ++j) to_q[j * p + i] = sign * to_q[j * p + i];
    }
    NAMED(ref_shift)(p * k, 1, down, to_r);
  }
}

static REAL NAMED(ref_dot)(int64_t n, const REAL* x, const REAL* y) {
  REAL s = 0;
  for (int64_t i = 0; i < n; ++i) s = FMA(x[i], y[i], s);
  return s;
}

static void NAMED(ref_turn)(int64_t n, REAL c, REAL s, REAL* x, REAL* y) {
  for (int64_t i = 0; i < n; ++i) {
    const REAL a = x[i], b = y[i];
    x[i] = FMA(c, a, -(s * b));
    y[i] = FMA(s, a, c * b);
  }
}

static void NAMED(ref_swap)(int64_t n, REAL* x, REAL* y) {
  for (int64_t i = 0; i < n; ++i) {
    const REAL kept = x[i];
    x[i] = y[i];
    y[i] = kept;
  }
}

/* Makes the rows of g, `small` of length `large`, orthogonal by Jacobi's rotations, and does the
 * same to the rows of v; unless it is stopped. */
static void NAMED(ref_orthogonalize)(int64_t small, int64_t large, REAL* g, REAL* v) {
  /* Rounding leaves about as much between rows that are orthogonal: LAPACK's gesvj ends there. */
  const REAL least =
      (sizeof(REAL) == 4 ? (REAL)0x1p-24 : (REAL)0x1p-53) * NAMED(ref_root)((REAL)large);
  int turned = 1;
  for (int sweep = 0; turned && sweep < 40; ++sweep) {
    turned = 0;
    for (int64_t p = 0; p < small; ++p) {
      if (REF_STOPS_AT(p, 8 * large * (small - p))) return;
      for (int64_t q = p + 1; q < small; ++q) {
        if (REF_STOPS_AT(q, 8 * large)) return;
        REAL *x = g + p * large, *y = g + q * large;
        const REAL a = NAMED(ref_dot)(large, x, x), b = NAMED(ref_dot)(large, y, y);
        const REAL off = NAMED(ref_dot)(large, x, y);
        if (!(NAMED(ref_size)(off) > least * NAMED(ref_root)(a) * NAMED(ref_root)(b))) continue;
        const REAL zeta = (b - a) / (2 * off);
        const REAL root = NAMED(ref_size)(zeta) + NAMED(ref_root)(FMA(zeta, zeta, 1));
        const REAL t = (zeta < 0 ? -1 : 1) / root;
        const REAL c = 1 / NAMED(ref_root)(FMA(t, t, 1)), s = t * c;
        if (s == 0) continue;
        NAMED(ref_turn)(large, c, s, x, y);
        NAMED(ref_turn)(small, c, s, v + p * small, v + q * small);
        turned = 1;
      }
    }
  }
}

/* Row `at` of g becomes a unit vector that is orthogonal to the rows before: of the first unit
 * vector of the space that is far enough from them, what they leave. */
static void NAMED(ref_complete)(int64_t at, int64_t large, REAL* g) {
  REAL* to = g + at * large;
  for (int64_t e = 0; e < large; ++e) {
    if (REF_STOPS_AT(e, 2 * large)) return;
    for (int64_t i = 0; i < large; ++i) to[i] = i == e;
    for (int round = 0; round < 2; ++round) {
      for (int64_t row = 0; row < at; ++row) {
        if (REF_STOPS_AT(row, 4 * large)) return;
        const REAL share = -NAMED(ref_dot)(large, g + row * large, to);
        for (int64_t i = 0; i < large; ++i) to[i] = FMA(share, g[row * large + i], to[i]);
      }
    }
    const REAL size = NAMED(ref_dot)(large, to, to);
    if (!(size * (REAL)(2 * large) > 1)) continue;
    const REAL norm = NAMED(ref_root)(size);
    for (int64_t i = 0; i < large; ++i) to[i] = to[i] / norm;
    return;
  }
}

/* Row `at` of g, a unit vector made from what rounding left, becomes orthogonal to those before. */
static void NAMED(ref_straighten)(int64_t at, int64_t large, REAL* g) {
  REAL* row = g + at * large;
  for (int round = 0; round < 2; ++round) {
    for (int64_t before = 0; before < at; ++before) {
      const REAL share = -NAMED(ref_dot)(large, g + before * large, row);
      for (int64_t i = 0; i < large; ++i) row[i] = FMA(share, g[before * large + i], row[i]);
    }
  }
  const REAL norm = NAMED(ref_root)(NAMED(ref_dot)(large, row, row));
  if (!(norm * 2 > 1)) {
    NAMED(ref_complete)(at, large, g);
    return;
  }
  for (int64_t i = 0; i < large; ++i) row[i] = row[i] / norm;
}

/* Puts the largest of the values from `at` on there, with its row of g and of v. */
static void NAMED(ref_choose)(int64_t at, int64_t small, int64_t large, REAL* s, REAL* g, REAL* v) {
  int64_t most = at;
  for (int64_t j = at + 1; j < small; ++j) {
    if (s[j] > s[most]) most = j;
  }
  if (most == at) return;
  NAMED(ref_swap)(1, s + at, s + most);
  NAMED(ref_swap)(large, g + at * large, g + most * large);
  NAMED(ref_swap)(small, v + at * small, v + most * small);
}

/* The sign that makes the largest component, the first of equals, positive. */
static REAL NAMED(ref_sign)(int64_t n, const REAL* x) {
  int64_t largest = 0;
  for (int64_t j = 1; j < n; ++j) {
    if (NAMED(ref_size)(x[j]) > NAMED(ref_size)(x[largest])) largest = j;
  }
  return x[largest] < 0 ? -1 : 1;
}

REF_API void NAMED(ref_svd)(const ref_linalg_dims* d, const REAL* x, REAL* u, REAL* values,
                            REAL* vt, REAL* scratch, int64_t begin, int64_t end) {
  const int64_t n = d->n, k = d->k, wide = n < k;
  const int64_t small = wide ? n : k, large = wide ? k : n;
  const REAL noise = (REAL)large * (sizeof(REAL) == 4 ? (REAL)0x1p-22 : (REAL)0x1p-51);
  REAL *g = scratch, *v = g + small * large;
  for (int64_t unit = begin; unit < end; ++unit) {
    const REAL* from = x + unit * n * k;
    REAL* s = values + unit * small;
    REAL zeros = 0; /* NaN where an element is not finite */
    for (int64_t i = 0; i < n * k; ++i) zeros += from[i] * 0;
    if (zeros != 0) {
      for (int64_t i = 0; i < n * small; ++i) u[unit * n * small + i] = zeros;
      for (int64_t i = 0; i < small; ++i) s[i] = zeros;
      for (int64_t i = 0; i < small * k; ++i) vt[unit * small * k + i] = zeros;
      continue;
    }
    for (int64_t i = 0; i < small; ++i) {
      if (REF_STOPS_AT(i, 8 * large)) return;
      for (int64_t j = 0; j < large; ++j) g[i * large + j] = from[wide ? i * k + j : j * k + i];
      for (int64_t j = 0; j < small; ++j) v[i * small + j] = i == j;
    }
    const int largest = NAMED(ref_exponent)(n * k, 1, g);
    const int by = NAMED(ref_is_extreme)(largest) ? largest : 0;
    NAMED(ref_shift)(n * k, 1, -by, g);
    NAMED(ref_orthogonalize)(small, large, g, v);
    for (int64_t i = 0; i < small; ++i) {
      s[i] = NAMED(ref_root)(NAMED(ref_dot)(large, g + i * large, g + i * large));
    }
    for (int64_t i = 0; i < small; ++i) {
      if (REF_STOPS_AT(i, 8 * (n + k))) return;
      NAMED(ref_choose)(i, small, large, s, g, v);
      REAL* row = g + i * large;
      if (s[i] == 0) NAMED(ref_complete)(i, large, g);
      for (int64_t j = 0; s[i] != 0 && j < large; ++j) row[j] = row[j] / s[i];
      if (s[0] - s[0] == 0 && s[i] != 0 && s[i] <= noise * s[0]) NAMED(ref_straighten)(i, large, g);
      const REAL *left = wide ? v + i * small : row, *right = wide ? row : v + i * small;
      const REAL sign = NAMED(ref_sign)(n, left);
      for (int64_t j = 0; j < n; ++j) u[unit * n * small + j * small + i] = sign * left[j];
      for (int64_t j = 0; j < k; ++j) vt[unit * small * k + i * k + j] = sign * right[j];
    }
    NAMED(ref_shift)(small, 1, by, s);
  }
}

/* Discrete Fourier transforms along an axis, in double whatever the elements are: a transform has
 * no sum of its own that narrow floats could round. Sizes of small primes by mixed radices in
 * Stockham's order, which needs no permutation; any other size as a convolution with a chirp
 * (Bluestein, 1970). Lines that are transformed together lie side by side: place i of line l at
 * i * width + l, real and imaginary parts apart. Roots of unity are e^(-2 pi i k / n). */
#include "reference/reference.h"

#define REF_LARGEST_RADIX 50   /* beyond that a chirp costs less */
#define REF_TOGETHER 8         /* lines transformed side by side */
#define REF_MOST_TOGETHER 2048 /* places of a line, where lines are short enough for that */
#define REF_MOST_AT_ONCE 65536 /* places of a radix, between questions whether to stop */

typedef struct {
  double *re, *im;
} ref_complex;

/* The sine and cosine of x from 0 to pi / 4 by their series, nested. */
static void ref_circle(double x, double* sine, double* cosine) {
  const double square = x * x;
  double s = 1, c = 1;
  for (int k = 18; k > 0; k -= 2) {
    s = 1 - square * s / (double)(k * (k + 1));
    c = 1 - square * c / (double)((k - 1) * k);
  }
  *sine = x * s;
  *cosine = c;
}

/* Root k of n, 0 <= k < n; from the nearest multiple of a quarter turn, so that symmetric roots
 * are equal to the bit. */
static void ref_root_of_unity(int64_t n, int64_t k, double* re, double* im) {
  const double quarter_pi = 0.78539816339744830962;
  const int64_t octant = 8 * k / n, past = 8 * k - octant * n;
  const double part = (double)(octant % 2 ? n - past : past) / (double)n;
  double s, c;
  ref_circle(quarter_pi * part, &s, &c);
  const int64_t quarter = (octant + 1) / 2 % 4; /* the nearest one, before or behind */
  const double y = octant % 2 ? -s : s;
  const double cosine = quarter == 0 ? c : quarter == 1 ? -y : quarter == 2 ? -c : y;
  const double sine = quarter == 0 ? y : quarter == 1 ? c : quarter == 2 ? -y : -c;
  *re = cosine;
  *im = -sine;
}

static void ref_roots(int64_t n, ref_complex to) {
  for (int64_t k = 0; k < n; ++k) {
    if (REF_STOPS_RARELY(k)) return;
    ref_root_of_unity(n, k, to.re + k, to.im + k);
  }
}

static int ref_is_smooth(int64_t n) {
  for (int64_t p = 2; p <= REF_LARGEST_RADIX; ++p) {
    while (n % p == 0 && n > 1) n /= p;
  }
  return n == 1;
}

/* Places of the transforms that are really done: n, or a power of two that a chirp fits in. */
static int64_t ref_dft_places(int64_t n) {
  if (ref_is_smooth(n)) return n;
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  return m;
}

REF_API int64_t ref_dft_width(int64_t n) {
  return ref_dft_places(n) <= REF_MOST_TOGETHER ? REF_TOGETHER : 1;
}
REF_API int64_t ref_dft_scratch(int64_t n) { return 4 * ref_dft_places(n) * ref_dft_width(n); }
REF_API int64_t ref_dft_table(int64_t n) {
  return ref_is_smooth(n) ? 2 * n : 4 * ref_dft_places(n) + 2 * n;
}

/* The parts of a table: roots; of a chirp also the chirp and its transform, divided by the places.
 */
static ref_complex ref_part(double* table, int64_t before, int64_t size) {
  const ref_complex out = {table + 2 * before, table + 2 * before + size};
  return out;
}

/* y = x * (re + i im), a row of places. */
static void ref_turn_row(int64_t width, double re, double im, double* xr, double* xi) {
  for (int64_t s = 0; s < width; ++s) {
    const double r = xr[s], i = xi[s];
    xr[s] = r * re - i * im;
    xi[s] = r * im + i * re;
  }
}

/* `count` places of the `span` that lie apart. */
static void ref_radix_2(int64_t count, int64_t span, int64_t far, const double* xr,
                        const double* xi, double* yr, double* yi) {
  for (int64_t s = 0; s < count; ++s) {
    const double ar = xr[s], ai = xi[s], br = xr[s + span], bi = xi[s + span];
    yr[s] = ar + br;
    yi[s] = ai + bi;
    yr[s + far] = ar - br;
    yi[s + far] = ai - bi;
  }
}

static void ref_radix_4(int64_t count, int64_t span, int64_t far, const double* xr,
                        const double* xi, double* yr, double* yi) {
  for (int64_t s = 0; s < count; ++s) {
    const int64_t b = s + span, c = b + span, d = c + span;
    const double er = xr[s] + xr[c], ei = xi[s] + xi[c], fr = xr[s] - xr[c], fi = xi[s] - xi[c];
    const double gr = xr[b] + xr[d], gi = xi[b] + xi[d], hr = xr[b] - xr[d], hi = xi[b] - xi[d];
    yr[s] = er + gr;
    yi[s] = ei + gi;
    yr[s + far] = fr + hi;
    yi[s + far] = fi - hr;
    yr[s + 2 * far] = er - gr;
    yi[s + 2 * far] = ei - gi;
    yr[s + 3 * far] = fr - hi;
    yi[s + 3 * far] = fi + hr;
  }
}

/* Any radix by its definition: roots q * m of p, which lie `turn` apart. */
static void ref_radix(int64_t p, int64_t turn, ref_complex roots, int64_t count, int64_t span,
                      int64_t far, const double* xr, const double* xi, double* yr, double* yi) {
  for (int64_t m = 0; m < p; ++m) {
    double *tor = yr + m * far, *toi = yi + m * far;
    for (int64_t s = 0; s < count; ++s) {
      tor[s] = xr[s];
      toi[s] = xi[s];
    }
    for (int64_t q = 1; q < p; ++q) {
      const double re = roots.re[q * m % p * turn], im = roots.im[q * m % p * turn];
      const double *fromr = xr + q * span, *fromi = xi + q * span;
      for (int64_t s = 0; s < count; ++s) {
        tor[s] += fromr[s] * re - fromi[s] * im;
        toi[s] += fromr[s] * im + fromi[s] * re;
      }
    }
  }
}

/* One round: in `x` there are transforms of `done` places of every (n / done)th element; in `y`
 * those of p * done places. The roots are those of step * n. */
static void ref_round(int64_t n, int64_t done, int64_t p, int64_t width, ref_complex roots,
                      int64_t step, ref_complex x, ref_complex y) {
  const int64_t span = n / done / p * width, far = done * span;
  const int64_t most = REF_MOST_AT_ONCE / p;
  for (int64_t k = 0; k < done; ++k) {
    for (int64_t s = 0; s < span; s += most) {
      if (s == 0 ? REF_STOPS_AT(k, p * span) : REF_STOPS()) return;
      const int64_t count = span - s < most ? span - s : most;
      double *xr = x.re + k * p * span + s, *xi = x.im + k * p * span + s;
      double *yr = y.re + k * span + s, *yi = y.im + k * span + s;
      for (int64_t q = 1; k > 0 && q < p; ++q) {
        const int64_t root = k * q * (n / done / p) * step;
        ref_turn_row(count, roots.re[root], roots.im[root], xr + q * span, xi + q * span);
      }
      if (p == 2) {
        ref_radix_2(count, span, far, xr, xi, yr, yi);
      } else if (p == 4) {
        ref_radix_4(count, span, far, xr, xi, yr, yi);
      } else {
        ref_radix(p, n / p * step, roots, count, span, far, xr, xi, yr, yi);
      }
    }
  }
}

/* All rounds; `x` is used up. Returns where the result lies: in `x` or in `y`. */
static ref_complex ref_rounds(int64_t n, int64_t width, ref_complex roots, int64_t step,
                              ref_complex x, ref_complex y) {
  int64_t p = 4;
  for (int64_t done = 1; done < n; done *= p) {
    while (n / done % p != 0) p = p == 4 ? 2 : p == 2 ? 3 : p + 2;
    ref_round(n, done, p, width, roots, step, x, y);
    const ref_complex kept = x;
    x = y;
    y = kept;
  }
  return x;
}

static ref_complex ref_swapped(ref_complex x) {
  const ref_complex out = {x.im, x.re};
  return out;
}

/* Of a size that has a large prime: k j = (k^2 + j^2 - (k - j)^2) / 2, so the transform is a
 * convolution of x times the chirp with the chirp's conjugate, times the chirp. */
static ref_complex ref_chirped(int64_t n, int64_t width, double* table, ref_complex x,
                               ref_complex y) {
  const int64_t m = ref_dft_places(n);
  const ref_complex roots = ref_part(table, 0, m), chirp = ref_part(table, m, n);
  const ref_complex filter = ref_part(table, m + n, m);
  for (int64_t i = 0; i < n; ++i) {
    if (REF_STOPS_RARELY(i)) return x;
    ref_turn_row(width, chirp.re[i], chirp.im[i], x.re + i * width, x.im + i * width);
  }
  for (int64_t i = n * width; i < m * width; ++i) x.re[i] = x.im[i] = 0;
  ref_complex z = ref_rounds(m, width, roots, 1, x, y);
  for (int64_t i = 0; i < m; ++i) {
    if (REF_STOPS_RARELY(i)) return x;
    ref_turn_row(width, filter.re[i], filter.im[i], z.re + i * width, z.im + i * width);
  }
  /* Real and imaginary parts exchanged, it is the transform back. */
  z = ref_swapped(
      ref_rounds(m, width, roots, 1, ref_swapped(z), ref_swapped(z.re == x.re ? y : x)));
  for (int64_t i = 0; i < n; ++i) {
    if (REF_STOPS_RARELY(i)) return z;
    ref_turn_row(width, chirp.re[i], chirp.im[i], z.re + i * width, z.im + i * width);
  }
  return z;
}

REF_API void ref_dft_prepare(int64_t n, double* table, double* scratch) {
  const int64_t m = ref_dft_places(n);
  const ref_complex roots = ref_part(table, 0, m);
  ref_roots(m, roots);
  if (ref_is_smooth(n)) return;
  const ref_complex chirp = ref_part(table, m, n), filter = ref_part(table, m + n, m);
  const ref_complex x = ref_part(scratch, 0, m), y = ref_part(scratch, m, m);
  for (int64_t i = 0; i < m; ++i) {
    if (REF_STOPS_RARELY(i)) return;
    x.re[i] = x.im[i] = 0;
  }
  int64_t square = 0; /* i * i, modulo 2 n */
  for (int64_t i = 0; i < n; ++i) {
    if (REF_STOPS_RARELY(i)) return;
    ref_root_of_unity(2 * n, square, chirp.re + i, chirp.im + i);
    x.re[i] = x.re[(m - i) % m] = chirp.re[i];
    x.im[i] = x.im[(m - i) % m] = -chirp.im[i];
    square = (square + 2 * i + 1) % (2 * n);
  }
  const ref_complex transformed = ref_rounds(m, 1, roots, 1, x, y);
  for (int64_t i = 0; i < m; ++i) {
    if (REF_STOPS_RARELY(i)) return;
    filter.re[i] = transformed.re[i] / (double)m;
    filter.im[i] = transformed.im[i] / (double)m;
  }
}

static int64_t ref_line(const ref_axis_dims* d, int64_t unit) {
  return unit / d->inner * d->n * d->inner + unit % d->inner;
}

static ref_complex ref_transformed(int64_t n, int64_t width, double* table, ref_complex x,
                                   ref_complex y) {
  if (!ref_is_smooth(n)) return ref_chirped(n, width, table, x, y);
  return ref_rounds(n, width, ref_part(table, 0, n), 1, x, y);
}

/* Back is the same with real and imaginary parts exchanged, before and after. */
#define REF_DFT(NAME, TYPE)                                                                \
  REF_API void NAME(const ref_axis_dims* d, double* table, const TYPE* re, const TYPE* im, \
                    TYPE* yre, TYPE* yim, double* scratch, int64_t begin, int64_t end) {   \
    const int64_t n = d->n, most = ref_dft_width(n), room = ref_dft_places(n) * most;      \
    for (int64_t first = begin; first < end; first += most) {                              \
      const int64_t width = end - first < most ? end - first : most;                       \
      const ref_complex x = ref_part(scratch, 0, room), y = ref_part(scratch, room, room); \
      const ref_complex in = d->falling ? ref_swapped(x) : x;                              \
      for (int64_t l = 0; l < width; ++l) {                                                \
        const int64_t at = ref_line(d, first + l);                                         \
        for (int64_t i = 0; i < n; ++i) {                                                  \
          if (REF_STOPS_RARELY(i)) return;                                                 \
          in.re[i * width + l] = (double)re[at + i * d->inner];                            \
          in.im[i * width + l] = im ? (double)im[at + i * d->inner] : 0;                   \
        }                                                                                  \
      }                                                                                    \
      const ref_complex z = ref_transformed(n, width, table, x, y);                        \
      const ref_complex out = d->falling ? ref_swapped(z) : z;                             \
      for (int64_t l = 0; l < width; ++l) {                                                \
        const int64_t at = ref_line(d, first + l);                                         \
        for (int64_t i = 0; i < n; ++i) {                                                  \
          if (REF_STOPS_RARELY(i)) return;                                                 \
          yre[at + i * d->inner] = (TYPE)out.re[i * width + l];                            \
          yim[at + i * d->inner] = (TYPE)out.im[i * width + l];                            \
        }                                                                                  \
      }                                                                                    \
    }                                                                                      \
  }

/* Whether real lines are transformed as lines of half their size, neighbours being real and
 * imaginary part. */
static int ref_is_folded(int64_t n) { return n % 2 == 0 && ref_is_smooth(n); }

/* What a folded transform stands for: places 0 to n / 2, in `to`. */
static ref_complex ref_unfolded(int64_t n, int64_t width, ref_complex roots, ref_complex z,
                                ref_complex to) {
  const int64_t half = n / 2;
  for (int64_t k = 0; k <= half; ++k) {
    if (REF_STOPS_RARELY(k)) return to;
    const int64_t a = k % half * width, b = (half - k) % half * width, at = k * width;
    const double re = roots.re[k], im = roots.im[k];
    for (int64_t s = 0; s < width; ++s) {
      const double er = (z.re[a + s] + z.re[b + s]) * 0.5, ei = (z.im[a + s] - z.im[b + s]) * 0.5;
      const double dr = (z.re[a + s] - z.re[b + s]) * 0.5, di = (z.im[a + s] + z.im[b + s]) * 0.5;
      to.re[at + s] = er + (re * di + im * dr);
      to.im[at + s] = ei + (im * di - re * dr);
    }
  }
  return to;
}

static ref_complex ref_transformed_real(int64_t n, int64_t width, double* table, ref_complex x,
                                        ref_complex y) {
  if (!ref_is_folded(n)) return ref_transformed(n, width, table, x, y);
  const ref_complex roots = ref_part(table, 0, n);
  const ref_complex z = ref_rounds(n / 2, width, roots, 2, x, y);
  return ref_unfolded(n, width, roots, z, z.re == x.re ? y : x);
}

#define REF_RDFT(NAME, TYPE)                                                               \
  REF_API void NAME(const ref_axis_dims* d, double* table, const TYPE* input, TYPE* yre,   \
                    TYPE* yim, double* scratch, int64_t begin, int64_t end) {              \
    const int64_t n = d->n, most = ref_dft_width(n), room = ref_dft_places(n) * most;      \
    const int64_t folded = ref_is_folded(n), rows = folded ? n / 2 : n, kept = n / 2 + 1;  \
    const ref_axis_dims to = {d->outer, kept, d->inner, 0};                                \
    for (int64_t first = begin; first < end; first += most) {                              \
      const int64_t width = end - first < most ? end - first : most;                       \
      const ref_complex x = ref_part(scratch, 0, room), y = ref_part(scratch, room, room); \
      for (int64_t l = 0; l < width; ++l) {                                                \
        const TYPE* from = input + ref_line(d, first + l);                                 \
        for (int64_t i = 0; i < rows; ++i) {                                               \
          if (REF_STOPS_RARELY(i)) return;                                                 \
          x.re[i * width + l] = (double)from[(folded ? 2 * i : i) * d->inner];             \
          x.im[i * width + l] = folded ? (double)from[(2 * i + 1) * d->inner] : 0;         \
        }                                                                                  \
      }                                                                                    \
      const ref_complex z = ref_transformed_real(n, width, table, x, y);                   \
      for (int64_t l = 0; l < width; ++l) {                                                \
        const int64_t at = ref_line(&to, first + l);                                       \
        for (int64_t i = 0; i < kept; ++i) {                                               \
          if (REF_STOPS_RARELY(i)) return;                                                 \
          yre[at + i * d->inner] = (TYPE)z.re[i * width + l];                              \
          yim[at + i * d->inner] = (TYPE)z.im[i * width + l];                              \
        }                                                                                  \
      }                                                                                    \
    }                                                                                      \
  }

REF_DFT(ref_dft_f32, float)
REF_DFT(ref_dft_f64, double)
REF_RDFT(ref_rdft_f32, float)
REF_RDFT(ref_rdft_f64, double)

#undef REF_DFT
#undef REF_RDFT
#undef REF_LARGEST_RADIX
#undef REF_TOGETHER
#undef REF_MOST_AT_ONCE
#undef REF_MOST_TOGETHER

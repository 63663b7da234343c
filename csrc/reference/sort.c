/* The order of elements along an axis: places are merged, runs of 1, 2, 4 …; of equal elements the
 * one of the left run comes first, so that the order is stable. */
#include "reference/reference.h"

static void ref_store_place(void* y, int64_t size, int64_t at, int64_t place) {
  if (size == 4) {
    ((int32_t*)y)[at] = (int32_t)place;
  } else {
    ((int64_t*)y)[at] = place;
  }
}

/* NaN, which differs from itself, is the largest element. */
#define REF_LESS(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))

/* Two sorted runs of places next to each other, merged; false where it was stopped. */
#define REF_MERGE(NAME, TYPE)                                                                  \
  static int NAME(const TYPE* x, const ref_axis_dims* d, const int64_t* runs, int64_t* merged, \
                  int64_t first, int64_t half, int64_t last) {                                 \
    int64_t left = first, right = half;                                                        \
    for (int64_t to = first; to < last; ++to) {                                                \
      if (REF_STOPS_RARELY(to)) return 0;                                                      \
      int take_right = left == half;                                                           \
      if (left < half && right < last) {                                                       \
        const TYPE l = x[runs[left] * d->inner], r = x[runs[right] * d->inner];                \
        take_right = d->falling ? REF_LESS(l, r) : REF_LESS(r, l);                             \
      }                                                                                        \
      merged[to] = take_right ? runs[right++] : runs[left++];                                  \
    }                                                                                          \
    return 1;                                                                                  \
  }

#define REF_ARGSORT(NAME, MERGE, TYPE)                                            \
  REF_MERGE(MERGE, TYPE)                                                          \
  REF_API void NAME(const ref_axis_dims* d, int64_t size, const TYPE* x, void* y, \
                    int64_t* scratch, int64_t begin, int64_t end) {               \
    const int64_t n = d->n, step = d->inner;                                      \
    for (int64_t unit = begin; unit < end; ++unit) {                              \
      const int64_t base = unit / step * n * step + unit % step;                  \
      int64_t *sorted = scratch, *merged = scratch + n;                           \
      for (int64_t i = 0; i < n; ++i) {                                           \
        if (REF_STOPS_RARELY(i)) return;                                          \
        sorted[i] = i;                                                            \
      }                                                                           \
      for (int64_t run = 1; run < n; run *= 2) {                                  \
        for (int64_t first = 0; first < n; first += 2 * run) {                    \
          const int64_t half = first + run < n ? first + run : n;                 \
          const int64_t last = half + run < n ? half + run : n;                   \
          if (!MERGE(x + base, d, sorted, merged, first, half, last)) return;     \
        }                                                                         \
        int64_t* const swapped = sorted;                                          \
        sorted = merged;                                                          \
        merged = swapped;                                                         \
      }                                                                           \
      for (int64_t i = 0; i < n; ++i) {                                           \
        if (REF_STOPS_RARELY(i)) return;                                          \
        ref_store_place(y, size, base + i * step, sorted[i]);                     \
      }                                                                           \
    }                                                                             \
  }

REF_ARGSORT(ref_argsort_f32, ref_merge_f32, float)
REF_ARGSORT(ref_argsort_f64, ref_merge_f64, double)
REF_ARGSORT(ref_argsort_i32, ref_merge_i32, int32_t)
REF_ARGSORT(ref_argsort_i64, ref_merge_i64, int64_t)

#define REF_LAST_WRITERS(NAME, INDEX)                                                       \
  REF_API int64_t NAME(const ref_gather_dims* d, int64_t size, const INDEX* index, void* y, \
                       int64_t begin, int64_t end) {                                        \
    int64_t bad = -1;                                                                       \
    for (int64_t k = begin; k < end; ++k) ref_store_place(y, size, k, -1);                  \
    for (int64_t j = 0; j < d->count; ++j) {                                                \
      if (REF_STOPS_RARELY(j)) return -1;                                                   \
      const int64_t value = (int64_t)index[j];                                              \
      if (value < d->lowest || value >= d->bound) {                                         \
        if (bad < 0) bad = j;                                                               \
        continue;                                                                           \
      }                                                                                     \
      const int64_t place = value < 0 ? value + d->bound : value;                           \
      if (place >= begin && place < end) ref_store_place(y, size, place, j);                \
    }                                                                                       \
    return bad;                                                                             \
  }

REF_LAST_WRITERS(ref_last_writers_i32, int32_t)
REF_LAST_WRITERS(ref_last_writers_i64, int64_t)

#undef REF_LAST_WRITERS
#undef REF_ARGSORT
#undef REF_MERGE
#undef REF_LESS

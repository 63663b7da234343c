/* Where a mask is true. */
#include "reference/reference.h"

/* What is written behind the places found so far is overwritten by the next one. */
#define REF_TRUE_PLACES(NAME, PLACE)                                                   \
  REF_API void NAME(int64_t n, const unsigned char* mask, PLACE* places, PLACE* count, \
                    int64_t begin, int64_t end) {                                      \
    if (begin >= end) return;                                                          \
    int64_t found = 0;                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                  \
      if (REF_STOPS_RARELY(i)) return;                                                 \
      places[found] = (PLACE)i;                                                        \
      found += mask[i] != 0;                                                           \
    }                                                                                  \
    *count = (PLACE)found;                                                             \
  }

REF_TRUE_PLACES(ref_true_places_i32, int32_t)
REF_TRUE_PLACES(ref_true_places_i64, int64_t)

#undef REF_TRUE_PLACES

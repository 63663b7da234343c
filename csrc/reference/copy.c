/* Strided copies: slices, transposes, broadcasts, the parts of a concatenation. */
#include "reference/reference.h"

/* Elements of any type of that size: a compiler that sees floats stored must not move them. */
#define REF_COPY_ROW(NAME, TYPE)                                                   \
  typedef TYPE REF_ANY_TYPE NAME##_element;                                        \
  static void NAME(const void* from, int64_t from_step, void* to, int64_t to_step, \
                   int64_t count) {                                                \
    const NAME##_element* in = (const NAME##_element*)from;                        \
    NAME##_element* REF_RESTRICT out = (NAME##_element*)to;                        \
    if (from_step == 1 && to_step == 1) {                                          \
      for (int64_t i = 0; i < count; ++i) out[i] = in[i];                          \
    } else {                                                                       \
      for (int64_t i = 0; i < count; ++i) out[i * to_step] = in[i * from_step];    \
    }                                                                              \
  }

REF_COPY_ROW(ref_copy_row_1, uint8_t)
REF_COPY_ROW(ref_copy_row_2, uint16_t)
REF_COPY_ROW(ref_copy_row_4, uint32_t)
REF_COPY_ROW(ref_copy_row_8, uint64_t)

static void ref_copy_row_any(const unsigned char* from, int64_t from_step, unsigned char* to,
                             int64_t to_step, int64_t count, int64_t size) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t byte = 0; byte < size; ++byte) {
      to[i * to_step * size + byte] = from[i * from_step * size + byte];
    }
  }
}

REF_API void ref_copy(const ref_copy_dims* d, int64_t size, const void* from, void* to,
                      int64_t begin, int64_t end) {
  const int64_t last = d->rank - 1;
  const int64_t count = d->rank == 0 ? 1 : d->size[last];
  const int64_t from_step = d->rank == 0 ? 1 : d->from[last];
  const int64_t to_step = d->rank == 0 ? 1 : d->to[last];
  for (int64_t unit = begin; unit < end; ++unit) {
    if (REF_STOPS_AT(unit, count)) return;
    int64_t rest = unit, at = 0, place = 0;
    for (int64_t axis = last - 1; axis >= 0; rest /= d->size[axis--]) {
      at += rest % d->size[axis] * d->from[axis];
      place += rest % d->size[axis] * d->to[axis];
    }
    const unsigned char* in = (const unsigned char*)from + at * size;
    unsigned char* out = (unsigned char*)to + place * size;
    switch (size) {
      case 1: ref_copy_row_1(in, from_step, out, to_step, count); break;
      case 2: ref_copy_row_2(in, from_step, out, to_step, count); break;
      case 4: ref_copy_row_4(in, from_step, out, to_step, count); break;
      case 8: ref_copy_row_8(in, from_step, out, to_step, count); break;
      default: ref_copy_row_any(in, from_step, out, to_step, count, size);
    }
  }
}

REF_API int64_t ref_copy_units(const ref_copy_dims* d) {
  int64_t units = 1;
  for (int64_t axis = 0; axis + 1 < d->rank; ++axis) units *= d->size[axis];
  return units;
}

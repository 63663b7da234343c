// What a tap sees of planes, copied by one instruction set.
#include "backends/cpu/conv/copy_row.h"
#include "backends/cpu/conv/taps.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

template <class T>
void clear(T* begin, const T* end) {
  while (begin != end) *begin++ = 0;
}

template <class T>
void copy_taps(const Tap<T>& tap) {
  const Inside rows(tap.row, tap.row_step, tap.rows, tap.height);
  const Inside columns(tap.column, tap.column_step, tap.columns, tap.width);
  const int64_t first = (tap.row + rows.begin * tap.row_step) * tap.width + tap.column +
                        columns.begin * tap.column_step;
  const int64_t count = columns.end - columns.begin, from_step = tap.row_step * tap.width;
  const int64_t behind = tap.columns - columns.end + columns.begin;  // and before the next row
  for (int64_t c = 0; c < tap.planes; ++c) {
    T* const plane = tap.to + c * tap.to_step;
    T* const end = plane + tap.rows * tap.columns;
    T* to = plane + rows.begin * tap.columns + columns.begin;
    if (rows.begin == rows.end || count == 0) {
      clear(plane, end);
      continue;
    }
    clear(plane, to);
    const T* from = tap.from + c * tap.height * tap.width + first;
    for (int64_t r = rows.begin; r < rows.end; ++r, from += from_step) {
      copy_row(from, tap.column_step, count, to);
      to += count;
      T* const next = r + 1 < rows.end ? to + behind : end;
      clear(to, next);
      to = next;
    }
  }
}

}  // namespace

const TapTable kTaps = {copy_taps<float>, copy_taps<double>};

}  // namespace mithril::cpu::MITHRIL_ISA

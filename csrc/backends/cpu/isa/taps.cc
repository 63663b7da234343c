// What a tap sees of planes, copied by one instruction set.
#include "backends/cpu/taps.h"

#if defined(__AVX2__)
#include "backends/cpu/isa/masked_lanes.h"
#endif

namespace mithril::cpu::MITHRIL_ISA {
namespace {

template <class T>
void copy_steps(const T* from, int64_t step, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
}

#if defined(__AVX2__)

template <class S, class T = typename S::Real>
void copy(const T* from, int64_t count, T* to) {
  int64_t i = 0;
  for (; i + kLanes<S> <= count; i += kLanes<S>) S::store(to + i, S::load(from + i));
  if (i < count) S::store(to + i, S::load(from + i, count - i), count - i);
}

// to[i] = from[2 * i]; nothing is read behind the last one.
template <class S, class T = typename S::Real>
void copy_evens(const T* from, int64_t count, T* to) {
  int64_t i = 0;
  for (; i + kLanes<S> <= count; i += kLanes<S>) {
    const T* at = from + 2 * i;
    S::store(to + i, S::evens(S::load(at), S::load(at + kLanes<S>, kLanes<S> - 1)));
  }
  const int64_t rest = count - i, read = 2 * rest - 1;
  if (rest == 0) return;
  const T* at = from + 2 * i;
  const bool both = read > kLanes<S>;
  const auto low = both ? S::load(at) : S::load(at, read);
  const auto high = both ? S::load(at + kLanes<S>, read - kLanes<S>) : S::zero();
  S::store(to + i, S::evens(low, high), rest);
}

#else

struct F32 {
  using Real = float;
};
struct F64 {
  using Real = double;
};
template <class S, class T = typename S::Real>
void copy(const T* from, int64_t count, T* to) {
  copy_steps(from, 1, count, to);
}
template <class S, class T = typename S::Real>
void copy_evens(const T* from, int64_t count, T* to) {
  copy_steps(from, 2, count, to);
}

#endif

// Results [begin, end) of `count` that lie inside when the first one lies at `start`.
struct Inside {
  Inside(int64_t start, int64_t step, int64_t count, int64_t size) {
    const auto within = [&](int64_t i) { return i < 0 ? 0 : i < count ? i : count; };
    begin = within(start >= 0 ? 0 : (step - 1 - start) / step);
    end = start >= size ? begin : within((size - start + step - 1) / step);
    if (end < begin) end = begin;
  }
  int64_t begin, end;
};

template <class T>
void clear(T* begin, const T* end) {
  while (begin != end) *begin++ = 0;
}

template <class S, class T = typename S::Real>
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
      if (tap.column_step == 1) {
        copy<S>(from, count, to);
      } else if (tap.column_step == 2) {
        copy_evens<S>(from, count, to);
      } else {
        copy_steps(from, tap.column_step, count, to);
      }
      to += count;
      T* const next = r + 1 < rows.end ? to + behind : end;
      clear(to, next);
      to = next;
    }
  }
}

}  // namespace

const TapTable kTaps = {copy_taps<F32>, copy_taps<F64>};

}  // namespace mithril::cpu::MITHRIL_ISA

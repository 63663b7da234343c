// Rows that are copied by steps, and how much of them windows see, for one instruction set.
#pragma once
#include <cstdint>

#if defined(__AVX2__)
#include <type_traits>

#include "backends/cpu/machine/masked_lanes.h"
#endif

namespace mithril::cpu::MITHRIL_ISA {

/// Results [begin, end) of `count` that lie inside when the first one lies at `start`.
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
void copy_steps(const T* from, int64_t step, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
}

#if defined(__AVX2__)

template <class T>
using LanesOf = std::conditional_t<sizeof(T) == sizeof(float), F32, F64>;

template <class T, class S = LanesOf<T>>
void copy(const T* from, int64_t count, T* to) {
  int64_t i = 0;
  for (; i + kLanes<S> <= count; i += kLanes<S>) S::store(to + i, S::load(from + i));
  if (i < count) S::store(to + i, S::load(from + i, count - i), count - i);
}

// to[i] = from[2 * i]; nothing is read behind the last one.
template <class T, class S = LanesOf<T>>
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

#endif

/// to[i] = from[i * step]; nothing behind the last of these is read.
template <class T>
void copy_row(const T* from, int64_t step, int64_t count, T* to) {
#if defined(__AVX2__)
  if (step == 1) return copy(from, count, to);
  if (step == 2) return copy_evens(from, count, to);
#endif
  copy_steps(from, step, count, to);
}

}  // namespace mithril::cpu::MITHRIL_ISA

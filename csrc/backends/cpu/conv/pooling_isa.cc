// Pooling for one instruction set: each tap is taken into a whole row of results, so that lanes lie
// along the row.
#include "core/interrupt.h"
#define REF_STOPS() mithril::core::is_interrupted()
#include <limits>

#include "backends/cpu/conv/copy_row.h"
#include "backends/cpu/conv/pooling.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

struct Maximum {
  template <class T>
  static constexpr T kStart = -std::numeric_limits<T>::infinity();
  // The first of equals stays; NaN wins and stays.
  template <class T>
  static T take(T before, T value) {
    const T larger = value > before ? value : before;  // one after the other, they become vectors
    return value != value ? value : larger;
  }
};
struct Sum {
  template <class T>
  static constexpr T kStart = 0;
  template <class T>
  static T take(T before, T value) {
    return before + value;
  }
};

constexpr int64_t kPiece = 64, kSmallPiece = 16;  // results of a row at a time, whole vectors

constexpr int64_t kSeen = 4 * kPiece;  // elements of a row that a piece of results sees, at most

// Taps of one row for kWide results: x[i * step + tap * dilation]. kStep 0: known at run time.
template <class Op, int64_t kWide, int kStep, class T>
void take_taps(const ref_pool2d_dims& d, const T* x, T* __restrict best) {
  for (int64_t tap = 0; tap < d.kw; ++tap, x += d.dilation_w) {
    for (int64_t i = 0; i < kWide; ++i) {
      best[i] = Op::take(best[i], x[i * (kStep == 0 ? d.stride_w : kStep)]);
    }
  }
}

// The same for `count` results of a row that is seen from `start` on; beside the row stands what
// changes nothing.
template <class Op, int64_t kWide, class T>
void take_row(const ref_pool2d_dims& d, const T* row, int64_t start, int64_t count, T* best) {
  const int64_t step = d.stride_w, size = d.w_in;
  const int64_t seen = (kWide - 1) * step + (d.kw - 1) * d.dilation_w + 1;
  if (seen > kSeen) {
    for (int64_t tap = 0; tap < d.kw; ++tap) {
      const int64_t first = start + tap * d.dilation_w;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = first + i * step;
        if (at >= 0 && at < size) best[i] = Op::take(best[i], row[at]);
      }
    }
    return;
  }
  T near[kSeen];
  const int64_t before = start < 0 ? (-start < seen ? -start : seen) : 0;
  const int64_t end = size - start < before ? before : size - start < seen ? size - start : seen;
  for (int64_t i = 0; i < before; ++i) near[i] = Op::template kStart<T>;
  copy_row(row + start + before, 1, end - before, near + before);
  for (int64_t i = end; i < seen; ++i) near[i] = Op::template kStart<T>;
  if (step == 1) return take_taps<Op, kWide, 1>(d, near, best);
  if (step == 2) return take_taps<Op, kWide, 2>(d, near, best);
  take_taps<Op, kWide, 0>(d, near, best);
}

template <class Op, class T>
void pool_row(const ref_pool2d_dims& d, const T* plane, int64_t oh, T* y) {
  for (int64_t ow = 0; ow < d.w_out; ow += kPiece) {
    const int64_t count = d.w_out - ow < kPiece ? d.w_out - ow : kPiece;
    T best[kPiece];
    for (T& one : best) one = Op::template kStart<T>;
    for (int64_t i = 0; i < d.kh; ++i) {
      const int64_t ih = oh * d.stride_h + i * d.dilation_h - d.pad_top;
      if (ih < 0 || ih >= d.h_in) continue;
      const T* const row = plane + ih * d.w_in;
      const int64_t start = ow * d.stride_w - d.pad_left;
      if (count <= kSmallPiece) {
        take_row<Op, kSmallPiece>(d, row, start, count, best);
      } else {
        take_row<Op, kPiece>(d, row, start, count, best);
      }
    }
    copy_row(best, 1, count, y + ow);
  }
}

template <class T>
void max(const ref_pool2d_dims* d, const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t row = begin * d->h_out; row < end * d->h_out; ++row) {
    if (REF_STOPS_AT(row, d->w_out * d->kh * d->kw)) return;
    pool_row<Maximum>(*d, x + row / d->h_out * d->h_in * d->w_in, row % d->h_out,
                      y + row * d->w_out);
  }
}

template <class T>
void average(const ref_pool2d_dims* d, const T* x, T* y, int64_t begin, int64_t end) {
  const T divisor = static_cast<T>(d->kh * d->kw);
  for (int64_t row = begin * d->h_out; row < end * d->h_out; ++row) {
    if (REF_STOPS_AT(row, d->w_out * d->kh * d->kw)) return;
    T* out = y + row * d->w_out;
    pool_row<Sum>(*d, x + row / d->h_out * d->h_in * d->w_in, row % d->h_out, out);
    for (int64_t ow = 0; ow < d->w_out; ++ow) out[ow] /= divisor;
  }
}

// Maxima of a piece so far, and where they are in their windows: elements behind the window's first
// one.
template <class T>
struct Maxima {
  T value[kPiece];
  int32_t at[kPiece];  // -1: no tap yet
};

template <class T>
void take_maxima(const T* __restrict x, int64_t first, int64_t last, int32_t at, Maxima<T>& best) {
  for (int64_t i = first; i < last; ++i) {
    const T value = x[i - first], before = best.value[i];
    const bool better =
        (value > before) | ((value != value) & (before == before)) | (best.at[i] < 0);
    best.value[i] = better ? value : before;
    best.at[i] = better ? at : best.at[i];
  }
}

// Of `count` results of row `oh`, from column `ow` on.
template <class T>
void find_maxima(const ref_pool2d_dims& d, const T* plane, int64_t oh, int64_t ow, int64_t count,
                 Maxima<T>& best) {
  for (int64_t i = 0; i < count; ++i) best.value[i] = 0, best.at[i] = -1;
  for (int64_t i = 0; i < d.kh; ++i) {
    const int64_t ih = oh * d.stride_h + i * d.dilation_h - d.pad_top;
    if (ih < 0 || ih >= d.h_in) continue;
    for (int64_t j = 0; j < d.kw; ++j) {
      const int64_t start = ow * d.stride_w + j * d.dilation_w - d.pad_left;
      const auto [first, last] = Inside(start, d.stride_w, count, d.w_in);
      const T* x = plane + ih * d.w_in + start + first * d.stride_w;
      const auto at = static_cast<int32_t>(i * d.dilation_h * d.w_in + j * d.dilation_w);
      if (first >= last) continue;
      if (d.stride_w == 1) {
        take_maxima(x, first, last, at, best);
        continue;
      }
      T near[kPiece];
      copy_row(x, d.stride_w, last - first, near);
      take_maxima(near, first, last, at, best);
    }
  }
}

template <class T>
void max_gradient(const ref_pool2d_dims* d, const T* x, const T* dy, T* dx, int64_t begin,
                  int64_t end) {
  const int64_t size = d->h_in * d->w_in;
  for (int64_t i = begin * size; i < end * size; ++i) dx[i] = 0;
  Maxima<T> best;
  for (int64_t row = begin * d->h_out; row < end * d->h_out; ++row) {
    if (REF_STOPS_AT(row, d->w_out * d->kh * d->kw)) return;
    const int64_t plane = row / d->h_out * size, oh = row % d->h_out;
    for (int64_t ow = 0; ow < d->w_out; ow += kPiece) {
      const int64_t count = d->w_out - ow < kPiece ? d->w_out - ow : kPiece;
      find_maxima(*d, x + plane, oh, ow, count, best);
      const int64_t top = oh * d->stride_h - d->pad_top, left = ow * d->stride_w - d->pad_left;
      for (int64_t i = 0; i < count; ++i) {
        if (best.at[i] < 0) continue;
        dx[plane + top * d->w_in + left + i * d->stride_w + best.at[i]] +=
            dy[row * d->w_out + ow + i];
      }
    }
  }
}

}  // namespace

const PoolTable kPools = {{max<float>, average<float>, max_gradient<float>},
                          {max<double>, average<double>, max_gradient<double>}};

}  // namespace mithril::cpu::MITHRIL_ISA

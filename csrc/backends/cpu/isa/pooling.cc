// Pooling for one instruction set: each tap is taken into a whole row of results, so that lanes lie
// along the row.
#include "backends/cpu/pooling.h"

#include <limits>

namespace mithril::cpu::MITHRIL_ISA {
namespace {

struct Maximum {
  template <class T>
  static constexpr T kStart = -std::numeric_limits<T>::infinity();
  // The first of equals stays; NaN wins and stays.
  template <class T>
  static T take(T before, T value) {
    return (value > before) | (value != value) ? value : before;
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

// kStep 0: known at run time only.
template <class Op, int kStep, class T>
void take_row(const T* __restrict x, int64_t step, int64_t count, T* __restrict y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Op::take(y[i], x[i * (kStep == 0 ? step : kStep)]);
}

// One tap for the results under which it is no padding.
template <class Op, class T>
void take_tap(const T* row, int64_t start, int64_t size, int64_t step, int64_t count, T* y) {
  const int64_t first = start >= 0 ? 0 : (step - 1 - start) / step;
  int64_t last = start >= size ? 0 : (size - start + step - 1) / step;
  if (last > count) last = count;
  if (first >= last) return;
  const T* x = row + start + first * step;
  if (step == 1) return take_row<Op, 1>(x, step, last - first, y + first);
  if (step == 2) return take_row<Op, 2>(x, step, last - first, y + first);
  take_row<Op, 0>(x, step, last - first, y + first);
}

template <class Op, class T>
void pool_row(const ref_pool2d_dims& d, const T* plane, int64_t oh, T* y) {
  for (int64_t ow = 0; ow < d.w_out; ++ow) y[ow] = Op::template kStart<T>;
  for (int64_t i = 0; i < d.kh; ++i) {
    const int64_t ih = oh * d.stride_h + i * d.dilation_h - d.pad_top;
    if (ih < 0 || ih >= d.h_in) continue;
    for (int64_t j = 0; j < d.kw; ++j) {
      take_tap<Op>(plane + ih * d.w_in, j * d.dilation_w - d.pad_left, d.w_in, d.stride_w, d.w_out,
                   y);
    }
  }
}

template <class T>
void max(const ref_pool2d_dims* d, const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t row = begin * d->h_out; row < end * d->h_out; ++row) {
    pool_row<Maximum>(*d, x + row / d->h_out * d->h_in * d->w_in, row % d->h_out,
                      y + row * d->w_out);
  }
}

template <class T>
void average(const ref_pool2d_dims* d, const T* x, T* y, int64_t begin, int64_t end) {
  const T divisor = static_cast<T>(d->kh * d->kw);
  for (int64_t row = begin * d->h_out; row < end * d->h_out; ++row) {
    T* out = y + row * d->w_out;
    pool_row<Sum>(*d, x + row / d->h_out * d->h_in * d->w_in, row % d->h_out, out);
    for (int64_t ow = 0; ow < d->w_out; ++ow) out[ow] /= divisor;
  }
}

}  // namespace

const PoolTable kPools = {{max<float>, average<float>}, {max<double>, average<double>}};

}  // namespace mithril::cpu::MITHRIL_ISA

// What attention does with scores, on one instruction set: exponentials by the engine's own
// formula, with one query per lane, or one key per lane where there are few queries.
#include "backends/cpu/attention/attention_tile.h"

#if defined(__AVX2__)
#include <limits>

#include "backends/cpu/machine/lanes.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

namespace math = tile::math;

template <class V>
using Real = typename V::T;
template <class T>
constexpr T kNever = -std::numeric_limits<T>::infinity();

// The largest score so far as it is subtracted: where no key has been seen, weights must be 0, not
// NaN, because keys may follow. A NaN is no largest score; its weight is NaN, and so is the sum.
template <class V>
MITHRIL_TILE_INLINE V shift_of(V largest) {
  return select(largest == V(kNever<Real<V>>), V(0), largest);
}

// ---------------------------------------------------------------- a query per lane

// Rows that lie far apart are no stream that a processor sees by itself: it is told of them, also
// of those beyond the end, which does no harm. Those that are pages apart share one set of the
// first cache, where only so many can wait.
template <class T>
MITHRIL_TILE_INLINE int64_t rows_ahead(int64_t step) {
  return step * int64_t{sizeof(T)} % 2048 == 0 ? 6 : 12;
}

template <class V>
MITHRIL_TILE_INLINE void ask_for(const Real<V>* row, int64_t count) {
  constexpr int64_t line = 64 / sizeof(Real<V>);
  for (int64_t i = 0; i < count; i += line) __builtin_prefetch(row + i);
}

template <class V>
MITHRIL_TILE_INLINE V largest_of(const Real<V>* scores, int64_t keys, int64_t step, V so_far) {
  V a = so_far, b = so_far, c = so_far, d = so_far;
  int64_t k = 0;
  for (; k + 4 <= keys; k += 4, scores += 4 * step) {
    a = at_least(a, V::load(scores));
    b = at_least(b, V::load(scores + step));
    c = at_least(c, V::load(scores + 2 * step));
    d = at_least(d, V::load(scores + 3 * step));
  }
  for (; k < keys; ++k, scores += step) a = at_least(a, V::load(scores));
  return at_least(at_least(a, b), at_least(c, d));
}

// Below, e^x is no normal number: it becomes 0, because such numbers cost a processor far more.
template <class T>
constexpr T kLowest = sizeof(T) == sizeof(float) ? T(-87) : T(-708);

// e^x, x <= 0 or NaN: the engine's exp where that is a normal number.
template <class V>
MITHRIL_TILE_INLINE V weight_of(V x) {
  const V lowest(kLowest<Real<V>>);
  const math::Reduced<V> e = math::exp_reduce(at_least(x, lowest));
  const V small = math::exp_small_rounded(e.r, e.low);
#if defined(__AVX512F__)
  return select(x < lowest, V(0), scale(small, e.n));
#else
  return select(x < lowest, V(0), small * math::power_of_two(e.n));
#endif
}

template <class V>
MITHRIL_TILE_INLINE V weigh(Real<V>* score, V shift) {
  const V weight = weight_of(V::load(score) - shift);
  weight.store(score);
  return weight;
}

// Four keys at a time hide the latency of an exponential.
template <class V>
MITHRIL_TILE_INLINE V weigh_all(Real<V>* scores, int64_t keys, int64_t step, V shift) {
  V a(0), b(0), c(0), d(0);
  int64_t k = 0;
  for (; k + 4 <= keys; k += 4, scores += 4 * step) {
    a = a + weigh(scores, shift);
    b = b + weigh(scores + step, shift);
    c = c + weigh(scores + 2 * step, shift);
    d = d + weigh(scores + 3 * step, shift);
  }
  for (; k < keys; ++k, scores += step) a = a + weigh(scores, shift);
  return (a + b) + (c + d);
}

template <class V>
void weigh_columns(const ScoreColumns<Real<V>>& b) {
  for (int64_t at = 0; at < b.width; at += V::width) {
    const V before = V::load(b.largest + at);
    const V largest = largest_of(b.scores + at, b.keys, b.width, before);
    const V shift = shift_of(largest);
    const V rescale = weight_of(before - shift);
    const V sum = weigh_all(b.scores + at, b.keys, b.width, shift);
    fma(V::load(b.sum + at), rescale, sum).store(b.sum + at);
    largest.store(b.largest + at);
    rescale.store(b.rescale + at);
  }
}

template <class V>
void hide_columns(const ScoreColumns<Real<V>>& b, int64_t first, const Real<V>* visible) {
  for (int64_t k = first; k < b.keys; ++k) {
    const V key(static_cast<Real<V>>(k));
    for (int64_t at = 0; at < b.width; at += V::width) {
      Real<V>* const score = b.scores + k * b.width + at;
      select(key < V::load(visible + at), V::load(score), V(kNever<Real<V>>)).store(score);
    }
  }
}

template <class V>
void add_columns(const ScoreColumns<Real<V>>& b, const Real<V>* bias) {
  for (int64_t i = 0; i < b.keys * b.width; i += V::width) {
    (V::load(b.scores + i) + V::load(bias + i)).store(b.scores + i);
  }
}

template <class V>
void mask_columns(const ScoreColumns<Real<V>>& b, const Real<V>* bias) {
  const V never(kNever<Real<V>>);
  for (int64_t i = 0; i < b.keys * b.width; i += V::width) {
    select(V::load(bias + i) == never, never, V::load(b.scores + i)).store(b.scores + i);
  }
}

template <class V>
MITHRIL_TILE_INLINE void find_slope(Real<V>* score, Real<V>* slope, V logsumexp, V mean) {
  const V weight = weight_of(V::load(score) - logsumexp);
  weight.store(score);
  (weight * (V::load(slope) - mean)).store(slope);
}

template <class V>
void slope_columns(const SlopeColumns<Real<V>>& b) {
  for (int64_t at = 0; at < b.width; at += V::width) {
    const V logsumexp = V::load(b.logsumexp + at), mean = V::load(b.mean + at);
    Real<V>*score = b.scores + at, *slope = b.slopes + at;
    int64_t k = 0;
    for (; k + 4 <= b.keys; k += 4, score += 4 * b.width, slope += 4 * b.width) {
      find_slope(score, slope, logsumexp, mean);
      find_slope(score + b.width, slope + b.width, logsumexp, mean);
      find_slope(score + 2 * b.width, slope + 2 * b.width, logsumexp, mean);
      find_slope(score + 3 * b.width, slope + 3 * b.width, logsumexp, mean);
    }
    for (; k < b.keys; ++k, score += b.width, slope += b.width) {
      find_slope(score, slope, logsumexp, mean);
    }
  }
}

template <class V>
void log_sums(const Real<V>* largest, const Real<V>* sum, Real<V>* out, int64_t width) {
  for (int64_t at = 0; at < width; at += V::width) {
    (V::load(largest + at) + math::log(V::load(sum + at))).store(out + at);
  }
}

// ---------------------------------------------------------------- a key per lane

// Sizes known to the compiler become vector operations.
template <int count, class T, class F>
MITHRIL_TILE_INLINE T folded(T* lane, F f) {
  for (int l = 0; l < count / 2; ++l) lane[l] = f(lane[l], lane[l + count / 2]);
  if constexpr (count > 2) return folded<count / 2>(lane, f);
  return lane[0];
}

template <class V, class F>
MITHRIL_TILE_INLINE Real<V> fold(V x, F f) {
  alignas(64) Real<V> lane[V::width];
  x.store(lane);
  return folded<V::width>(lane, f);
}

// The last keys, and -inf behind them, as a vector.
template <class T>
MITHRIL_TILE_INLINE void copy_tail(T* tail, int width, const T* scores, int64_t keys) {
  for (int l = 0; l < width; ++l) tail[l] = l < keys ? scores[l] : kNever<T>;
}

template <class V>
void weigh_row(ScoreRow<Real<V>>& b) {
  using T = Real<V>;
  constexpr int width = V::width;
  const int64_t whole = b.keys / width * width;
  alignas(64) T tail[width];
  copy_tail(tail, width, b.scores + whole, b.keys - whole);
  V most = largest_of(b.scores, whole / width, width, V(b.largest));
  most = at_least(most, V::load(tail));
  const V before(b.largest);
  b.largest = fold(most, [](T x, T y) { return y > x ? y : x; });
  const V shift = shift_of(V(b.largest));
  const V weights = weigh_all(b.scores, whole / width, width, shift) + weigh(tail, shift);
  for (int64_t k = whole; k < b.keys; ++k) b.scores[k] = tail[k - whole];
  alignas(64) T factor[width];
  weight_of(before - shift).store(factor);
  b.rescale = factor[0];
  b.sum = b.sum * b.rescale + fold(weights, [](T x, T y) { return x + y; });
}

template <class V>
MITHRIL_TILE_INLINE Real<V> dot_one(const Real<V>* a, const Real<V>* b, int64_t depth) {
  using T = Real<V>;
  constexpr int width = V::width;
  V even(0), odd(0);
  int64_t d = 0;
  for (; d + 2 * width <= depth; d += 2 * width) {
    even = fma(V::load(a + d), V::load(b + d), even);
    odd = fma(V::load(a + d + width), V::load(b + d + width), odd);
  }
  for (; d + width <= depth; d += width) even = fma(V::load(a + d), V::load(b + d), even);
  T sum = fold(even + odd, [](T x, T y) { return x + y; });
  for (; d < depth; ++d) sum += a[d] * b[d];
  return sum;
}

template <class V>
void dot(const Real<V>* query, const Real<V>* keys, int64_t key_step, int64_t depth, int64_t count,
         Real<V>* out) {
  const int64_t ahead = rows_ahead<Real<V>>(key_step) * key_step;
  for (int64_t k = 0; k < count; ++k, keys += key_step) {
    ask_for<V>(keys + ahead, depth);
    out[k] = dot_one<V>(query, keys, depth);
  }
}

template <class V>
void multiply(Real<V>* out, Real<V> factor, int64_t count) {
  int64_t i = 0;
  for (; i + V::width <= count; i += V::width) (V::load(out + i) * V(factor)).store(out + i);
  for (; i < count; ++i) out[i] *= factor;
}

template <class V>
void accumulate(Real<V>* out, const Real<V>* part, Real<V> factor, int64_t count) {
  int64_t i = 0;
  for (; i + V::width <= count; i += V::width) {
    fma(V::load(out + i), V(factor), V::load(part + i)).store(out + i);
  }
  for (; i < count; ++i) out[i] = out[i] * factor + part[i];
}

// Columns of four vectors: their sums hide the latency of an addition.
template <class V>
MITHRIL_TILE_INLINE void mix_four(const ValueRows<Real<V>>& b, int64_t at) {
  constexpr int width = V::width;
  Real<V>* const out = b.out + at;
  const V factor(b.rescale);
  V sum0 = V::load(out) * factor, sum1 = V::load(out + width) * factor;
  V sum2 = V::load(out + 2 * width) * factor, sum3 = V::load(out + 3 * width) * factor;
  const int64_t ahead = rows_ahead<Real<V>>(b.step) * b.step;
  const Real<V>* value = b.values + at;
  for (int64_t k = 0; k < b.keys; ++k, value += b.step) {
    ask_for<V>(value + ahead, 4 * width);
    const V weight(b.weights[k]);
    sum0 = fma(weight, V::load(value), sum0);
    sum1 = fma(weight, V::load(value + width), sum1);
    sum2 = fma(weight, V::load(value + 2 * width), sum2);
    sum3 = fma(weight, V::load(value + 3 * width), sum3);
  }
  sum0.store(out);
  sum1.store(out + width);
  sum2.store(out + 2 * width);
  sum3.store(out + 3 * width);
}

template <class V>
MITHRIL_TILE_INLINE void mix_one(const ValueRows<Real<V>>& b, int64_t at) {
  V sum = V::load(b.out + at) * V(b.rescale);
  const Real<V>* value = b.values + at;
  for (int64_t k = 0; k < b.keys; ++k, value += b.step) {
    sum = fma(V(b.weights[k]), V::load(value), sum);
  }
  sum.store(b.out + at);
}

template <class V>
void mix(const ValueRows<Real<V>>& b) {
  constexpr int width = V::width;
  int64_t at = 0;
  for (; at + 4 * width <= b.width; at += 4 * width) mix_four<V>(b, at);
  for (; at + width <= b.width; at += width) mix_one<V>(b, at);
  for (; at < b.width; ++at) {
    Real<V> sum = b.out[at] * b.rescale;
    for (int64_t k = 0; k < b.keys; ++k) sum += b.weights[k] * b.values[k * b.step + at];
    b.out[at] = sum;
  }
}

template <class V>
constexpr AttentionParts<Real<V>> kParts = {V::width,       weigh_columns<V>, hide_columns<V>,
                                            add_columns<V>, mask_columns<V>,  slope_columns<V>,
                                            log_sums<V>,    multiply<V>,      accumulate<V>,
                                            weigh_row<V>,   dot<V>,           mix<V>};

}  // namespace

const AttentionTable kAttention = {kParts<FloatLane>, kParts<DoubleLane>};

}  // namespace mithril::cpu::MITHRIL_ISA

#endif

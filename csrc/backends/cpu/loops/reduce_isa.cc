// Reductions and scans over elements that lie side by side (a row) or at strides (many rows).
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "backends/cpu/loops/isa_parts.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

using core::DType;
using tile::Opcode;
using tile::Order;

template <class T>
using Wrapping = std::conditional_t<std::is_floating_point_v<T>, T,
                                    std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
  template <class V>
  static void join(V& a, const V& b) {
    a += b;
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
  template <class V>
  static void join(V& a, const V& b) {
    a *= b;
  }
};
// As the instructions max and min: NaN stays, equal numbers differ at most in the sign of a zero.
template <class T>
using Pattern = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
inline Pattern<T> pattern(T x) {
  Pattern<T> bits;
  std::memcpy(&bits, &x, sizeof x);
  return bits;
}
template <class T>
inline T from_pattern(Pattern<T> bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
struct Largest {
  template <class T>
  static T apply(T a, T b) {
    T r = a > b ? a : b;
    if constexpr (std::is_floating_point_v<T>) {
      const T both = from_pattern<T>(pattern(a) & pattern(b));
      r = a == b ? both : r;
      r = a != a ? a : r;
    }
    return r;
  }
};
struct Smallest {
  template <class T>
  static T apply(T a, T b) {
    T r = a < b ? a : b;
    if constexpr (std::is_floating_point_v<T>) {
      const T both = from_pattern<T>(pattern(a) | pattern(b));
      r = a == b ? both : r;
      r = a != a ? a : r;
    }
    return r;
  }
};
struct Any {
  static uint8_t apply(uint8_t a, uint8_t b) { return a | b; }
};
struct All {
  static uint8_t apply(uint8_t a, uint8_t b) { return a & b; }
};

constexpr int64_t kWidth = tile::kLanesWidth;

// Less than one lane each: the missing ones are skipped.
template <class Op, class T>
T reduce_short(const T* x, int64_t n) {
  T lane[kWidth];
  for (int64_t l = 0; l < n; ++l) lane[l] = x[l];
  for (int64_t s = kWidth / 2; s > 0; s /= 2) {
    for (int64_t l = 0; l < s && l + s < n; ++l) lane[l] = Op::apply(lane[l], lane[l + s]);
  }
  return lane[0];
}

template <class Op, class T>
inline void join(T* lane, const T* at) {
  for (int64_t l = 0; l < kWidth; ++l) lane[l] = Op::apply(lane[l], at[l]);
}

// Lane l of a row takes lane l + s, for rows of 2 * s lanes; rows stand side by side.
template <class Op, int64_t s, class T>
inline void fold_once(T* lanes, int64_t rows) {
  for (int64_t at = 0; at < rows * s; at += kWidth) {
    T lower[kWidth], upper[kWidth];
    for (int64_t l = 0; l < kWidth; ++l) {
      lower[l] = lanes[2 * at + l / s * 2 * s + l % s];
      upper[l] = lanes[2 * at + l / s * 2 * s + l % s + s];
    }
    for (int64_t l = 0; l < kWidth; ++l) lanes[at + l] = Op::apply(lower[l], upper[l]);
  }
}

// Lane l takes lane l + 8, then l + 4, l + 2, l + 1: of up to kWidth rows at once, as a single one
// waits for each of its steps. The results stand in front.
template <class Op, class T>
inline void fold_rows(T* lanes, int64_t rows) {
  static_assert(kWidth == 16);
  fold_once<Op, 8>(lanes, rows);
  fold_once<Op, 4>(lanes, rows);
  fold_once<Op, 2>(lanes, rows);
  fold_once<Op, 1>(lanes, rows);
}

// Rows of values of which Take leaves kWidth lanes each; it may take several at once.
template <class Op, class Take, class T>
void reduce_many(T* y, const T* values, int64_t rows, int64_t n) {
  T lanes[kWidth * kWidth] = {};
  for (int64_t row = 0; row < rows; row += kWidth) {
    const int64_t count = rows - row < kWidth ? rows - row : kWidth;
    int64_t k = 0;
    for (; k + Take::kRows <= count; k += Take::kRows, values += Take::kRows * n) {
      Take::template take<Take::kRows>(values, n, lanes + k * kWidth);
    }
    for (; k < count; ++k, values += n) Take::template take<1>(values, n, lanes + k * kWidth);
    fold_rows<Op>(lanes, count);
    std::memcpy(y + row, lanes, static_cast<size_t>(count) * sizeof(T));
  }
}

// Overflow of integers wraps.
template <class T, bool = std::is_floating_point_v<T>>
struct Element {
  using Type = T;
};
template <class T>
struct Element<T, false> {
  using Type = std::make_unsigned_t<T>;
};

// At least kWidth values a row, each joined with the kWidth-th before it, for which it waits:
// several rows in step, in registers.
template <class Op>
struct InOrder {
  static constexpr int64_t kRows = 4;
  template <int64_t rows, class T>
  static void take(const T* x, int64_t n, T* out) {
    constexpr int64_t bytes = sizeof(T) < 4 ? kWidth * sizeof(T) : 64;
    constexpr int64_t size = bytes / sizeof(T), parts = kWidth / size;
    using Vector [[gnu::vector_size(bytes)]] = typename Element<T>::Type;
    Vector lane[rows * parts];
    const auto at = [&](int64_t r, int64_t k) { return x + k / parts * n + r + k % parts * size; };
    for (int64_t k = 0; k < rows * parts; ++k) std::memcpy(&lane[k], at(0, k), sizeof lane[k]);
    int64_t r = kWidth;
    for (; r + kWidth <= n; r += kWidth) {
      for (int64_t k = 0; k < rows * parts; ++k) {
        Vector y;
        std::memcpy(&y, at(r, k), sizeof y);
        Op::join(lane[k], y);
      }
    }
    std::memcpy(out, lane, sizeof lane);
    for (int64_t row = 0; row < rows; ++row) {
      const T* const rest = x + row * n + r;
      T* const lanes = out + row * kWidth;
      for (int64_t l = 0; r + l < n; ++l) lanes[l] = Op::apply(lanes[l], rest[l]);
    }
  }
};

// sum = left + sum; what rounding takes from it (TwoSum, exact) joins the rests.
template <class T>
inline void join_blocks(T left, T left_rest, T& sum, T& rest) {
  const T whole = left + sum, taken = whole - left;
  rest = (left_rest + rest) + ((left - (whole - taken)) + (sum - taken));
  sum = whole;
}

// Of infinities and NaN the rest is NaN; a zero keeps its sign.
template <class T>
inline T settled(T sum, T rest) {
  return rest != 0 && rest == rest ? sum + rest : sum;
}

// Blocks of 64, then neighbours pairwise.
template <class Op, class T>
T reduce_rows(const T* x, int64_t n, T& left_over) {
  constexpr bool kKeepsRest = std::is_same_v<Op, Sum> && std::is_floating_point_v<T>;
  T block[tile::kLanesBlock / tile::kRowsBlock];
  T rest[tile::kLanesBlock / tile::kRowsBlock] = {};
  int64_t blocks = 0;
  for (int64_t at = 0; at < n; at += tile::kRowsBlock) {
    const int64_t end = at + tile::kRowsBlock < n ? at + tile::kRowsBlock : n;
    T sum = x[at];
    for (int64_t r = at + 1; r < end; ++r) sum = Op::apply(sum, x[r]);
    block[blocks++] = sum;
  }
  while (blocks > 1) {
    const int64_t pairs = blocks / 2;
    for (int64_t k = 0; k < pairs; ++k) {
      T sum = block[2 * k + 1], more = rest[2 * k + 1];
      if constexpr (kKeepsRest) {
        join_blocks(block[2 * k], rest[2 * k], sum, more);
      } else {
        sum = Op::apply(block[2 * k], sum);
      }
      block[k] = sum, rest[k] = more;
    }
    if (blocks % 2 == 1) block[pairs] = block[blocks - 1], rest[pairs] = rest[blocks - 1];
    blocks = (blocks + 1) / 2;
  }
  left_over = rest[0];
  return block[0];
}

template <class Op, class T>
void row_reduce(void* out, void* rest, const void* x, int64_t rows, int64_t n, Order order) {
  auto* y = static_cast<T*>(out);
  auto* rests = static_cast<T*>(rest);
  const auto* values = static_cast<const T*>(x);
  if (order == Order::kRows) {
    for (int64_t row = 0; row < rows; ++row, values += n) {
      T left_over{};
      y[row] = reduce_rows<Op>(values, n, left_over);
      if (rests != nullptr) {
        rests[row] = left_over;
      } else if constexpr (std::is_floating_point_v<T>) {
        y[row] = settled(y[row], left_over);
      }
    }
    return;
  }
  if (rests != nullptr) std::memset(rests, 0, static_cast<size_t>(rows) * sizeof(T));
  if (n >= kWidth) return reduce_many<Op, InOrder<Op>>(y, values, rows, n);
  for (int64_t row = 0; row < rows; ++row, values += n) y[row] = reduce_short<Op>(values, n);
}

template <class T>
void join_sums(const void* left, const void* left_rest, void* sum, void* rest, int64_t n) {
  const auto *a = static_cast<const T*>(left), *a_rest = static_cast<const T*>(left_rest);
  auto *b = static_cast<T*>(sum), *b_rest = static_cast<T*>(rest);
  for (int64_t i = 0; i < n; ++i) join_blocks(a[i], a_rest[i], b[i], b_rest[i]);
}

template <class T>
void settle_sums(void* sum, const void* rest, int64_t n) {
  auto* y = static_cast<T*>(sum);
  const auto* rests = static_cast<const T*>(rest);
  for (int64_t i = 0; i < n; ++i) y[i] = settled(y[i], rests[i]);
}

// At least count * kWidth values. Order does not matter, so the last vectors may overlap those
// before: every element may count twice. Several hide the latency of compare and blend.
template <class Op, int64_t count>
struct AnyOrder {
  static constexpr int64_t kRows = 1;
  template <int64_t rows, class T>
  static void take(const T* x, int64_t n, T* out) {
    constexpr int64_t width = count * kWidth;
    T lane[count][kWidth];
    std::memcpy(lane, x, sizeof lane);
    int64_t r = width;
    for (; r + width <= n; r += width) join_all(lane, x + r);
    if (r < n) join_all(lane, x + n - width);
    for (int64_t s = count / 2; s > 0; s /= 2) {
      for (int64_t k = 0; k < s; ++k) join<Op>(lane[k], lane[k + s]);
    }
    std::memcpy(out, lane, kWidth * sizeof(T));
  }

 private:
  template <class T>
  static void join_all(T (*lane)[kWidth], const T* x) {
    for (int64_t k = 0; k < count; ++k) join<Op>(lane[k], x + k * kWidth);
  }
};

#if defined(__AVX512F__)
// Of vrangeps: the larger or the smaller one, signs as compared.
template <class Op>
constexpr int kRange = std::is_same_v<Op, Largest> ? 0b0101 : 0b0100;

inline __m512 load(const float* x) { return _mm512_loadu_ps(x); }
inline __m512d load(const double* x) { return _mm512_loadu_pd(x); }

template <int which>
inline __m512 range(__m512 a, __m512 b) {
  return _mm512_range_ps(a, b, which);
}
template <int which>
inline __m512d range(__m512d a, __m512d b) {
  return _mm512_range_pd(a, b, which);
}

// Those of the lanes in which both are numbers.
inline __mmask16 numbers(__mmask16 of, __m512 a, __m512 b) {
  return _mm512_mask_cmp_ps_mask(of, a, b, _CMP_ORD_Q);
}
inline __mmask8 numbers(__mmask8 of, __m512d a, __m512d b) {
  return _mm512_mask_cmp_pd_mask(of, a, b, _CMP_ORD_Q);
}

inline void store_or_nan(float* to, __mmask16 numbers, __m512 x) {
  const __m512 nan = _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN());
  _mm512_storeu_ps(to, _mm512_mask_blend_ps(numbers, nan, x));
}
inline void store_or_nan(double* to, __mmask8 numbers, __m512d x) {
  const __m512d nan = _mm512_set1_pd(std::numeric_limits<double>::quiet_NaN());
  _mm512_storeu_pd(to, _mm512_mask_blend_pd(numbers, nan, x));
}

/// As AnyOrder, of floats: one instruction for the larger number, and for every other vector one
/// that notes NaNs, which are put in at the end.
template <class Op, int64_t count>
struct AnyNumbers {
  static constexpr int64_t kRows = 1;
  template <int64_t rows, class T>
  static void take(const T* x, int64_t n, T* out) {
    using Vector = decltype(load(x));
    using Mask = std::conditional_t<sizeof(T) == 8, __mmask8, __mmask16>;
    constexpr int64_t size = 64 / sizeof(T), vectors = count * kWidth / size;
    constexpr int64_t parts = kWidth / size;  // vectors of kWidth lanes
    constexpr int64_t masks = count > 1 ? vectors / 2 : vectors;
    Vector lane[vectors];
    Mask are_numbers[masks];
    for (int64_t v = 0; v < vectors; ++v) lane[v] = load(x + v * size);
    for (int64_t v = 0; v < masks; ++v) {
      are_numbers[v] = numbers(static_cast<Mask>(-1), lane[v], lane[v + vectors - masks]);
    }
    const auto join_all = [&](const T* at) {
      Vector y[vectors];
      for (int64_t v = 0; v < vectors; ++v) y[v] = load(at + v * size);
      for (int64_t v = 0; v < vectors; ++v) lane[v] = range<kRange<Op>>(lane[v], y[v]);
      for (int64_t v = 0; v < masks; ++v) {
        are_numbers[v] = numbers(are_numbers[v], y[v], y[v + vectors - masks]);
      }
    };
    int64_t r = vectors * size;
    for (; r + vectors * size <= n; r += vectors * size) join_all(x + r);
    if (r < n) join_all(x + n - vectors * size);
    for (int64_t v = parts; v < vectors; ++v) {
      lane[v % parts] = range<kRange<Op>>(lane[v % parts], lane[v]);
    }
    for (int64_t v = parts; v < masks; ++v) are_numbers[v % parts] &= are_numbers[v];
    for (int64_t v = 0; v < parts; ++v) store_or_nan(out + v * size, are_numbers[v], lane[v]);
  }
};
template <class Op, class T, int64_t count>
using Extreme =
    std::conditional_t<std::is_floating_point_v<T>, AnyNumbers<Op, count>, AnyOrder<Op, count>>;
#else
template <class Op, class T, int64_t count>
using Extreme = AnyOrder<Op, count>;
#endif

template <class Op, class T>
void row_extreme(void* out, void*, const void* x, int64_t rows, int64_t n, Order) {
  auto* y = static_cast<T*>(out);
  const auto* values = static_cast<const T*>(x);
  if (n >= 4 * kWidth) return reduce_many<Op, Extreme<Op, T, 4>>(y, values, rows, n);
  if (n >= kWidth) return reduce_many<Op, Extreme<Op, T, 1>>(y, values, rows, n);
  for (int64_t row = 0; row < rows; ++row, values += n) y[row] = reduce_short<Op>(values, n);
}

template <class T, bool largest>
void extreme(const ExtremeArgs& args) {
  auto* values = static_cast<T*>(args.values);
  const auto* x = static_cast<const T*>(args.x);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* at = x + row * args.row_stride;
    if (args.r0 == 0) {
      values[row] = *at;
      args.indices[row] = 0;
    }
    T best = values[row];
    int64_t index = args.indices[row];
    for (int64_t r = 0; r < args.count; ++r, at += args.r_stride) {
      const T v = *at;
      const bool better = (largest ? v > best : v < best) || (v != v && best == best);
      index = better ? args.r0 + r : index;
      best = better ? v : best;
    }
    values[row] = best;
    args.indices[row] = index;
  }
}

// A running sum, as the type that it is kept in: of float32 in float64, rounded at each place.
template <class T>
struct Running {
  std::conditional_t<std::is_same_v<T, float>, double, T> sum;

  void begin(T x) { sum = x; }
  T add(T x) {
    sum = Sum::apply(sum, static_cast<decltype(sum)>(x));
    return static_cast<T>(sum);
  }
};

// A sum of float64 keeps what rounding took so far beside it.
template <>
struct Running<double> {
  double sum, rest;

  void begin(double x) { sum = x, rest = 0; }
  double add(double x) {
    const double whole = sum + x, taken = whole - sum;
    rest += (sum - (whole - taken)) + (x - taken);
    sum = whole;
    return settled(whole, rest);
  }
};

template <class T>
void scan(const ScanArgs& args) {
  auto* out = static_cast<T*>(args.out);
  auto* carry = static_cast<Running<T>*>(args.carry);
  const auto* x = static_cast<const T*>(args.x);
  for (int64_t row = 0; row < args.rows; ++row) {
    int64_t at = row * args.row_stride, r = 0;
    Running<T> running = carry[row];
    if (args.r0 == 0 && args.count > 0) {
      running.begin(x[at]);
      out[at] = x[at];
      at += args.r_stride;
      ++r;
    }
    for (; r < args.count; ++r, at += args.r_stride) out[at] = running.add(x[at]);
    carry[row] = running;
  }
}

template <class T>
RowReduceFn find_number(Opcode opcode) {
  switch (opcode) {
    case Opcode::kReduceSum: return row_reduce<Sum, T>;
    case Opcode::kReduceProd: return row_reduce<Prod, T>;
    case Opcode::kReduceMax: return row_extreme<Largest, T>;
    case Opcode::kReduceMin: return row_extreme<Smallest, T>;
    default: return nullptr;
  }
}

template <class T>
ExtremeFn extreme_of(Opcode opcode) {
  return opcode == Opcode::kReduceArgMax ? extreme<T, true> : extreme<T, false>;
}

}  // namespace

RowReduceFn find_row_reduce(Opcode opcode, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return opcode == Opcode::kReduceAny ? row_extreme<Any, uint8_t> : row_extreme<All, uint8_t>;
    case DType::kUInt8: return find_number<uint8_t>(opcode);
    case DType::kInt8: return find_number<int8_t>(opcode);
    case DType::kInt16: return find_number<int16_t>(opcode);
    case DType::kInt32: return find_number<int32_t>(opcode);
    case DType::kInt64: return find_number<int64_t>(opcode);
    case DType::kFloat32: return find_number<float>(opcode);
    case DType::kFloat64: return find_number<double>(opcode);
    default: return nullptr;
  }
}

BlockSums find_block_sums(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return {join_sums<float>, settle_sums<float>};
    case DType::kFloat64: return {join_sums<double>, settle_sums<double>};
    default: return {};
  }
}

ExtremeFn find_extreme(Opcode opcode, DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return extreme_of<uint8_t>(opcode);
    case DType::kInt8: return extreme_of<int8_t>(opcode);
    case DType::kInt16: return extreme_of<int16_t>(opcode);
    case DType::kInt32: return extreme_of<int32_t>(opcode);
    case DType::kInt64: return extreme_of<int64_t>(opcode);
    case DType::kFloat32: return extreme_of<float>(opcode);
    case DType::kFloat64: return extreme_of<double>(opcode);
    default: return nullptr;
  }
}

ScanFn find_scan(DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return scan<uint8_t>;
    case DType::kInt8: return scan<int8_t>;
    case DType::kInt16: return scan<int16_t>;
    case DType::kInt32: return scan<int32_t>;
    case DType::kInt64: return scan<int64_t>;
    case DType::kFloat32: return scan<float>;
    case DType::kFloat64: return scan<double>;
    default: return nullptr;
  }
}

}  // namespace mithril::cpu::MITHRIL_ISA

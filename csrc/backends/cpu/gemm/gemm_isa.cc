// For the matrix product on one instruction set: packing of operands, and micro-kernels for where
// machine code cannot be made at run time.
#include "backends/cpu/gemm/gemm_tile.h"

#if defined(__AVX2__)
#include <utility>

#include "backends/cpu/machine/masked_lanes.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

// ---------------------------------------------------------------- packing

constexpr int kPartBytes = 16;  // of a vector, within which lanes are cheap to exchange

// Exchanges, in blocks of `half` lanes, the upper half of a with the lower half of b.
template <int half, class Vec, size_t... lane>
void exchange(Vec& a, Vec& b, std::index_sequence<lane...>) {
  constexpr int kCount = sizeof...(lane);
  const Vec low = __builtin_shufflevector(
      a, b,
      ((static_cast<int>(lane) & half) == 0 ? static_cast<int>(lane)
                                            : kCount + static_cast<int>(lane) - half)...);
  b = __builtin_shufflevector(
      a, b,
      ((static_cast<int>(lane) & half) == 0 ? static_cast<int>(lane) + half
                                            : kCount + static_cast<int>(lane))...);
  a = low;
}

// A square of vectors, in place, or, with a smaller `half`, each square on its diagonals.
template <int half, class Vec, size_t kCount>
void transpose(Vec (&rows)[kCount]) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kCount; ++i) {
    if ((i & half) == 0) {
      exchange<half>(rows[i], rows[i + half], std::make_index_sequence<kCount>{});
    }
  }
  if constexpr (half > 1) transpose<half / 2>(rows);
}

// A square of `lanes` rows, `deep` of each, with its columns in the vectors; zeros beside them.
template <class S, class T>
void load_turned(typename S::Vec (&square)[kLanes<S>], const T* from, int64_t step, int64_t lanes,
                 int64_t deep) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes<S>; ++i) {
    if (i >= lanes) {
      square[i] = S::zero();
    } else if (deep == kLanes<S>) {
      square[i] = S::load(from + i * step);
    } else {
      square[i] = S::load(from + i * step, deep);
    }
  }
  transpose<kLanes<S> / 2>(square);
}

// Parts of some rows as one vector.
template <class S, class T, size_t kParts>
typename S::Vec load_parts(const T* const (&rows)[kParts], int64_t at) {
  const auto part = [&](size_t i) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(rows[i] + at));
  };
#if defined(__AVX512F__)
  __m512 out = _mm512_castps128_ps512(part(0));
  out = _mm512_insertf32x4(out, part(1), 1);
  out = _mm512_insertf32x4(out, part(2), 2);
  out = _mm512_insertf32x4(out, part(3), 3);
#else
  const __m256 out = _mm256_insertf128_ps(_mm256_castps128_ps256(part(0)), part(1), 1);
#endif
  return reinterpret_cast<typename S::Vec>(out);
}

// A square with whole rows is loaded by parts, which spares half of the exchanges, and stored in
// whole vectors. Apart, so that its addresses are not kept for all squares.
template <class S, class T>
[[gnu::noinline]] void turn_square(const T* from, int64_t step, int64_t lanes, T* to,
                                   int64_t to_step) {
  constexpr int64_t kPart = kPartBytes / sizeof(T), kParts = kLanes<S> / kPart;
  alignas(64) static constexpr T kZeros[kLanes<S>] = {};
  typename S::Vec square[kLanes<S>];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kPart; ++i) {
    const T* rows[kParts];
#pragma GCC unroll 4
    for (int64_t part = 0; part < kParts; ++part) {
      const int64_t row = part * kPart + i;
      rows[part] = row < lanes ? from + row * step : kZeros;
    }
#pragma GCC unroll 4
    for (int64_t part = 0; part < kParts; ++part) {
      square[part * kPart + i] = load_parts<S>(rows, part * kPart);
    }
  }
  transpose<kPart / 2>(square);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes<S>; ++i, to += to_step) S::store(to, square[i]);
}

// Not std::clamp: what these objects define is the baseline's or their own.
int64_t at_most(int64_t left, int64_t most) { return left < 0 ? 0 : left < most ? left : most; }

// Asks for a line of each of so many rows.
template <int64_t rows, class T>
void fetch(const T* at, int64_t step) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(at + i * step, 0, 2);
}

// Lanes that are rows in memory: squares are transposed. Where what is packed is dense, whole
// vectors are stored as long as what they write behind their lanes is written again.
template <class S, class T = typename S::Real>
void pack_across(const GemmPack<T>& x) {
  constexpr int64_t kSide = kLanes<S>;
  const bool dense = x.to_step == x.width && x.width <= kSide;
  for (int64_t lane = 0; lane < x.width; lane += kSide) {
    const int64_t wide = at_most(x.width - lane, kSide);
    const int64_t given = at_most(x.lanes - lane, kSide);
    for (int64_t p = 0; p < x.depth; p += kSide) {
      const int64_t deep = at_most(x.depth - p, kSide);
      const T* from = x.from + lane * x.lane_step + p;
      T* to = x.to + p * x.to_step + lane;
      if (x.ahead != 0) fetch<kSide>(from + x.ahead, x.lane_step);
      if (x.to_ahead != 0) fetch<kSide>(to + x.to_ahead, x.to_step);
      if (deep == kSide && (wide == kSide || (dense && (x.depth - p - kSide) * wide >= kSide))) {
        turn_square<S>(from, x.lane_step, given, to, x.to_step);
        continue;
      }
      typename S::Vec square[kSide];
      load_turned<S>(square, from, x.lane_step, given, deep);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i) {
        if (i >= deep) break;
        S::store(to + i * x.to_step, square[i], wide);
      }
    }
  }
}

// Lanes that are neighbours in memory. What is packed densely is moved in whole vectors as long as
// what they write behind their lanes is written again, and what they read there is still given.
template <class S, class T = typename S::Real>
void pack_along(const GemmPack<T>& x) {
  const bool dense = x.to_step == x.width && x.lanes == x.width && x.width <= kLanes<S>;
  const int64_t whole = dense && x.depth_step >= x.width ? x.depth - 1 - kLanes<S> / x.width : 0;
  int64_t p = 0;
  for (; p < whole; ++p) {
    const T* const from = x.from + p * x.depth_step;
    if (x.ahead != 0) fetch<1>(from + x.ahead, 0);
    S::store(x.to + p * x.to_step, S::load(from));
  }
  for (; p < x.depth; ++p) {
    const T* from = x.from + p * x.depth_step;
    T* to = x.to + p * x.to_step;
    for (int64_t lane = 0; lane < x.width; lane += kLanes<S>) {
      const int64_t wide = at_most(x.width - lane, kLanes<S>);
      const int64_t given = at_most(x.lanes - lane, kLanes<S>);
      if (wide == kLanes<S> && given == wide) {
        S::store(to + lane, S::load(from + lane));
      } else {
        S::store(to + lane, S::load(from + lane, given), wide);
      }
    }
  }
}

template <class S, class T = typename S::Real>
void pack(const GemmPack<T>& x) {
  if (x.lane_step == 1) return pack_along<S>(x);
  if (x.depth_step == 1) return pack_across<S>(x);
  for (int64_t p = 0; p < x.depth; ++p) {
    T* to = x.to + p * x.to_step;
    for (int64_t l = 0; l < x.lanes; ++l) to[l] = x.from[l * x.lane_step + p * x.depth_step];
    for (int64_t l = x.lanes; l < x.width; ++l) to[l] = 0;
  }
}

// ---------------------------------------------------------------- micro-kernels

template <class T>
T* after(T* at, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(at) + bytes);
}
template <class T>
const T* after(const T* at, int64_t bytes) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(at) + bytes);
}

template <class S, int kRows, int kWide, bool kMasked>
void finish_tile(const GemmTile& t, const typename S::Vec (&sum)[kRows][kWide]) {
  using T = typename S::Real;
  auto* at = static_cast<T*>(t.c);
  const auto* before = static_cast<const T*>(t.sum);
  for (int r = 0; r < kRows; ++r, at = after(at, t.c_step), before = after(before, t.sum_step)) {
    for (int v = 0; v < kWide; ++v) {
      T* const c = at + v * kLanes<S>;
      const T* const old = before + v * kLanes<S>;
      if (!kMasked || v + 1 < kWide) {
        S::store(c, t.sum == nullptr ? sum[r][v] : S::add(S::load(old), sum[r][v]));
      } else {
        const int64_t n = t.last_columns;
        S::store(c, t.sum == nullptr ? sum[r][v] : S::add(S::load(old, n), sum[r][v]), n);
      }
    }
  }
}

// A by rows: every third row has a pointer of its own, the others are reached by scaled indices.
template <class S, int kRows, int kWide, bool kByRows, bool kMasked>
void run_tile(const GemmTile* tile) {
  using T = typename S::Real;
  const GemmTile& t = *tile;
  typename S::Vec sum[kRows][kWide];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) sum[r][v] = S::zero();
  }
  constexpr int kGroups = kByRows ? (kRows + 2) / 3 : 1;
  const T* a[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) a[g] = after(static_cast<const T*>(t.a), 3 * g * t.a_step);
  const T* b = static_cast<const T*>(t.b);
  for (int64_t p = 0; p < t.depth; ++p) {
    typename S::Vec right[kWide];
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) right[v] = S::load(b + v * kLanes<S>);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const T* at = kByRows ? after(a[r / 3], (r % 3) * t.a_step) : a[0] + r;
      const typename S::Vec left = S::spread(at);
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) sum[r][v] = S::fma(left, right[v], sum[r][v]);
    }
    b = after(b, t.b_step);
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) a[g] = kByRows ? a[g] + 1 : after(a[g], t.a_step);
  }
  finish_tile<S, kRows, kWide, kMasked>(t, sum);
}

template <class S, int kRows>
void run_turned(const GemmTile* tile) {
  using T = typename S::Real;
  constexpr int64_t kSide = kLanes<S>;
  const GemmTile& t = *tile;
  typename S::Vec sum[kRows][1];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r][0] = S::zero();
  const T* a = static_cast<const T*>(t.a);
  const T* b = static_cast<const T*>(t.b);
  const T* next = static_cast<const T*>(t.next);
  const int64_t b_step = t.b_step / static_cast<int64_t>(sizeof(T));
  const int64_t next_step = t.next_step / static_cast<int64_t>(sizeof(T));
  for (int64_t p = 0; p < t.depth; p += kSide) {
    const int64_t deep = at_most(t.depth - p, kSide);
    if (t.next_step != 0) fetch<kSide>(next + p, next_step);
    typename S::Vec square[kSide];
    load_turned<S>(square, b + p, b_step, t.last_columns, deep);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSide; ++i) {
      if (i >= deep) break;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const typename S::Vec left = S::spread(after(a + p + i, r * t.a_step));
        sum[r][0] = S::fma(left, square[i], sum[r][0]);
      }
    }
  }
  if (t.last_columns == kSide) {
    finish_tile<S, kRows, 1, false>(t, sum);
  } else {
    finish_tile<S, kRows, 1, true>(t, sum);
  }
}

template <class S>
GemmTileFn turned(int rows) {
  static constexpr GemmTileFn kTable[kMostTurnedRows] = {run_turned<S, 1>, run_turned<S, 2>,
                                                         run_turned<S, 3>, run_turned<S, 4>};
  return kTable[rows - 1];
}

#if defined(__AVX512F__)
constexpr Isa kIsa = Isa::kAvx512;
#else
constexpr Isa kIsa = Isa::kAvx2;
#endif
constexpr int kMostRows = gemm_most_rows(kIsa, 2);

template <class S, int kWide, bool kByRows, bool kMasked, size_t... kIndex>
GemmTileFn tile_of(int rows, std::index_sequence<kIndex...>) {
  static constexpr GemmTileFn kTable[] = {
      run_tile<S, static_cast<int>(kIndex) + 1, kWide, kByRows, kMasked>...};
  return kTable[rows - 1];
}

template <class S, int kWide, bool kByRows>
GemmTileFn tile_of(const GemmTileSpec& spec) {
  const auto heights = std::make_index_sequence<kMostRows>{};
  return spec.masked ? tile_of<S, kWide, kByRows, true>(spec.rows, heights)
                     : tile_of<S, kWide, kByRows, false>(spec.rows, heights);
}

template <class S>
GemmTileFn tile(const GemmTileSpec& spec) {
  if (spec.vectors == 1)
    return spec.by_rows ? tile_of<S, 1, true>(spec) : tile_of<S, 1, false>(spec);
  return spec.by_rows ? tile_of<S, 2, true>(spec) : tile_of<S, 2, false>(spec);
}

}  // namespace

const GemmFallback kGemm = {{pack<F32>, tile<F32>, turned<F32>},
                            {pack<F64>, tile<F64>, turned<F64>}};

}  // namespace mithril::cpu::MITHRIL_ISA

#endif

// The matrix product for one instruction set. Each element of C is a sum in canonical order: the
// loops over rows and columns may be cut anywhere, the one over k at multiples of 256 only.
#include "backends/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/cpu/reference.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mithril::cpu::MITHRIL_ISA {
namespace {

#if defined(__AVX2__)

#if defined(__AVX512F__)
struct F32 {
  using Real = float;
  using Vec = __m512;
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec load(const float* at) { return _mm512_loadu_ps(at); }
  static Vec spread(const float* at) { return _mm512_set1_ps(*at); }
  static void store(float* at, Vec v) { _mm512_storeu_ps(at, v); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
};
struct F64 {
  using Real = double;
  using Vec = __m512d;
  static Vec zero() { return _mm512_setzero_pd(); }
  static Vec load(const double* at) { return _mm512_loadu_pd(at); }
  static Vec spread(const double* at) { return _mm512_set1_pd(*at); }
  static void store(double* at, Vec v) { _mm512_storeu_pd(at, v); }
  static Vec add(Vec a, Vec b) { return _mm512_add_pd(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_pd(a, b, c); }
};
constexpr int kMostRows = 14;  // 28 accumulators, 2 for B, 1 for A of 32 registers
#else
struct F32 {
  using Real = float;
  using Vec = __m256;
  static Vec zero() { return _mm256_setzero_ps(); }
  static Vec load(const float* at) { return _mm256_loadu_ps(at); }
  static Vec spread(const float* at) { return _mm256_set1_ps(*at); }
  static void store(float* at, Vec v) { _mm256_storeu_ps(at, v); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
};
struct F64 {
  using Real = double;
  using Vec = __m256d;
  static Vec zero() { return _mm256_setzero_pd(); }
  static Vec load(const double* at) { return _mm256_loadu_pd(at); }
  static Vec spread(const double* at) { return _mm256_set1_pd(*at); }
  static void store(double* at, Vec v) { _mm256_storeu_pd(at, v); }
  static Vec add(Vec a, Vec b) { return _mm256_add_pd(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_pd(a, b, c); }
};
constexpr int kMostRows = 6;  // 12 accumulators, 2 for B, 1 for A of 16 registers
#endif

constexpr int64_t kBlock = REF_BLOCK;
constexpr int kVectors = 2;  // of a panel's width
template <class S>
constexpr int kLanes = static_cast<int>(sizeof(typename S::Vec) / sizeof(typename S::Real));
template <class S>
constexpr int kPanel = kVectors* kLanes<S>;

/// One tile: `rows` x `cols` of C, one block of k deep.
template <class T>
struct Tile {
  int64_t depth;
  const T* a;
  int64_t a_step;  // from row to row when A is read by rows, else from k to k
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
  int64_t cols;
  bool first;  // store, else add
};

template <class S, int kRows, int kWide>
void finish_tile(const Tile<typename S::Real>& t, typename S::Vec (&sum)[kRows][kWide]) {
  using T = typename S::Real;
  if (t.cols == kWide * kLanes<S>) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWide; ++v) {
        T* at = t.c + r * t.c_row + v * kLanes<S>;
        S::store(at, t.first ? sum[r][v] : S::add(S::load(at), sum[r][v]));
      }
    }
    return;
  }
  alignas(64) T row[kWide * kLanes<S>];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kWide; ++v) S::store(row + v * kLanes<S>, sum[r][v]);
    T* at = t.c + r * t.c_row;
    for (int64_t j = 0; j < t.cols; ++j) at[j] = t.first ? row[j] : at[j] + row[j];
  }
}

// A by rows: every third row has a pointer of its own, the others are reached by scaled indices.
template <class S, int kRows, int kWide, bool kByRows>
void run_tile(const Tile<typename S::Real>& t) {
  using T = typename S::Real;
  typename S::Vec sum[kRows][kWide];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) sum[r][v] = S::zero();
  }
  constexpr int kGroups = kByRows ? (kRows + 2) / 3 : 1;
  const T* a[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) a[g] = t.a + 3 * g * t.a_step;
  const T* b = t.b;
  for (int64_t p = 0; p < t.depth; ++p) {
    typename S::Vec right[kWide];
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) right[v] = S::load(b + v * kLanes<S>);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const T* at = kByRows ? a[r / 3] + (r % 3) * t.a_step : a[0] + r;
      const typename S::Vec left = S::spread(at);
#pragma GCC unroll 2
      for (int v = 0; v < kWide; ++v) sum[r][v] = S::fma(left, right[v], sum[r][v]);
    }
    b += t.b_row;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) a[g] += kByRows ? 1 : t.a_step;
  }
  finish_tile<S, kRows, kWide>(t, sum);
}

template <class T>
using TileFn = void (*)(const Tile<T>&);

template <class S, int kWide, bool kByRows, size_t... kIndex>
constexpr auto tile_table(std::index_sequence<kIndex...>) {
  return std::array{
      TileFn<typename S::Real>{run_tile<S, static_cast<int>(kIndex) + 1, kWide, kByRows>}...};
}

template <class S>
TileFn<typename S::Real> tile_function(int64_t rows, int64_t cols, bool by_rows) {
  using Heights = std::make_index_sequence<kMostRows>;
  static constexpr auto kNarrowRows = tile_table<S, 1, true>(Heights{});
  static constexpr auto kNarrowCols = tile_table<S, 1, false>(Heights{});
  static constexpr auto kWideRows = tile_table<S, 2, true>(Heights{});
  static constexpr auto kWideCols = tile_table<S, 2, false>(Heights{});
  const bool narrow = cols <= kLanes<S>;
  const auto& table =
      narrow ? (by_rows ? kNarrowRows : kNarrowCols) : (by_rows ? kWideRows : kWideCols);
  return table[static_cast<size_t>(rows - 1)];
}

/// panel[p][j] = B[p, j] for `cols` columns, zeros beyond them.
template <class S, class T = typename S::Real>
void pack_panel(const T* b, int64_t b_row, int64_t b_col, int64_t depth, int64_t cols, T* panel) {
  for (int64_t p = 0; p < depth; ++p) {
    const T* from = b + p * b_row;
    T* to = panel + p * kPanel<S>;
    if (b_col == 1 && cols == kPanel<S>) {
      for (int v = 0; v < kVectors; ++v)
        S::store(to + v * kLanes<S>, S::load(from + v * kLanes<S>));
      continue;
    }
    for (int64_t j = 0; j < cols; ++j) to[j] = from[j * b_col];
    for (int64_t j = cols; j < kPanel<S>; ++j) to[j] = 0;
  }
}

/// How `total` rows are cut: as few tiles as can be, of two heights that differ by one.
struct Heights {
  explicit Heights(int64_t total)
      : count((total + kMostRows - 1) / kMostRows),
        small(count == 0 ? 0 : total / count),
        taller(count == 0 ? 0 : total % count) {}
  int64_t height(int64_t index) const { return small + (index < taller ? 1 : 0); }
  int64_t start(int64_t index) const { return index * small + std::min(index, taller); }
  int64_t count, small, taller;
};

template <class S>
struct Product {
  using T = typename S::Real;
  // Rows of A that are packed at once: with a panel of B they stay in the second cache.
  static constexpr int64_t kGroup = (256 << 10) / (kBlock * sizeof(T)) / kMostRows * kMostRows;

  const GemmDims& d;
  const T* a;
  const T* b;
  T* c;
  const GemmRange& range;
  const Epilogue<T>& epilogue;
  T* panel;
  T* strips;
  bool pack_a = false;
  bool pack_b = false;

  void run() {
    const int64_t rows = range.row_end - range.row_begin, cols = range.col_end - range.col_begin;
    const bool page_strides = d.a_row * static_cast<int64_t>(sizeof(T)) % 2048 == 0;
    pack_a = (d.a_col != 1 && d.a_row != 1) ||
             (cols >= 4 * kPanel<S> && (d.a_col != 1 || page_strides || cols >= 512));
    const auto b_bytes = static_cast<double>(d.k) * static_cast<double>(cols) * sizeof(T);
    pack_b = d.b_col != 1 || (rows > 2 * kMostRows && b_bytes > 200e3);
    for (int64_t p = 0; p == 0 || p < d.k; p += kBlock) {
      for (int64_t row = range.row_begin; row < range.row_end; row += kGroup) {
        run_group(p, std::min(kBlock, d.k - p), row, std::min(kGroup, range.row_end - row));
      }
    }
  }

  void run_group(int64_t p, int64_t depth, int64_t row, int64_t rows) {
    const Heights heights(rows);
    if (pack_a) pack_strips(p, depth, row, heights);
    for (int64_t col = range.col_begin; col < range.col_end; col += kPanel<S>) {
      const int64_t cols = std::min<int64_t>(kPanel<S>, range.col_end - col);
      run_panel(p, depth, row, heights, col, cols);
      if (p + depth == d.k && epilogue.run != nullptr) {
        epilogue.run(epilogue.args, c + row * d.c_row + col, d.c_row, rows, cols, row, col);
      }
    }
  }

  void run_panel(int64_t p, int64_t depth, int64_t row, const Heights& heights, int64_t col,
                 int64_t cols) {
    Tile<T> tile{};
    tile.depth = depth;
    tile.b = b + p * d.b_row + col * d.b_col;
    tile.b_row = d.b_row;
    // A whole vector is read even where a part is used, so only a whole one is read in place.
    if (pack_b || cols % kLanes<S> != 0) {
      pack_panel<S>(tile.b, d.b_row, d.b_col, depth, cols, panel);
      tile.b = panel;
      tile.b_row = kPanel<S>;
    }
    tile.c_row = d.c_row;
    tile.cols = cols;
    tile.first = p == 0;
    const bool by_rows = !pack_a && d.a_col == 1;
    for (int64_t i = 0; i < heights.count; ++i) {
      const int64_t start = heights.start(i), height = heights.height(i);
      tile.a = pack_a ? strips + start * kBlock : a + (row + start) * d.a_row + p * d.a_col;
      tile.a_step = pack_a ? height : by_rows ? d.a_row : d.a_col;
      tile.c = c + (row + start) * d.c_row + col;
      tile_function<S>(height, cols, by_rows)(tile);
    }
  }

  void pack_strips(int64_t p, int64_t depth, int64_t row, const Heights& heights) {
    for (int64_t i = 0; i < heights.count; ++i) {
      const int64_t start = heights.start(i), height = heights.height(i);
      const T* from = a + (row + start) * d.a_row + p * d.a_col;
      T* to = strips + start * kBlock;
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t q = 0; q < depth; ++q) to[q * height + r] = from[r * d.a_row + q * d.a_col];
      }
    }
  }
};

template <class S, class T = typename S::Real>
void gemm(const GemmDims& dims, const T* a, const T* b, T* c, const GemmRange& range,
          const Epilogue<T>& epilogue, void* scratch) {
  T* panel = static_cast<T*>(scratch);
  static_assert(kBlock * kPanel<S> * sizeof(T) <= (32 << 10));
  T* strips = panel + (32 << 10) / sizeof(T);
  Product<S>{dims, a, b, c, range, epilogue, panel, strips}.run();
}

#else

// Without fused multiply-add in hardware nothing is gained by blocking: the reference runs.
template <class T>
void gemm_by_reference(const GemmDims& dims, const T* a, const T* b, T* c, const GemmRange& range,
                       const Epilogue<T>& epilogue, void*) {
  ref_matmul_dims d{};
  d.m = range.row_end - range.row_begin;
  d.n = range.col_end - range.col_begin;
  d.k = dims.k;
  d.a_row = dims.a_row, d.a_col = dims.a_col;
  d.b_row = dims.b_row, d.b_col = dims.b_col;
  d.c_row = dims.c_row, d.c_col = 1;
  const T* left = a + range.row_begin * dims.a_row;
  const T* right = b + range.col_begin * dims.b_col;
  T* out = c + range.row_begin * dims.c_row + range.col_begin;
  if constexpr (sizeof(T) == sizeof(float)) {
    kReference.f32.matmul(&d, left, right, out, 0, d.m);
  } else {
    kReference.f64.matmul(&d, left, right, out, 0, d.m);
  }
  if (epilogue.run == nullptr || d.m <= 0 || d.n <= 0) return;
  epilogue.run(epilogue.args, out, dims.c_row, d.m, d.n, range.row_begin, range.col_begin);
}

#endif

}  // namespace

#if defined(__AVX2__)
const GemmKernels kGemm = {gemm<F32>, gemm<F64>};
#else
const GemmKernels kGemm = {gemm_by_reference<float>, gemm_by_reference<double>};
#endif

}  // namespace mithril::cpu::MITHRIL_ISA

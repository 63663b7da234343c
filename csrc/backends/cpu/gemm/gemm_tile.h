// What the loop nest of the matrix product and its micro-kernels agree on. Micro-kernels are
// machine code made at run time (jit/gemm_emitter.h) or, where that cannot be, functions of
// gemm_isa.cc.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/machine/cpuid.h"

namespace mithril::cpu {

/// One call of a micro-kernel: a tile of C, at most one block of k deep. Steps are in bytes.
/// Emitted code reads the fields by their offsets.
struct GemmTile {
  int64_t depth;  // steps of k; none gives zeros
  const void* a;
  int64_t a_step;  // to the next row of A when it is read by rows, else to the next k
  const void* b;
  int64_t b_step;
  void* c;
  int64_t c_step;
  int64_t last_columns;  // that C has under the last vector; read by masked kernels only
  const void* sum;       // of the blocks before, laid out as C, which may be C; null: there is none
  int64_t sum_step;
  void* packed;       // where packing kernels put what they read of B, row after row
  const void* next;   // what to bring to the second cache: some rows of B in each turn
  int64_t next_step;  // 0 where nothing is wanted
};
using GemmTileFn = void (*)(const GemmTile*);

/// Tells which micro-kernel. Extents and strides are arguments, so there are few: no more than
/// 2 sets x 2 types x 8 variants x 80 shapes x 5 ways to ask, whatever products a process runs.
struct GemmTileSpec {
  Isa isa = Isa::kGeneric;
  bool is_double = false;
  int rows = 0;
  int vectors = 0;       // columns of the tile, in vectors
  bool by_rows = false;  // A lies in rows, k is contiguous; else a column of the tile is contiguous
  bool packs = false;    // B is stored to `packed` as it is read
  bool masked = false;   // neither B nor C has all columns of the last vector
  int prefetches = 1;    // for how many rows of the next block of B, in each turn

  auto operator<=>(const GemmTileSpec&) const = default;
};

inline int gemm_lanes(Isa isa, size_t element_bytes) {
  return (isa == Isa::kAvx512 ? 64 : 32) / static_cast<int>(element_bytes);
}

/// The tallest tile of so many vectors whose sums, with B and an element of A, fit the registers.
constexpr int gemm_most_rows(Isa isa, int vectors) {
  const int sums = isa == Isa::kAvx512 ? 28 : 12;
  return vectors <= 2 ? sums / vectors : (sums - vectors + 2) / vectors;
}

/// Steps of k in one turn of a micro-kernel's loop, a power of two. Tall tiles ask for the next
/// block of B once in so many.
constexpr int gemm_unroll(int rows, int vectors) {
  const int each = rows * vectors;
  return each >= 10 && each < 20 ? 4 : 8;
}

/// Transposes or copies a part of a matrix: to[p * to_step + l] = from[l * lane_step + p *
/// depth_step] for `lanes` lanes, zeros from there to `width`. Steps in elements. Rows of a matrix
/// are many short streams, which CPUs do not run ahead of: what lies so many elements further on is
/// asked for early, to be read and to be written.
template <class T>
struct GemmPack {
  const T* from;
  int64_t lane_step, depth_step;
  int64_t lanes, depth;
  T* to;
  int64_t to_step, width;
  int64_t ahead = 0, to_ahead = 0;
};

/// Lists what gemm_isa.cc has for one type: packing, and micro-kernels of at most two vectors that
/// neither pack nor mask B.
template <class T>
struct GemmParts {
  void (*pack)(const GemmPack<T>&);
  GemmTileFn (*tile)(const GemmTileSpec&);
  /// For so many rows of A (at most kMostTurnedRows), read by rows, and one vector of columns of B
  /// that lie along k: squares of them are transposed in registers. `b_step` and `next_step` are
  /// the way to the next column, and `last_columns` says how many there are.
  GemmTileFn (*turned)(int rows);
};
inline constexpr int kMostTurnedRows = 4;

struct GemmFallback {
  GemmParts<float> f32;
  GemmParts<double> f64;
};

#if defined(__x86_64__)
namespace avx2 {
extern const GemmFallback kGemm;
}
namespace avx512 {
extern const GemmFallback kGemm;
}
#endif

/// Null where there are no vectors.
template <class T>
const GemmParts<T>* gemm_parts(Isa isa) {
  const GemmFallback* found = nullptr;
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) found = &avx2::kGemm;
  if (isa == Isa::kAvx512) found = &avx512::kGemm;
#endif
  if (found == nullptr) return nullptr;
  if constexpr (sizeof(T) == sizeof(float)) {
    return &found->f32;
  } else {
    return &found->f64;
  }
}

}  // namespace mithril::cpu

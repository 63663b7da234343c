// Our own matrix product: register-blocked, packed, in canonical order (equal to ref_matmul to the
// last bit), with an epilogue on finished blocks.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/gemm/gemm_tile.h"
#include "backends/cpu/machine/cpuid.h"

namespace mithril::cpu {

/// Carries what an epilogue and its maker agree on; opaque here.
struct EpiArgs;

/// Called for blocks of finished results while they are in the first cache, once for each element
/// of C: bias, activation, residual. `tile` lies in C itself, with leading dimension `ldt`; row0
/// and col0 say where.
template <class T>
struct Epilogue {
  void (*run)(const EpiArgs*, T* tile, int64_t ldt, int64_t rows, int64_t cols, int64_t row0,
              int64_t col0) = nullptr;
  const EpiArgs* args = nullptr;
};

/// C[m, n] = A[m, k] B[k, n]. Strides in elements, any sign for A and B; C's columns are dense.
struct GemmDims {
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row;
};

/// The part of C that one call computes.
struct GemmRange {
  int64_t row_begin, row_end, col_begin, col_end;
};

/// Tells how C is cut into units for threads: blocks of rows, then of columns, in row-major order.
struct GemmTiling {
  int64_t rows = 1, cols = 1;            // of a unit
  int64_t row_units = 0, col_units = 0;  // how many
  int64_t units() const { return row_units * col_units; }
  GemmRange range(const GemmDims& dims, int64_t unit) const;
};

/// Units large enough to pay for being handed out, at least `threads` of them where the product
/// is large enough.
GemmTiling tile_gemm(const GemmDims& dims, int threads);

/// Says where micro-kernels come from.
enum class GemmSource : uint8_t {
  kEmitted,   // made at run time where that is possible
  kCompiled,  // always those of gemm_isa.cc
};

/// Tells which operand is weights that many runs read, so that Gemm::pack_constant packs them once;
/// what else there is lies by the strides of the dims.
enum class GemmConstant : uint8_t { kNone, kLeft, kRight };

struct GemmOptions {
  int threads = 1;  // at most so many
  GemmSource source = GemmSource::kEmitted;
  GemmConstant constant = GemmConstant::kNone;
  bool may_add = false;  // runs may add to C
};

/// A product of given sizes and strides, ready to run. Order class: canonical, for every
/// instruction set, source, unit and thread count; kGeneric runs the reference kernel.
template <class T>
class Gemm {
 public:
  /// Micro-kernels that the process has not yet are emitted here, 10-20 us each; running emits
  /// nothing.
  Gemm(Isa isa, const GemmDims& dims, const GemmOptions& options = {});

  /// Parts of C that may be computed at the same time, in any order.
  int64_t units() const { return tiling_.units(); }
  /// Counts the bytes that `run` wants of each thread, 64-byte aligned; not cleared.
  size_t scratch_bytes() const { return a_bytes_ + b_bytes_ + c_bytes_; }
  bool is_emitted() const { return emitted_; }
  /// Elements of the packed constant; 0 where there is none, or it is read as given nonetheless,
  /// for nothing would be gained.
  int64_t packed_size() const;
  /// Packs the constant, which lies by the strides of the dims, for any number of runs.
  void pack_constant(const T* constant, T* packed) const;
  /// For makers of a packed right operand: where the vector of columns from `col` on stands in row
  /// 0 (`col` is a multiple of the lanes), and how far it is to the next row. Columns behind the
  /// last one are 0.
  struct PackedPlace {
    int64_t first, step;
  };
  PackedPlace packed_place(int64_t col) const;

  void run(int64_t unit, const T* a, const T* b, T* c, const Epilogue<T>& epilogue,
           void* scratch) const {
    run_unit(unit, a, b, c, epilogue, scratch, false);
  }
  /// All units.
  void run(const T* a, const T* b, T* c, void* scratch, const Epilogue<T>& epilogue = {}) const {
    for (int64_t unit = 0; unit < units(); ++unit) run(unit, a, b, c, epilogue, scratch);
  }
  /// All units of the next block of a longer sum, at most 256 of k (GemmOptions::may_add): C + AB.
  void add(const T* a, const T* b, T* c, void* scratch) const {
    for (int64_t unit = 0; unit < units(); ++unit) run_unit(unit, a, b, c, {}, scratch, true);
  }

 private:
  // What becomes of B: the first tile of a panel that reads it also packs it for the others, or a
  // panel is packed before it is read, or all of them were before the run, one after the other.
  enum class Right : uint8_t { kInPlace, kPackedByTile, kPackedBefore, kPackedOnce };

  // How the rows of a unit are cut: as few tiles as can be, of two heights that differ by one.
  struct Rows {
    int64_t tiles = 0, low = 0, taller = 0;  // the first `taller` tiles have low + 1 rows
    int64_t group = 0;                       // tiles whose A stays in the second cache
    GemmTileFn tile[2][2][2] = {};           // packs, last panel of C, tall
    int64_t height(int64_t index) const { return low + (index < taller ? 1 : 0); }
    int64_t start(int64_t index) const { return index * low + std::min(index, taller); }
  };

  class Run;

  void run_unit(int64_t unit, const T* a, const T* b, T* c, const Epilogue<T>& epilogue,
                void* scratch, bool adds) const;

  bool choose(bool emitted);
  void choose_packing();
  bool find_tiles();
  int vectors_of_tile() const;
  int prefetches(const Rows& rows, int64_t height, int vectors) const;
  GemmTileSpec spec(const Rows& rows, int64_t height, bool packs, bool last_panel) const;
  void choose_passes();

  bool swaps_;      // the transposed product is computed
  bool is_packed_;  // B, before the run
  bool turns_c_;    // and its tiles are transposed when they are finished
  GemmDims dims_;
  bool turns_b_;  // B is read in place, and squares of it are transposed in registers
  GemmTiling tiling_;
  Isa isa_;
  const GemmParts<T>* parts_ = nullptr;  // none: the reference runs
  bool emitted_ = false;
  int lanes_ = 0;
  int vectors_ = 0, last_vectors_ = 0;  // of a tile, and of one in the last panel of C
  int64_t last_columns_ = 0;            // that C has in its last panel
  int64_t width_ = 0;                   // of a panel: the columns of a tile
  int64_t pass_depth_ = 0;              // of k, for which A is packed and C is visited
  int64_t block_cols_ = 0;              // for which B is packed
  bool packs_a_ = false;
  bool keeps_b_ = false;  // packed B is read by several groups of rows
  // Rows of C that fall on one set of the first cache are summed elsewhere until a pass ends.
  bool keeps_sums_ = false;
  Right right_ = Right::kInPlace;
  Rows rows_[2];  // of all units but the last along the rows, and of that
  size_t a_bytes_ = 0, b_bytes_ = 0, c_bytes_ = 0;
};

extern template class Gemm<float>;
extern template class Gemm<double>;

}  // namespace mithril::cpu

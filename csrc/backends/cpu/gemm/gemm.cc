#include "backends/cpu/gemm/gemm.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/cpu/gemm/gemm_cache.h"
#include "backends/cpu/reference/reference.h"
#include "core/interrupt.h"
#include "core/rounding.h"

namespace mithril::cpu {

namespace {

constexpr int64_t kBlock = REF_BLOCK;
constexpr int64_t kFewestRows = 84;                   // of a unit: tiles enough to share packed B
constexpr int64_t kColStep = 128;                     // of a unit: whole panels
constexpr double kSmallestUnit = 2.0 * 64 * 64 * 64;  // flops; about 2 us
// Packed A of one group of rows, with B streaming past, stays in a second cache of 1 MB and more.
constexpr int64_t kGroupBytes = 640 << 10;
constexpr int64_t kGroupRows = 64;       // at least: B is read again for each group
constexpr int64_t kLongPass = 12 << 10;  // bytes of a row of A in a pass over k
constexpr int64_t kShortPass = 4 << 10;
constexpr int64_t kLongestPass = 20 << 10;    // where C cannot be visited again
constexpr int64_t kFewColumns = 256;          // of C, with weights on the left
constexpr int64_t kLine = 64;                 // of a cache
constexpr int64_t kKeptBytes = 8 << 20;       // of B packed at once
constexpr int64_t kInPlaceBytes = 128 << 10;  // of B that is near enough where it lies
constexpr int64_t kPanelsForPackedA = 16;     // that read it, to pay for packing it
constexpr int64_t kFinishedBytes = 16 << 10;  // of C, to pay for calling an epilogue
constexpr int64_t kBetweenPolls = 1 << 22;    // multiply-adds

template <class T>
constexpr auto kSize = static_cast<int64_t>(sizeof(T));

template <class T>
int64_t bytes(int64_t elements) {
  return elements * kSize<T>;
}

// One column is computed as one row: vectors then lie along the axis that is long.
bool is_column(const GemmDims& d) { return d.n == 1 && d.m > 1 && d.c_row == 1; }

// Both operands have rows along k, as in x Wt: one of them must be transposed, and the smaller one
// is where the other becomes the left one, if it fills half a vector. Steps of whole pages would
// fall on one set of the first cache, where rows are read as they lie; a second pass over k would
// need C itself.
template <class T>
bool has_larger_right_rows(Isa isa, const GemmDims& d) {
  const bool both = d.a_col == 1 && d.b_row == 1 && d.b_col != 1 && d.k > 1;
  return both && gemm_lanes(isa, sizeof(T)) < 2 * d.m && d.m < d.n && bytes<T>(d.k) <= kLongPass &&
         bytes<T>(d.b_col) % 4096 != 0;
}

// Left weights of few columns become right ones: they stream past once, and the columns are cut
// into tiles of any height instead of whole vectors. Sums of a second pass over k would need C.
template <class T>
bool has_few_columns(Isa isa, const GemmDims& d) {
  return d.n <= kFewColumns && gemm_lanes(isa, sizeof(T)) <= d.m && bytes<T>(d.k) <= kLongestPass;
}

template <class T>
bool swaps_for(Isa isa, const GemmDims& d, const GemmOptions& options) {
  if (options.may_add || options.constant == GemmConstant::kRight) return false;
  if (options.constant == GemmConstant::kLeft) return has_few_columns<T>(isa, d);
  return has_larger_right_rows<T>(isa, d);
}

GemmDims transposed(const GemmDims& d) {
  return {d.n, d.m, d.k, d.b_col, d.b_row, d.a_col, d.a_row, is_column(d) ? d.m : d.c_row};
}

// Steps along an axis of one place never matter: they are chosen to suit.
GemmDims with_free_steps_chosen(GemmDims d) {
  if (d.k == 1) d.a_col = 1;
  if (d.m == 1 && d.a_col != 1) d.a_row = 1;
  if (d.n == 1) d.b_col = 1;
  return d;
}

// Columns of B that lie along k, which few rows of A do not pay for packing.
bool has_few_rows_and_long_columns(const GemmDims& d) {
  return d.m <= kMostTurnedRows && d.a_col == 1 && d.b_row == 1 && d.b_col != 1;
}

// Without fused multiply-add in hardware nothing is gained by blocking. `sum`: memory for the
// product if it is added to C, else null.
template <class T>
void run_reference(const GemmDims& dims, const T* a, const T* b, T* c, const GemmRange& range,
                   const Epilogue<T>& epilogue, T* sum) {
  ref_matmul_dims d{};
  d.m = range.row_end - range.row_begin;
  d.n = range.col_end - range.col_begin;
  d.k = dims.k;
  d.a_row = dims.a_row, d.a_col = dims.a_col;
  d.b_row = dims.b_row, d.b_col = dims.b_col;
  d.c_row = sum != nullptr ? d.n : dims.c_row, d.c_col = 1;
  const T* left = a + range.row_begin * dims.a_row;
  const T* right = b + range.col_begin * dims.b_col;
  T* out = c + range.row_begin * dims.c_row + range.col_begin;
  T* const product = sum != nullptr ? sum : out;
  const ReferenceKernels& kernels = reference_kernels(Isa::kGeneric);
  if constexpr (sizeof(T) == sizeof(float)) {
    kernels.f32.matmul(&d, left, right, product, 0, d.m);
  } else {
    kernels.f64.matmul(&d, left, right, product, 0, d.m);
  }
  for (int64_t i = 0; sum != nullptr && i < d.m * d.n; ++i) {
    out[i / d.n * dims.c_row + i % d.n] += sum[i];
  }
  if (epilogue.run == nullptr) return;
  epilogue.run(epilogue.args, out, dims.c_row, d.m, d.n, range.row_begin, range.col_begin);
}

}  // namespace

// ---------------------------------------------------------------- units

GemmRange GemmTiling::range(const GemmDims& dims, int64_t unit) const {
  const int64_t row = unit == 0 ? 0 : unit / col_units * rows;  // small products feel a division
  const int64_t col = unit == 0 ? 0 : unit % col_units * cols;
  return {row, std::min(dims.m, row + rows), col, std::min(dims.n, col + cols)};
}

GemmTiling tile_gemm(const GemmDims& dims, int threads) {
  GemmTiling tiling;
  if (dims.m == 0 || dims.n == 0) return tiling;
  const auto m = static_cast<double>(dims.m), n = static_cast<double>(dims.n);
  const double flops = 2.0 * m * n * static_cast<double>(std::max<int64_t>(dims.k, 1));
  const double affordable = std::max(1.0, flops / kSmallestUnit);
  const auto wanted =
      static_cast<int64_t>(std::min(affordable, threads == 1 ? 1.0 : 4.0 * threads));
  // Each unit packs its own part of B, and reads its own part of A: what is packed in all should be
  // little, and units not much fewer than wanted.
  const int64_t most_rows = core::ceil_div(dims.m, kFewestRows),
                most_cols = core::ceil_div(dims.n, kColStep);
  const int64_t enough = core::ceil_div(3 * std::min(wanted, most_rows * most_cols), 4);
  int64_t row_units = 1, least = INT64_MAX;
  for (int64_t count = 1; count <= std::min(wanted, most_rows); ++count) {
    const int64_t col_units = std::min(core::ceil_div(wanted, count), most_cols);
    const int64_t packed = count * dims.n + col_units * dims.m;
    if (count * col_units < enough || packed >= least) continue;
    row_units = count, least = packed;
  }
  tiling.rows = core::ceil_div(dims.m, row_units);
  tiling.row_units = core::ceil_div(dims.m, tiling.rows);
  const int64_t col_units = std::min(core::ceil_div(wanted, tiling.row_units), most_cols);
  tiling.cols = core::ceil_div(dims.n, col_units);
  if (col_units > 1) tiling.cols = core::round_up(tiling.cols, kColStep);
  tiling.col_units = core::ceil_div(dims.n, tiling.cols);
  return tiling;
}

// ---------------------------------------------------------------- choices

template <class T>
Gemm<T>::Gemm(Isa isa, const GemmDims& dims, const GemmOptions& options)
    : swaps_(isa != Isa::kGeneric && (is_column(dims) || swaps_for<T>(isa, dims, options))),
      is_packed_(isa != Isa::kGeneric && !is_column(dims) &&
                 options.constant == (swaps_ ? GemmConstant::kLeft : GemmConstant::kRight)),
      turns_c_(swaps_ && !is_column(dims)),
      dims_(with_free_steps_chosen(swaps_ ? transposed(dims) : dims)),
      turns_b_(!is_packed_ && has_few_rows_and_long_columns(dims_)),
      tiling_(tile_gemm(dims_, options.threads)),
      isa_(isa),
      parts_(gemm_parts<T>(isa)) {
  if (parts_ == nullptr && options.may_add) {
    c_bytes_ = static_cast<size_t>(bytes<T>(tiling_.rows * tiling_.cols));
  }
  if (parts_ == nullptr || units() == 0) return;
  if (options.source == GemmSource::kEmitted && choose(true)) return;
  choose(false);
}

// False where the micro-kernels cannot be had.
template <class T>
bool Gemm<T>::choose(bool emitted) {
  emitted_ = emitted;
  lanes_ = gemm_lanes(isa_, sizeof(T));
  vectors_ = vectors_of_tile();
  width_ = int64_t{lanes_} * vectors_;
  const int64_t last_cols = dims_.n - (tiling_.col_units - 1) * tiling_.cols;
  last_columns_ = last_cols - (core::ceil_div(last_cols, width_) - 1) * width_;
  last_vectors_ = static_cast<int>(core::ceil_div(last_columns_, lanes_));
  // Compiled micro-kernels are no taller where they are narrow.
  const int64_t most_rows = gemm_most_rows(isa_, emitted ? vectors_ : 2);
  const int64_t last = dims_.m - (tiling_.row_units - 1) * tiling_.rows;
  for (const int i : {0, 1}) {
    const int64_t total = i == 0 ? tiling_.rows : last;
    rows_[i].tiles = core::ceil_div(total, most_rows);
    rows_[i].low = total / rows_[i].tiles;
    rows_[i].taller = total % rows_[i].tiles;
  }
  choose_passes();
  choose_packing();
  return find_tiles();
}

// Few rows read each element of B once or twice: wide tiles then keep enough sums going to hide
// the latency of an addition.
template <class T>
int Gemm<T>::vectors_of_tile() const {
  const int64_t needed = core::ceil_div(tiling_.cols, lanes_);
  int wide = 2;
  if (turns_b_) {
    wide = 1;
  } else if (dims_.b_col != 1 || is_packed_) {
    // A block of a packed panel stays in the first cache. Panels that are packed once are as wide
    // for any number of rows.
  } else if (emitted_ && tiling_.rows <= 2) {
    wide = isa_ == Isa::kAvx512 ? 8 : 4;
  } else if (emitted_ && tiling_.rows <= 6 && isa_ == Isa::kAvx512) {
    wide = 4;
  }
  return static_cast<int>(std::min<int64_t>(wide, needed));
}

template <class T>
void Gemm<T>::choose_packing() {
  const int64_t panels = core::ceil_div(tiling_.cols, width_);
  const bool page_steps = bytes<T>(dims_.a_row) % 2048 == 0;
  packs_a_ = !turns_b_ &&
             ((dims_.a_col != 1 && dims_.a_row != 1) ||
              (panels >= 4 && (dims_.a_col != 1 || page_steps || panels >= kPanelsForPackedA)));
  const int64_t b_bytes = bytes<T>(dims_.k * tiling_.cols);
  right_ = Right::kInPlace;
  if (is_packed_) {
    right_ = Right::kPackedOnce;
  } else if (dims_.b_col != 1 && !turns_b_) {
    right_ = Right::kPackedBefore;
  } else if (rows_[0].tiles > 2 && b_bytes > kInPlaceBytes) {
    right_ = emitted_ ? Right::kPackedByTile : Right::kPackedBefore;
  }
  int64_t group_rows = 0;
  keeps_b_ = false;
  for (const Rows& rows : rows_) {
    group_rows = std::max(group_rows, rows.group * (rows.low + 1));
    const bool packs = right_ == Right::kPackedByTile || right_ == Right::kPackedBefore;
    keeps_b_ = keeps_b_ || (packs && rows.tiles > rows.group);
  }
  block_cols_ = tiling_.cols;
  if (keeps_b_) {
    const int64_t most = kKeptBytes / (bytes<T>(pass_depth_) * width_);
    block_cols_ = core::ceil_div(panels, core::ceil_div(panels, most)) * width_;
  }
  const int64_t deep = std::min(pass_depth_, dims_.k);
  a_bytes_ = packs_a_ ? static_cast<size_t>(core::round_up(bytes<T>(group_rows * deep), 64)) : 0;
  const int64_t kept =
      keeps_b_ ? core::ceil_div(block_cols_, width_) * deep : std::min(deep, kBlock);
  b_bytes_ = is_packed_ || turns_b_ ? 0 : static_cast<size_t>(bytes<T>(kept * width_));
  keeps_sums_ = !turns_c_ && deep > kBlock && bytes<T>(dims_.c_row) % 4096 == 0;
  c_bytes_ = turns_c_ || keeps_sums_ ? static_cast<size_t>(bytes<T>(group_rows * width_)) : 0;
}

// A second pass over k visits C again, a second group of rows visits B again. Few rows are one
// group, in as many passes as that takes.
template <class T>
void Gemm<T>::choose_passes() {
  const int64_t row_bytes = std::max<int64_t>(bytes<T>(dims_.k), 1);
  const int64_t one_group = kGroupBytes / tiling_.rows;
  const bool short_passes = one_group >= kShortPass && !turns_c_;
  const int64_t passes =
      turns_c_ ? 1 : core::ceil_div(row_bytes, short_passes ? one_group : kLongPass);
  pass_depth_ = core::round_up(std::max<int64_t>(core::ceil_div(dims_.k, passes), 1), kBlock);
  const int64_t pass_bytes = bytes<T>(std::clamp<int64_t>(dims_.k, 1, pass_depth_));
  for (Rows& rows : rows_) {
    const int64_t tall = rows.low + (rows.taller > 0 ? 1 : 0);
    const int64_t most =
        std::max(core::ceil_div(kGroupRows, rows.low), kGroupBytes / (pass_bytes * tall));
    rows.group = core::ceil_div(rows.tiles, core::ceil_div(rows.tiles, most));
    if (short_passes && passes > 1) rows.group = rows.tiles;
  }
}

// The tiles of a group ask for the next block of B together, evenly: whoever asks for much at once
// keeps its own reads waiting.
template <class T>
int Gemm<T>::prefetches(const Rows& rows, int64_t height, int vectors) const {
  constexpr int64_t kMostVectors = 8;
  const int64_t tiles = rows.group - (right_ == Right::kPackedByTile ? 1 : 0);
  const int64_t wanted =
      core::ceil_div(gemm_unroll(static_cast<int>(height), vectors), std::max<int64_t>(tiles, 1));
  return static_cast<int>(std::min(wanted, kMostVectors / vectors));
}

template <class T>
GemmTileSpec Gemm<T>::spec(const Rows& rows, int64_t height, bool packs, bool last_panel) const {
  GemmTileSpec spec{isa_, sizeof(T) == sizeof(double), static_cast<int>(height)};
  spec.vectors = last_panel ? last_vectors_ : vectors_;
  spec.prefetches = prefetches(rows, height, spec.vectors);
  spec.by_rows = !packs_a_ && dims_.a_col == 1;
  spec.packs = packs;
  spec.masked = last_panel && last_columns_ % lanes_ != 0;
  return spec;
}

template <class T>
bool Gemm<T>::find_tiles() {
  std::vector<GemmTileSpec> specs;
  std::vector<GemmTileFn*> places;
  for (Rows& rows : rows_) {
    for (const int packs : {0, 1}) {
      if (packs == 1 && right_ != Right::kPackedByTile) continue;
      for (const int last : {0, 1}) {
        for (const int tall : {0, 1}) {
          if (tall == 1 ? rows.taller == 0 : rows.taller == rows.tiles) continue;
          specs.push_back(spec(rows, rows.low + tall, packs == 1, last == 1));
          places.push_back(&rows.tile[packs][last][tall]);
        }
      }
    }
  }
  if (turns_b_) {
    for (size_t i = 0; i < specs.size(); ++i) *places[i] = parts_->turned(specs[i].rows);
    return true;
  }
  if (!emitted_) {
    for (size_t i = 0; i < specs.size(); ++i) *places[i] = parts_->tile(specs[i]);
    return true;
  }
  const std::vector<jit::GemmCode> code = jit::GemmCache::shared().find(specs);
  for (size_t i = 0; i < code.size(); ++i) *places[i] = code[i].run;
  return !code.empty();
}

// ---------------------------------------------------------------- operands packed once

// Panels one after the other, each k by k; the last one is as narrow as its tile.
template <class T>
int64_t Gemm<T>::packed_size() const {
  if (!is_packed_ || parts_ == nullptr || units() == 0) return 0;
  const int64_t panels = core::ceil_div(dims_.n, width_);
  return dims_.k * ((panels - 1) * width_ + int64_t{lanes_} * last_vectors_);
}

template <class T>
typename Gemm<T>::PackedPlace Gemm<T>::packed_place(int64_t col) const {
  const int64_t panel = col / width_ * width_;
  const int64_t width = panel + width_ < dims_.n ? width_ : int64_t{lanes_} * last_vectors_;
  return {panel * dims_.k + col - panel, width};
}

template <class T>
void Gemm<T>::pack_constant(const T* constant, T* packed) const {
  for (int64_t col = 0; col < dims_.n; col += width_) {
    const int64_t cols = std::min(width_, dims_.n - col);
    const PackedPlace place = packed_place(col);
    parts_->pack({constant + col * dims_.b_col, dims_.b_col, dims_.b_row, cols, dims_.k,
                  packed + place.first, place.step, place.step});
  }
}

// ---------------------------------------------------------------- the loop nest

// One unit: for columns whose packed B is kept, for a pass over k, for rows whose A stays in the
// second cache, for a panel, for a block of k (whose B stays in the first cache), for a tile.
template <class T>
class Gemm<T>::Run {
 public:
  Run(const Gemm& gemm, int64_t unit, const T* a, const T* b, T* c, const Epilogue<T>& epilogue,
      void* scratch, bool adds)
      : g_(gemm),
        d_(gemm.dims_),
        range_(gemm.tiling_.range(gemm.dims_, unit)),
        rows_(gemm.rows_[range_.row_end == d_.m ? 1 : 0]),
        a_(a + range_.row_begin * d_.a_row),
        b_(b),
        c_(c),
        epilogue_(epilogue),
        finishes_at_once_(bytes<T>((range_.row_end - range_.row_begin) *
                                   (range_.col_end - range_.col_begin)) <= kFinishedBytes),
        adds_(adds),
        packed_a_(static_cast<T*>(scratch)),
        packed_b_(packed_a_ + gemm.a_bytes_ / sizeof(T)),
        apart_(packed_b_ + gemm.b_bytes_ / sizeof(T)) {}

  void run() {
    for (col_ = range_.col_begin; col_ < range_.col_end; col_ += g_.block_cols_) {
      col_end_ = std::min(range_.col_end, col_ + g_.block_cols_);
      for (pass_ = 0; pass_ == 0 || pass_ < d_.k; pass_ += g_.pass_depth_) {
        pass_depth_ = std::min(g_.pass_depth_, d_.k - pass_);
        for (first_ = 0; first_ < rows_.tiles; first_ += rows_.group) {
          last_ = std::min(rows_.tiles, first_ + rows_.group);
          if (!run_group()) return;
        }
      }
    }
    if (!finishes_at_once_) return;
    finish(0, range_.row_end - range_.row_begin, range_.col_begin,
           range_.col_end - range_.col_begin);
  }

 private:
  // What of B is read next, to ask for it early: each tile asks for some rows of it or, where they
  // lie along k, for a line or two of all.
  struct Prefetch {
    const char* at = nullptr;
    int64_t step = 0;           // from what a turn asks for to what the next one does
    int64_t each = 0, all = 0;  // from one row or line to the next; how many there are
    bool along_k = false;
  };
  struct Panel {
    int64_t col, cols;
    bool last;    // of C
    bool packed;  // B of this panel is there, from the group before
    T* b;         // packed, if it is
  };

  // False where it was interrupted.
  bool run_group() {
    if (g_.packs_a_) pack_a();
    const int64_t rows = rows_.start(last_) - rows_.start(first_);
    for (int64_t col = col_; col < col_end_; col += g_.width_) {
      Panel panel{col, std::min(g_.width_, col_end_ - col), col + g_.width_ >= d_.n,
                  g_.keeps_b_ && first_ > 0, packed_b_};
      if (g_.keeps_b_) panel.b += (col - col_) * pass_depth_;
      for (int64_t k = 0; k == 0 || k < pass_depth_; k += kBlock) {
        const int64_t depth = std::min(kBlock, pass_depth_ - k);
        if (interrupts_.is_interrupted(rows * depth * panel.cols)) return false;
        run_block(panel, k, depth);
      }
    }
    return true;
  }

  // All tiles of the group on one panel, `depth` deep from `k` of the pass.
  void run_block(const Panel& panel, int64_t k, int64_t depth) {
    const bool once = g_.right_ == Right::kPackedOnce;
    const T* const raw = once ? b_ + panel.col * d_.k + (pass_ + k) * packed_width(panel)
                              : b_ + (pass_ + k) * d_.b_row + panel.col * d_.b_col;
    T* const kept = panel.b + (g_.keeps_b_ ? k * g_.width_ : 0);
    Right how = g_.right_;
    // Compiled micro-kernels read whole vectors of B.
    const bool whole = g_.emitted_ || g_.turns_b_ || panel.cols == packed_width(panel);
    if (!whole && !once) how = Right::kPackedBefore;
    const int64_t width = how == Right::kInPlace ? 0 : packed_width(panel);
    const int64_t wide = bytes<T>(int64_t{g_.lanes_} * vectors_of(panel));
    const bool tiles_ask = d_.b_row == 1 && wide * (last_ - first_) >= bytes<T>(kBlock);
    const bool packs_before = how == Right::kPackedBefore && !panel.packed;
    if (packs_before) {
      const int64_t next = tiles_ask ? 0 : prefetch_distance(k, depth);
      g_.parts_->pack({raw, d_.b_col, d_.b_row, panel.cols, depth, kept, width, width, next});
    }
    bool packs = how == Right::kPackedByTile && !panel.packed;
    const bool in_place = how == Right::kInPlace || once || packs;

    GemmTile tile{};
    tile.depth = depth;
    tile.a_step = bytes<T>(d_.a_col == 1 ? d_.a_row : d_.a_col);
    tile.b = in_place ? raw : kept;
    tile.b_step = bytes<T>(g_.turns_b_ ? d_.b_col : in_place && !once ? d_.b_row : width);
    const bool begins = k == 0, ends = k + depth == pass_depth_;
    const bool finished = pass_ + k + depth == d_.k;
    tile.c_step = bytes<T>(g_.turns_c_ || (g_.keeps_sums_ && !ends) ? g_.width_ : d_.c_row);
    tile.sum_step = bytes<T>(g_.turns_c_ || (g_.keeps_sums_ && !begins) ? g_.width_ : d_.c_row);
    tile.last_columns = panel.cols - int64_t{vectors_of(panel) - 1} * g_.lanes_;
    tile.packed = kept;
    Prefetch prefetch;
    if (!packs_before) {
      prefetch = prefetch_of(panel, k, depth, in_place ? raw : kept, tile.b_step);
    } else if (tiles_ask) {
      const auto* const at = reinterpret_cast<const char*>(raw + prefetch_distance(k, depth));
      prefetch = {at, bytes<T>(d_.b_col), wide, core::ceil_div(bytes<T>(depth), wide), true};
    }
    int64_t asked = 0, waiting = 0;  // of B; rows that are finished
    for (int64_t t = first_; t < last_; ++t) {
      const int64_t row = rows_.start(t), height = rows_.height(t);
      set_left(tile, k, depth, row, height);
      tile.c = place_of(row, panel.col, !ends);
      tile.sum = pass_ + k == 0 && !adds_ ? nullptr : place_of(row, panel.col, !begins);
      const bool prefetches = asked < prefetch.all;
      // The last bytes of lines: where rows begin within a line, the panel before asked for it.
      tile.next = prefetches ? prefetch.at + asked * prefetch.each + kLine - 1 : tile.b;
      tile.next_step = prefetches ? prefetch.step : 0;
      rows_.tile[packs][panel.last][height - rows_.low](&tile);
      if (packs) {
        packs = false;
        tile.b = kept;
        tile.b_step = bytes<T>(width);
      } else if (prefetches) {
        asked += prefetch.along_k ? 1
                                  : depth * g_.prefetches(rows_, height, vectors_of(panel)) /
                                        gemm_unroll(static_cast<int>(height), vectors_of(panel));
      }
      if (!finished) continue;
      if (g_.turns_c_) turn(static_cast<T*>(tile.c), row, height, panel.col, panel.cols);
      waiting += height;
      if (finishes_at_once_ || (t + 1 < last_ && bytes<T>(waiting * panel.cols) < kFinishedBytes)) {
        continue;
      }
      finish(row + height - waiting, waiting, panel.col, panel.cols);
      waiting = 0;
    }
  }

  // Where a tile of C is summed, `within` a pass or at its ends; rows count from the unit's first.
  T* place_of(int64_t row, int64_t col, bool within) const {
    if (g_.turns_c_ || (g_.keeps_sums_ && within)) {
      return apart_ + (row - rows_.start(first_)) * g_.width_;
    }
    return c_ + (range_.row_begin + row) * d_.c_row + col;
  }

  // A finished tile to its place in C, of which its rows are columns.
  void turn(const T* tile, int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    T* const to = c_ + col * d_.c_row + range_.row_begin + row;
    g_.parts_->pack({tile, g_.width_, 1, rows, cols, to, d_.c_row, rows});
  }

  // Rows count from the unit's first.
  void finish(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    if (epilogue_.run == nullptr) return;
    row += range_.row_begin;
    if (!g_.swaps_) {
      return epilogue_.run(epilogue_.args, c_ + row * d_.c_row + col, d_.c_row, rows, cols, row,
                           col);
    }
    const int64_t step = g_.turns_c_ ? d_.c_row : 1;
    T* const block = g_.turns_c_ ? c_ + col * step + row : c_ + row * d_.c_row + col;
    epilogue_.run(epilogue_.args, block, step, cols, rows, col, row);
  }

  int vectors_of(const Panel& panel) const { return panel.last ? g_.last_vectors_ : g_.vectors_; }
  // The last panel is as narrow as its tile.
  int64_t packed_width(const Panel& panel) const { return int64_t{g_.lanes_} * vectors_of(panel); }

  // The next block of k of this panel, or the first one of the next panel.
  Prefetch prefetch_of(const Panel& panel, int64_t k, int64_t depth, const T* now,
                       int64_t step) const {
    const auto rows = [&](const T* from, int64_t count) {
      return Prefetch{reinterpret_cast<const char*>(from), step, step, count};
    };
    const int64_t left = pass_depth_ - k - depth;
    if (left > 0) {
      const int64_t deeper = depth * (g_.turns_b_ ? 1 : step / kSize<T>);
      return rows(now + deeper, std::min(left, kBlock));
    }
    if (panel.col + g_.width_ >= col_end_) return {};
    const int64_t count = std::min(kBlock, pass_depth_);
    if (panel.packed) return rows(panel.b + g_.width_ * pass_depth_, count);
    if (g_.right_ == Right::kPackedOnce) {
      return rows(b_ + (panel.col + g_.width_) * d_.k + pass_ * g_.width_, count);
    }
    return rows(b_ + pass_ * d_.b_row + (panel.col + g_.width_) * d_.b_col, count);
  }

  // In B as given, from this block to the next one of k, or to the first one of the next panel.
  int64_t prefetch_distance(int64_t k, int64_t depth) const {
    const bool last = pass_depth_ - k == depth;
    return last ? g_.width_ * d_.b_col - k * d_.b_row : depth * d_.b_row;
  }

  void set_left(GemmTile& tile, int64_t k, int64_t depth, int64_t row, int64_t height) const {
    if (!g_.packs_a_) {
      tile.a = a_ + row * d_.a_row + (pass_ + k) * d_.a_col;
      return;
    }
    tile.a = strip(k, depth, row);
    tile.a_step = bytes<T>(height);
  }

  // Packed A: for each block of k its tiles, each k by k.
  T* strip(int64_t k, int64_t depth, int64_t row) const {
    const int64_t begin = rows_.start(first_), end = rows_.start(last_);
    return packed_a_ + k * (end - begin) + (row - begin) * depth;
  }

  void pack_a() const {
    for (int64_t k = 0; k < pass_depth_; k += kBlock) {
      const int64_t depth = std::min(kBlock, pass_depth_ - k);
      for (int64_t t = first_; t < last_; ++t) {
        const int64_t row = rows_.start(t), height = rows_.height(t);
        g_.parts_->pack({a_ + row * d_.a_row + (pass_ + k) * d_.a_col, d_.a_row, d_.a_col, height,
                         depth, strip(k, depth, row), height, height, d_.a_row == 1 ? height : 0});
      }
    }
  }

  const Gemm& g_;
  const GemmDims& d_;
  const GemmRange range_;
  const Rows& rows_;
  const T* const a_;
  const T* const b_;
  T* const c_;
  const Epilogue<T>& epilogue_;
  const bool finishes_at_once_;  // the unit
  const bool adds_;
  T* const packed_a_;
  T* const packed_b_;
  T* const apart_;                 // C of a group and a panel: it is transposed, or sums of a pass
  int64_t col_ = 0, col_end_ = 0;  // of the columns whose B is kept
  int64_t pass_ = 0, pass_depth_ = 0;  // over k
  int64_t first_ = 0, last_ = 0;       // tiles of the group
  core::InterruptCounter interrupts_{kBetweenPolls};
};

template <class T>
void Gemm<T>::run_unit(int64_t unit, const T* a, const T* b, T* c, const Epilogue<T>& epilogue,
                       void* scratch, bool adds) const {
  if (swaps_) std::swap(a, b);
  if (parts_ == nullptr) {
    T* const sum = adds ? static_cast<T*>(scratch) : nullptr;
    run_reference(dims_, a, b, c, tiling_.range(dims_, unit), epilogue, sum);
  } else {
    Run(*this, unit, a, b, c, epilogue, scratch, adds).run();
  }
}

template class Gemm<float>;
template class Gemm<double>;

}  // namespace mithril::cpu

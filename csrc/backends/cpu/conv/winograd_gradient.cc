// With x and dy as transformed patches, dw = Gᵀ [Σ over tiles (Bᵀ x B) ∘ (A dy Aᵀ)] G: for each of
// the 36 elements of a patch one product, filters by channels, whose sum runs over tiles.
#include "backends/cpu/conv/winograd_gradient.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "backends/cpu/conv/winograd_patches.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/reference/kernel_families.h"
#include "core/interrupt.h"
#include "core/rounding.h"

namespace mithril::cpu {
namespace {

using plan::KernelArgs;
using plan::KernelStatus;

constexpr int64_t kTile = 4, kPatch = kTile + 2, kElements = kPatch * kPatch;
constexpr int64_t kDeepest = REF_BLOCK;      // tiles of a block: what products add at once
constexpr int64_t kSide = 64;                // of a part: its sums stay in the second cache
constexpr int64_t kFewestFilters = 16;       // of a part, where there are too few parts
constexpr int64_t kBlockBytes = 1024 << 10;  // of patches, beside the sums of a single part
constexpr int64_t kPadding = 16;             // floats: a cache line

constexpr int64_t bytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

const WinogradGradientParts* gradient_parts(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return &avx2::kGradientOf4;
  if (isa == Isa::kAvx512) return &avx512::kGradientOf4;
#endif
  return nullptr;
}
auto input_transform(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kTilesOf4.input;
  if (isa == Isa::kAvx512) return avx512::kTilesOf4.input;
#endif
  return decltype(WinogradParts::input){nullptr};
}

/// An axis of filters or of channels, cut into equal parts (the last one may reach over its end).
struct Parts {
  int64_t count, size;
  int64_t all() const { return count * size; }
};

Parts cut(int64_t size, int64_t count, int64_t multiple) {
  const int64_t each = core::round_up(core::ceil_div(size, count), multiple);
  return {core::ceil_div(size, each), each};
}

bool are_moderate(const float* taps) {
  return std::all_of(taps, taps + kTaps, [](float tap) { return std::abs(tap) < kHuge; });
}
bool are_nan(const float* taps) {
  return std::all_of(taps, taps + kTaps, [](float tap) { return tap != tap; });
}

/// A unit is some parts of the filters. It goes through blocks of rows of tiles; the sums of a part
/// of the filters and one of the channels are formed together.
class WinogradGradient {
 public:
  static core::Result<plan::Step> make(const ref_conv2d_dims& d, int threads);

 private:
  // What a thread has for itself.
  struct Scratch {
    float* rows = nullptr;  // under a row of tiles, padded
    float* v = nullptr;     // transformed patches of x, of a block
    float* z = nullptr;     // transformed tiles of dy, of a block, for the filters of a unit
    float* m = nullptr;     // sums of all parts of a unit; of one part where there is one block
    float* taps = nullptr;
    void* product = nullptr;
    int64_t floats = 0;  // of all that stands before `product`
  };

  WinogradGradient(const ref_conv2d_dims& d, Isa isa, int64_t units);

  void choose_blocks();
  void add_products(Isa isa);
  Scratch divide(void* memory) const;
  int64_t rows_of(int64_t block) const {
    return std::min(block_rows_, d_.batch * tile_rows_ - block * block_rows_);
  }
  int64_t parts_of(int64_t unit) const {
    return std::min(unit_parts_, filters_.count - unit * unit_parts_);
  }

  KernelStatus run(const KernelArgs& args, int64_t begin, int64_t end) const;
  void transform_block(const float* x, const float* dy, int64_t unit, int64_t block,
                       const Scratch& s) const;
  void add_parts(int64_t unit, int64_t block, const Scratch& s, void* const* buffers) const;
  void add_block(int64_t block, int64_t filter_part, int64_t channel_part, float* m,
                 const Scratch& s) const;
  void store(int64_t filter, int64_t channel, const float* m, float* taps,
             void* const* buffers) const;
  void mend(int64_t filter, int64_t channel, void* const* buffers) const;

  ref_conv2d_dims d_;
  const WinogradGradientParts& parts_;
  const GemmParts<float>& packing_;
  int64_t lanes_;
  int64_t tile_rows_, tile_columns_;  // of an image
  Parts filters_, channels_;
  int64_t unit_parts_;  // of the filters
  WinogradPatches x_, dy_;
  int64_t block_rows_ = 0, blocks_ = 0;
  std::vector<Gemm<float>> products_;             // over a whole block, and over the last one
  int64_t v_step_ = 0, z_step_ = 0, m_step_ = 0;  // from one element of a patch to the next
};

WinogradGradient::WinogradGradient(const ref_conv2d_dims& d, Isa isa, int64_t units)
    : d_(d),
      parts_(*gradient_parts(isa)),
      packing_(*gemm_parts<float>(isa)),
      lanes_(gemm_lanes(isa, sizeof(float))),
      tile_rows_(core::ceil_div(d.h_out, kTile)),
      tile_columns_(core::ceil_div(d.w_out, kTile)),
      filters_(cut(d.c_out,
                   std::max(core::ceil_div(d.c_out, kSide),
                            std::min(units, core::ceil_div(d.c_out, kFewestFilters))),
                   1)),
      channels_(cut(d.c_in, core::ceil_div(d.c_in, kSide), lanes_)),
      unit_parts_(core::ceil_div(filters_.count, units)),
      x_(isa,
         {d.c_in * d.h_in * d.w_in, d.h_in, d.w_in, d.pad_top, d.pad_left, kTile, kPatch,
          tile_rows_, tile_columns_},
         channels_.all(), input_transform(isa)),
      dy_(isa,
          {d.c_out * d.h_out * d.w_out, d.h_out, d.w_out, 0, 0, kTile, kTile, tile_rows_,
           tile_columns_},
          unit_parts_ * filters_.size, parts_.cotangents) {
  choose_blocks();
  add_products(isa);
}

// The order of sums follows from blocks, so threads do not matter here. Patches stay in the second
// cache where all sums do; else the more tiles, the seldomer sums are visited.
void WinogradGradient::choose_blocks() {
  const int64_t tile_bytes = bytes(kElements * (d_.c_in + d_.c_out));
  const bool keeps_sums = d_.c_in <= kSide && d_.c_out <= kSide;
  const int64_t depth = keeps_sums ? std::min(kDeepest, kBlockBytes / tile_bytes) : kDeepest;
  const int64_t rows = d_.batch * tile_rows_;
  blocks_ = core::ceil_div(rows, std::max<int64_t>(1, depth / tile_columns_));
  block_rows_ = core::ceil_div(rows, blocks_);
  blocks_ = core::ceil_div(rows, block_rows_);
}

void WinogradGradient::add_products(Isa isa) {
  for (const int64_t rows : {block_rows_, rows_of(blocks_ - 1)}) {
    const GemmDims dims{
        filters_.size, channels_.size, rows * tile_columns_, 1, dy_.channels(), x_.channels(), 1,
        channels_.size};
    products_.emplace_back(isa, dims, GemmOptions{.may_add = true});
  }
  // No multiples of a page: all streams would fall on one set of the first cache.
  v_step_ = block_rows_ * tile_columns_ * x_.channels() + kPadding;
  z_step_ = block_rows_ * tile_columns_ * dy_.channels() + kPadding;
  m_step_ = filters_.size * channels_.size + kPadding;
}

WinogradGradient::Scratch WinogradGradient::divide(void* memory) const {
  Scratch s;
  auto* const start = static_cast<float*>(memory);
  const auto take = [&](int64_t floats) {
    float* const at = memory == nullptr ? nullptr : start + s.floats;
    s.floats += core::round_up(floats, kPadding);
    return at;
  };
  s.rows = take(std::max(x_.scratch_floats(), dy_.scratch_floats()));
  s.v = take(kElements * v_step_);
  s.z = take(kElements * z_step_);
  s.m = take(kElements * m_step_ * (blocks_ == 1 ? 1 : unit_parts_ * channels_.count));
  s.taps = take(kTaps * lanes_);
  s.product = memory == nullptr ? nullptr : start + s.floats;
  return s;
}

core::Result<plan::Step> WinogradGradient::make(const ref_conv2d_dims& d, int threads) {
  const double flops = 2.0 * kTaps * static_cast<double>(d.batch * d.h_out * d.w_out) *
                       static_cast<double>(d.c_in * d.c_out);
  const int64_t units = std::max<int64_t>(threads, fewest_chunks(flops));
  auto made = std::shared_ptr<WinogradGradient>(new WinogradGradient(d, default_isa(), units));
  plan::Step step;
  step.units = core::ceil_div(made->filters_.count, made->unit_parts_);
  const size_t product =
      std::max(made->products_[0].scratch_bytes(), made->products_[1].scratch_bytes());
  step.scratch_bytes = static_cast<size_t>(bytes(made->divide(nullptr).floats)) + product;
  step.kernel = [](const KernelArgs& args, int64_t begin, int64_t end) {
    return static_cast<const WinogradGradient*>(args.data)->run(args, begin, end);
  };
  step.data = std::move(made);
  return step;
}

// ---------------------------------------------------------------- a run

KernelStatus WinogradGradient::run(const KernelArgs& args, int64_t begin, int64_t end) const {
  const auto* x = static_cast<const float*>(args.buffers[0]);
  const auto* dy = static_cast<const float*>(args.buffers[1]);
  const Scratch s = divide(args.scratch);
  for (int64_t unit = begin; unit < end; ++unit) {
    for (int64_t block = 0; block < blocks_; ++block) {
      if (core::is_interrupted()) return KernelStatus::kCancelled;
      transform_block(x, dy, unit, block, s);
      add_parts(unit, block, s, args.buffers);
    }
  }
  return KernelStatus::kOk;
}

void WinogradGradient::add_parts(int64_t unit, int64_t block, const Scratch& s,
                                 void* const* buffers) const {
  float* m = s.m;
  for (int64_t f = 0; f < parts_of(unit); ++f) {
    for (int64_t c = 0; c < channels_.count; ++c) {
      add_block(block, f, c, m, s);
      if (block + 1 == blocks_) {
        store((unit * unit_parts_ + f) * filters_.size, c * channels_.size, m, s.taps, buffers);
      }
      if (blocks_ > 1) m += kElements * m_step_;
    }
  }
}

void WinogradGradient::transform_block(const float* x, const float* dy, int64_t unit, int64_t block,
                                       const Scratch& s) const {
  const int64_t first = block * block_rows_, rows = rows_of(block);
  const int64_t filter = unit * unit_parts_ * filters_.size;
  const int64_t filters = std::min(unit_parts_ * filters_.size, d_.c_out - filter);
  x_.transform(x, d_.c_in, first, rows, s.rows, s.v, v_step_);
  dy_.transform(dy + filter * d_.h_out * d_.w_out, filters, first, rows, s.rows, s.z, z_step_);
}

// m[element][filter][channel] = or += Σ over the tiles of a block
void WinogradGradient::add_block(int64_t block, int64_t filter_part, int64_t channel_part, float* m,
                                 const Scratch& s) const {
  const Gemm<float>& product = products_[rows_of(block) == block_rows_ ? 0 : 1];
  const float* z = s.z + filter_part * filters_.size;
  const float* v = s.v + channel_part * channels_.size;
  for (int64_t e = 0; e < kElements; ++e, z += z_step_, v += v_step_, m += m_step_) {
    if (block == 0) {
      product.run(z, v, m, s.product);
    } else {
      product.add(z, v, m, s.product);
    }
  }
}

void WinogradGradient::store(int64_t filter, int64_t channel, const float* m, float* taps,
                             void* const* buffers) const {
  auto* const dw = static_cast<float*>(buffers[2]);
  const int64_t filters = std::min(filters_.size, d_.c_out - filter);
  const int64_t channels = std::min(channels_.size, d_.c_in - channel);
  for (int64_t f = 0; f < filters; ++f) {
    float* const to = dw + ((filter + f) * d_.c_in + channel) * kTaps;
    for (int64_t c = 0; c < channels; c += lanes_) {
      parts_.sums({m + f * channels_.size + c, m_step_, taps});
      const int64_t given = std::min(lanes_, channels - c);
      packing_.pack({taps, lanes_, 1, kTaps, given, to + c * kTaps, kTaps, kTaps});
      for (int64_t l = 0; l < given; ++l) {
        if (!are_moderate(to + (c + l) * kTaps)) mend(filter + f, channel + c + l, buffers);
      }
    }
  }
}

// Sums over whole patches have made NaN of taps that do not meet what is infinite, NaN or huge: all
// taps of one filter and channel by the definition, until none of them is a number.
void WinogradGradient::mend(int64_t filter, int64_t channel, void* const* buffers) const {
  float sums[kTaps] = {};
  for (int64_t n = 0; n < d_.batch; ++n) {
    const auto* x = static_cast<const float*>(buffers[0]);
    const auto* dy = static_cast<const float*>(buffers[1]);
    x += (n * d_.c_in + channel) * d_.h_in * d_.w_in;
    dy += (n * d_.c_out + filter) * d_.h_out * d_.w_out;
    for (int64_t place = 0; place < d_.h_out * d_.w_out; ++place) {
      const int64_t top = place / d_.w_out - d_.pad_top, left = place % d_.w_out - d_.pad_left;
      if (left == -d_.pad_left && are_nan(sums)) break;
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        const int64_t row = top + tap / 3, column = left + tap % 3;
        const bool inside = row >= 0 && row < d_.h_in && column >= 0 && column < d_.w_in;
        sums[tap] += dy[place] * (inside ? x[row * d_.w_in + column] : 0.F);
      }
    }
  }
  auto* const dw = static_cast<float*>(buffers[2]);
  std::copy_n(sums, kTaps, dw + (filter * d_.c_in + channel) * kTaps);
}

}  // namespace

// In multiply-adds for each pair of a channel and a filter, as winograd_tile counts.
bool prefers_winograd_gradient(const ref_conv2d_dims& d) {
  constexpr int64_t kFewest = 16;         // channels and filters
  constexpr double kTransform = 20;       // an element of the sums
  constexpr double kTransformPatch = 28;  // an element of one, of one channel
  const int64_t tile_columns = core::ceil_div(d.w_out, kTile);
  if (gradient_parts(default_isa()) == nullptr || d.c_in < kFewest || d.c_out < kFewest) {
    return false;
  }
  if (tile_columns > kDeepest) return false;
  const double tiles = static_cast<double>(d.batch * core::ceil_div(d.h_out, kTile) * tile_columns);
  const auto channels = static_cast<double>(d.c_in), filters = static_cast<double>(d.c_out);
  const double by_tiles =
      kElements * (tiles + kTransform + kTransformPatch * tiles * (1 / channels + 1 / filters));
  return by_tiles < static_cast<double>(kTaps * d.batch * d.h_out * d.w_out);
}

core::Result<plan::Step> make_winograd_gradient(const ref_conv2d_dims& d, int threads) {
  return WinogradGradient::make(d, threads);
}

}  // namespace mithril::cpu

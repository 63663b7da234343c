#include "backends/cpu/conv/winograd.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "backends/cpu/conv/image_epilogue.h"
#include "backends/cpu/conv/winograd_parts.h"
#include "backends/cpu/conv/winograd_patches.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/reference/kernel_families.h"
#include "core/interrupt.h"
#include "core/rounding.h"
#include "runtime/buffer.h"

namespace mithril::cpu {
namespace {

using plan::KernelArgs;
using plan::KernelStatus;

constexpr int64_t kBlockBytes = 1536 << 10;  // of transformed patches and products: a second cache
constexpr int64_t kFewestTiles = 14;         // of a block: rows of a product's tile
constexpr int64_t kFewestFilters = 64;       // of a unit, where there are too few blocks
constexpr int64_t kShareBytes = 1280 << 10;  // of filters that one block uses: a second cache
constexpr int64_t kPadding = 16;             // floats: a cache line

constexpr int64_t bytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

const WinogradParts* parts_of(Isa isa, int64_t tile) {
#if defined(__x86_64__)
  const bool large = tile == 4;
  if (isa == Isa::kAvx2) return large ? &avx2::kTilesOf4 : &avx2::kTilesOf2;
  if (isa == Isa::kAvx512) return large ? &avx512::kTilesOf4 : &avx512::kTilesOf2;
#endif
  return nullptr;
}

/// Tiles are counted in rows of tiles over all images. A unit is a block of such rows and a share
/// of the filters.
class Winograd {
 public:
  /// Null `filters`: they are an operand of each run.
  static core::Result<plan::Step> make(const WinogradDims& dims, int64_t tile, int threads,
                                       const float* filters, const select::Epilogue* epilogue);

 private:
  // What a thread has for itself.
  struct Scratch {
    float* x = nullptr;  // the rows under a row of tiles, padded
    float* v = nullptr;  // transformed patches of a block
    float* m = nullptr;  // their products
    float* y = nullptr;  // a row of tiles of the result
    float* u = nullptr;  // transformed filters of a share, packed, if they are not constant
    float* taps = nullptr;
    float* patch = nullptr;  // of a tile that is computed again
    bool* broken = nullptr;  // of a row of tiles, those
    void* product = nullptr;
    void* epilogue = nullptr;
    int64_t floats = 0;  // of all that stands before `product`
  };

  Winograd(const WinogradDims& d, int64_t tile, bool constant)
      : d_(d),
        parts_(*parts_of(default_isa(), tile)),
        packing_(*gemm_parts<float>(default_isa())),
        tile_(tile),
        elements_(parts_.patch * parts_.patch),
        constant_(constant),
        tile_rows_(core::ceil_div(d.h_out, tile)),
        tile_columns_(core::ceil_div(d.w_out, tile)),
        patches_(default_isa(),
                 {d.channels * d.h * d.w, d.h, d.w, d.pad_top, d.pad_left, tile, parts_.patch,
                  tile_rows_, tile_columns_},
                 d.channels, parts_.input) {}

  void choose_blocks(int64_t threads);
  void add_products();
  core::Status pack_filters(const float* w);
  Scratch divide(void* memory) const;
  int64_t rows_of(int64_t block) const {
    return std::min(block_rows_, d_.images * tile_rows_ - block * block_rows_);
  }
  // From one filter of w to the next, and from one of its channels.
  int64_t filter_step() const { return kTaps * (d_.turned ? 1 : d_.channels); }
  int64_t channel_step() const { return kTaps * (d_.turned ? d_.filters : 1); }

  KernelStatus run(const KernelArgs& args, int64_t begin, int64_t end) const;
  void clear_padding(float* m) const;
  void transform_filters(const float* w, int64_t share, float* u, float* taps) const;
  void store_block(int64_t first, int64_t rows, int64_t share, const Scratch& s,
                   void* const* buffers) const;
  void mend(int64_t row, int64_t share, const Scratch& s, void* const* buffers) const;
  void copy_patch(const float* image, int64_t top, int64_t left, float* patch) const;
  void finish_block(int64_t first, int64_t rows, int64_t share, void* const* buffers,
                    void* scratch) const;

  WinogradDims d_;
  const WinogradParts& parts_;
  const GemmParts<float>& packing_;
  int64_t tile_, elements_;
  bool constant_;                     // the filters are
  int64_t tile_rows_, tile_columns_;  // of an image
  WinogradPatches patches_;
  int64_t block_rows_ = 0, blocks_ = 0;
  int64_t shares_ = 1, share_ = 0, stride_ = 0;   // of the filters: how many, of one, in vectors
  std::vector<Gemm<float>> products_;             // of a whole block, and of the last one
  int64_t u_step_ = 0, v_step_ = 0, m_step_ = 0;  // from one element of a patch to the next
  std::optional<ImageEpilogue> epilogue_;
  size_t product_bytes_ = 0;  // scratch of the products
  runtime::Buffer packed_;    // constant filters: [share][element] packed matrices, as in Scratch
};

// Threads get blocks of tiles; where there are too few, each takes some of the filters. Filters
// that are transformed for a single block are transformed, and used, a share after the other.
void Winograd::choose_blocks(int64_t threads) {
  const int64_t channels = patches_.channels(), filters = core::round_up(d_.filters, parts_.lanes);
  // Filters are read again for each block: it should not be much smaller than they are.
  const int64_t filter_bytes = bytes(elements_ * channels * filters);
  const int64_t row_bytes = bytes(elements_ * tile_columns_ * (channels + filters));
  const int64_t rows = d_.images * tile_rows_;
  const int64_t least = core::ceil_div(row_bytes * rows, std::max(kBlockBytes, filter_bytes));
  const bool by_shares = least == 1 && !constant_;
  blocks_ = by_shares ? 1 : std::min(rows, core::round_up(least, threads));
  block_rows_ = core::ceil_div(rows, blocks_);
  if (block_rows_ * tile_columns_ < kFewestTiles) {
    block_rows_ = std::min(rows, core::ceil_div(kFewestTiles, tile_columns_));
  }
  blocks_ = core::ceil_div(rows, block_rows_);
  const auto divide = [&](int64_t fewest) {
    const bool whole = d_.filters % (2 * shares_ * fewest) == 0;
    if (whole) shares_ *= 2;
    return whole;
  };
  while (by_shares && filter_bytes > shares_ * kShareBytes && divide(2 * parts_.lanes)) {
  }
  while (blocks_ * shares_ < threads && divide(kFewestFilters)) {
  }
  share_ = d_.filters / shares_;
  stride_ = core::round_up(share_, parts_.lanes);
}

void Winograd::add_products() {
  const int64_t channels = patches_.channels();
  for (const int64_t rows : {block_rows_, rows_of(blocks_ - 1)}) {
    const GemmDims dims{
        rows * tile_columns_, share_, d_.channels, channels, 1, stride_, 1, stride_};
    products_.emplace_back(default_isa(), dims, GemmOptions{.constant = GemmConstant::kRight});
  }
  const auto largest = std::max(products_[0].scratch_bytes(), products_[1].scratch_bytes());
  product_bytes_ =
      static_cast<size_t>(core::round_up(static_cast<int64_t>(largest), bytes(kPadding)));
  // No multiples of a page: all streams would fall on one set of the first cache.
  u_step_ = products_[0].packed_size() + kPadding;
  v_step_ = block_rows_ * tile_columns_ * channels + kPadding;
  m_step_ = block_rows_ * tile_columns_ * stride_ + kPadding;
}

core::Status Winograd::pack_filters(const float* w) {
  std::vector<float> taps(static_cast<size_t>(kTaps * parts_.lanes));
  const int64_t share_floats = elements_ * u_step_;
  MITHRIL_ASSIGN(packed_,
                 runtime::Buffer::make(static_cast<size_t>(bytes(shares_ * share_floats))));
  auto* const u = reinterpret_cast<float*>(packed_.data());
  for (int64_t share = 0; share < shares_; ++share) {
    transform_filters(w, share, u + share * share_floats, taps.data());
  }
  return {};
}

core::Result<plan::Step> Winograd::make(const WinogradDims& dims, int64_t tile, int threads,
                                        const float* filters, const select::Epilogue* epilogue) {
  auto made = std::shared_ptr<Winograd>(new Winograd(dims, tile, filters != nullptr));
  made->choose_blocks(threads);
  made->add_products();
  if (filters != nullptr) MITHRIL_RETURN_IF_ERROR(made->pack_filters(filters));
  plan::Step step;
  step.units = made->blocks_ * made->shares_;
  // Filters that are not constant are transformed for each chunk.
  const double flops = 2.0 * kTaps * static_cast<double>(dims.images * dims.h_out * dims.w_out) *
                       static_cast<double>(dims.channels * dims.filters);
  const int64_t chunks = std::max<int64_t>(threads, fewest_chunks(flops));
  step.grain = made->constant_ ? 1 : core::ceil_div(step.units, chunks);
  step.scratch_bytes =
      static_cast<size_t>(bytes(made->divide(nullptr).floats)) + made->product_bytes_;
  if (epilogue != nullptr) {
    constexpr size_t kResult = 2;  // behind the operands
    MITHRIL_ASSIGN(made->epilogue_, ImageEpilogue::make(*epilogue, kResult));
    step.scratch_bytes += made->epilogue_->scratch_bytes();
  }
  step.kernel = [](const KernelArgs& args, int64_t begin, int64_t end) {
    return static_cast<const Winograd*>(args.data)->run(args, begin, end);
  };
  step.data = std::move(made);
  return step;
}

Winograd::Scratch Winograd::divide(void* memory) const {
  Scratch s;
  auto* const start = static_cast<float*>(memory);
  const auto take = [&](int64_t floats) {
    float* const at = memory == nullptr ? nullptr : start + s.floats;
    s.floats += core::round_up(floats, kPadding);
    return at;
  };
  s.x = take(patches_.scratch_floats());
  s.v = take(elements_ * v_step_);
  s.m = take(elements_ * m_step_);
  s.y = take(tile_ * tile_ * tile_columns_ * stride_);
  s.patch = take(elements_ * d_.channels);
  s.broken = reinterpret_cast<bool*>(take(tile_columns_));
  if (!constant_) {
    s.u = take(elements_ * u_step_);
    s.taps = take(kTaps * parts_.lanes);
  }
  if (memory == nullptr) return s;
  s.product = start + s.floats;
  s.epilogue = static_cast<std::byte*>(s.product) + product_bytes_;
  return s;
}

// ---------------------------------------------------------------- a run

KernelStatus Winograd::run(const KernelArgs& args, int64_t begin, int64_t end) const {
  const auto* x = static_cast<const float*>(args.buffers[0]);
  const auto* w = static_cast<const float*>(args.buffers[1]);
  const Scratch s = divide(args.scratch);
  const auto* const packed = reinterpret_cast<const float*>(packed_.data());
  clear_padding(s.m);
  int64_t block = -1, share = -1;                   // whose patches and filters are there
  for (int64_t unit = begin; unit < end; ++unit) {  // unit = block * shares + share
    if (core::is_interrupted()) return KernelStatus::kCancelled;
    const int64_t first = unit / shares_ * block_rows_, rows = rows_of(unit / shares_);
    if (block != unit / shares_) patches_.transform(x, d_.channels, first, rows, s.x, s.v, v_step_);
    if (!constant_ && share != unit % shares_) transform_filters(w, unit % shares_, s.u, s.taps);
    block = unit / shares_, share = unit % shares_;
    const float* const u = constant_ ? packed + share * elements_ * u_step_ : s.u;
    const Gemm<float>& product = products_[rows == block_rows_ ? 0 : 1];
    for (int64_t e = 0; e < elements_; ++e) {
      product.run(s.v + e * v_step_, u + e * u_step_, s.m + e * m_step_, s.product);
    }
    store_block(first, rows, share, s, args.buffers);
    if (epilogue_) finish_block(first, rows, share, args.buffers, s.epilogue);
  }
  return KernelStatus::kOk;
}

// Products leave the lanes behind the filters of a share as they are; what lies there must be
// finite, or tiles would count as broken.
void Winograd::clear_padding(float* m) const {
  if (stride_ == share_) return;
  const int64_t rows = block_rows_ * tile_columns_;
  for (int64_t e = 0; e < elements_; ++e) {
    for (int64_t row = 0; row < rows; ++row) {
      std::fill_n(m + e * m_step_ + row * stride_ + share_, stride_ - share_, 0.F);
    }
  }
}

// u[element]: channels by the filters of a share, packed.
void Winograd::transform_filters(const float* w, int64_t share, float* u, float* taps) const {
  const int64_t by_filter = filter_step(), by_channel = channel_step();
  const int64_t lanes = parts_.lanes;
  for (int64_t f = 0; f < share_; f += lanes) {
    const int64_t given = std::min(lanes, share_ - f);
    const float* const from = w + (share * share_ + f) * by_filter;
    const auto [first, step] = products_[0].packed_place(f);
    for (int64_t c = 0; c < d_.channels; ++c) {
      packing_.pack({from + c * by_channel, by_filter, 1, given, kTaps, taps, lanes, lanes});
      parts_.filters({taps, d_.turned, u + first + c * step, u_step_});
    }
  }
}

void Winograd::store_block(int64_t first, int64_t rows, int64_t share, const Scratch& s,
                           void* const* buffers) const {
  auto* const y = static_cast<float*>(buffers[2]);
  const int64_t row_size = tile_ * tile_columns_ * stride_, plane = d_.h_out * d_.w_out;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t image = (first + i) / tile_rows_, top = (first + i) % tile_rows_ * tile_;
    const bool is_broken = parts_.output({s.m + i * tile_columns_ * stride_, m_step_, stride_,
                                          tile_columns_, s.y, row_size, s.broken});
    if (is_broken) mend(first + i, share, s, buffers);
    float* to = y + (image * d_.filters + share * share_) * plane + top * d_.w_out;
    // From a row of these tiles to that of the next ones, of this image or the next one.
    const bool lowest = top + tile_ >= d_.h_out;
    const int64_t next = lowest ? d_.filters * plane - top * d_.w_out : tile_ * d_.w_out;
    for (int64_t r = 0; r < std::min(tile_, d_.h_out - top); ++r, to += d_.w_out) {
      packing_.pack(
          {s.y + r * row_size, stride_, 1, d_.w_out, share_, to, plane, d_.w_out, 0, next});
    }
  }
}

// Sums over a whole patch have made NaN of results that do not see what is infinite, NaN or huge in
// it: tiles of them are computed by the definition.
void Winograd::mend(int64_t row, int64_t share, const Scratch& s, void* const* buffers) const {
  const int64_t plane = d_.h * d_.w, top = row % tile_rows_ * tile_ - d_.pad_top;
  const auto* const image =
      static_cast<const float*>(buffers[0]) + row / tile_rows_ * d_.channels * plane;
  const auto* const w = static_cast<const float*>(buffers[1]) + share * share_ * filter_step();
  for (int64_t tile = 0; tile < tile_columns_; ++tile) {
    if (!s.broken[tile]) continue;
    copy_patch(image, top, tile * tile_ - d_.pad_left, s.patch);
    parts_.tile_results({s.patch, d_.channels, w, filter_step(), channel_step(), d_.turned,
                         s.y + tile * tile_ * stride_, tile_ * tile_columns_ * stride_, stride_,
                         share_});
  }
}

// patch[channel][row][column] with zeros outside of the image.
void Winograd::copy_patch(const float* image, int64_t top, int64_t left, float* patch) const {
  for (int64_t c = 0; c < d_.channels; ++c) {
    for (int64_t e = 0; e < elements_; ++e) {
      const int64_t row = top + e / parts_.patch, column = left + e % parts_.patch;
      const bool inside = row >= 0 && row < d_.h && column >= 0 && column < d_.w;
      *patch++ = inside ? image[(c * d_.h + row) * d_.w + column] : 0;
    }
  }
}

void Winograd::finish_block(int64_t first, int64_t rows, int64_t share, void* const* buffers,
                            void* scratch) const {
  for (int64_t at = first; at < first + rows;) {
    const int64_t image = at / tile_rows_, tile_row = at % tile_rows_;
    const int64_t count = std::min(first + rows - at, tile_rows_ - tile_row);
    const int64_t top = tile_row * tile_;
    epilogue_->run(buffers,
                   {image, share * share_, share_, top, std::min(count * tile_, d_.h_out - top)},
                   scratch);
    at += count;
  }
}

}  // namespace

WinogradDims forward_dims(const ref_conv2d_dims& d) {
  return {d.batch, d.c_in, d.h_in, d.w_in, d.c_out, d.h_out, d.w_out, d.pad_top, d.pad_left, false};
}

WinogradDims input_gradient_dims(const ref_conv2d_dims& d) {
  return {d.batch, d.c_out, d.h_out,       d.w_out,        d.c_in,
          d.h_in,  d.w_in,  2 - d.pad_top, 2 - d.pad_left, true};
}

// In multiply-adds for each pair of a channel and a filter; what is not multiplied was measured in
// the same unit.
int64_t winograd_tile(const WinogradDims& d, bool constant) {
  constexpr int64_t kFewest = 16;         // channels and filters
  constexpr double kRead = 11;            // a tap, from the third cache
  constexpr double kTransform = 14;       // a tap of a filter
  constexpr double kTransformPatch = 28;  // an element of one, of one channel: there, or back
  const WinogradParts* parts = parts_of(default_isa(), 4);
  if (parts == nullptr || d.channels < kFewest || d.filters < kFewest) return 0;
  const auto images = static_cast<double>(d.images);
  const auto channels = static_cast<double>(d.channels), filters = static_cast<double>(d.filters);
  const auto by_tiles = [&](int64_t tile) {
    const auto elements = static_cast<double>((tile + 2) * (tile + 2));
    const double tiles = images * static_cast<double>(core::ceil_div(d.h_out, tile)) *
                         static_cast<double>(core::ceil_div(d.w_out, tile));
    return elements * (tiles + kRead + (constant ? 0 : kTransform) +
                       kTransformPatch * tiles * (1 / channels + 1 / filters));
  };
  // A product of gathered taps goes by whole vectors of an image's results.
  const double vectors =
      images * static_cast<double>(core::round_up(d.h_out * d.w_out, parts->lanes));
  const double by_taps = kTaps * (vectors + kRead);
  const double by_4 = by_tiles(4), by_2 = by_tiles(2);
  if (by_taps <= std::min(by_4, by_2)) return 0;
  return by_4 <= by_2 ? 4 : 2;
}

core::Result<plan::Step> make_winograd(const WinogradDims& dims, int64_t tile, int threads,
                                       const float* filters, const select::Epilogue* epilogue) {
  return Winograd::make(dims, tile, threads, filters, epilogue);
}

}  // namespace mithril::cpu

#include "backends/cpu/conv/winograd_patches.h"

#include <algorithm>

#include "core/rounding.h"

namespace mithril::cpu {

WinogradPatches::WinogradPatches(Isa isa, const PatchDims& dims, int64_t channels,
                                 void (*apply)(const WinogradInput&))
    : dims_(dims),
      channels_(core::round_up(channels, gemm_lanes(isa, sizeof(float)))),
      columns_(dims.tile * (dims.tile_columns - 1) + dims.patch),
      apply_(apply),
      packing_(*gemm_parts<float>(isa)) {}

void WinogradPatches::transform(const float* planes, int64_t given, int64_t first, int64_t rows,
                                float* scratch, float* v, int64_t v_step) const {
  const PatchDims& d = dims_;
  const int64_t row_size = columns_ * channels_, shared = d.patch - d.tile;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t image = (first + i) / d.tile_rows, tile_row = (first + i) % d.tile_rows;
    int64_t filled = 0;
    if (i > 0 && tile_row > 0) {  // the last rows under the tiles above
      std::copy_n(scratch + d.tile * row_size, shared * row_size, scratch);
      filled = shared;
    }
    // From a row under these tiles to that under the next ones, of this image or the next one.
    const bool lowest = tile_row + 1 == d.tile_rows;
    const int64_t ahead = lowest ? d.image_step - tile_row * d.tile * d.w : d.tile * d.w;
    for (int64_t r = filled; r < d.patch; ++r) {
      fill_row(planes + image * d.image_step, given, tile_row * d.tile + r - d.pad_top,
               scratch + r * row_size, ahead);
    }
    apply_(
        {scratch, row_size, channels_, d.tile_columns, v + i * d.tile_columns * channels_, v_step});
  }
}

// One row of an image, channels last, with zeros around it.
void WinogradPatches::fill_row(const float* image, int64_t given, int64_t row, float* to,
                               int64_t ahead) const {
  const PatchDims& d = dims_;
  const bool inside = row >= 0 && row < d.h;
  const int64_t begin = inside ? std::clamp<int64_t>(d.pad_left, 0, columns_) : columns_;
  const int64_t end = inside ? std::clamp<int64_t>(d.pad_left + d.w, begin, columns_) : columns_;
  std::fill(to, to + begin * channels_, 0.F);
  std::fill(to + end * channels_, to + columns_ * channels_, 0.F);
  if (begin == end) return;
  const float* from = image + row * d.w + begin - d.pad_left;
  packing_.pack({from, d.h * d.w, 1, given, end - begin, to + begin * channels_, channels_,
                 channels_, ahead});
}

}  // namespace mithril::cpu

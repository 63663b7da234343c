// Rows of tiles of images, turned to channels last and transformed: what both factors of a
// convolution by tiles are made from.
#pragma once
#include <cstdint>

#include "backends/cpu/conv/winograd_parts.h"
#include "backends/cpu/gemm/gemm_tile.h"

namespace mithril::cpu {

/// Planes of images and the tiles that lie over each of them.
struct PatchDims {
  int64_t image_step;         // from one image to the next, in elements
  int64_t h, w;               // of a plane
  int64_t pad_top, pad_left;  // of the first patch, over the edge
  int64_t tile, patch;        // from one patch to the next, and how far each reaches
  int64_t tile_rows, tile_columns;
};

class WinogradPatches {
 public:
  /// `channels`: the most of one call.
  WinogradPatches(Isa isa, const PatchDims& dims, int64_t channels,
                  void (*apply)(const WinogradInput&));

  /// Channels of transformed patches: whole vectors.
  int64_t channels() const { return channels_; }
  int64_t scratch_floats() const { return dims_.patch * columns_ * channels_; }

  /// v[element][tile][channel] of `rows` rows of tiles from `first` on, counted over all images;
  /// zeros where `given` planes are less than there are channels.
  void transform(const float* planes, int64_t given, int64_t first, int64_t rows, float* scratch,
                 float* v, int64_t v_step) const;

 private:
  void fill_row(const float* image, int64_t given, int64_t row, float* to, int64_t ahead) const;

  PatchDims dims_;
  int64_t channels_;
  int64_t columns_;  // of a padded row
  void (*apply_)(const WinogradInput&);
  const GemmParts<float>& packing_;
};

}  // namespace mithril::cpu

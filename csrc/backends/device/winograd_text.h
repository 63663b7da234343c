// Texts of a convolution of 3x3 windows by tiles (Winograd): its filters, patches of its images and
// its results, each transformed.
#pragma once
#include <cstdint>
#include <string>

namespace mithril::device {

/// A convolution of 3x3 windows without strides, dilations and groups; for the gradient with
/// respect to the input, that of cotangents with turned filters.
struct Winograd {
  int64_t images = 0, channels = 0, h = 0, w = 0;
  int64_t filters = 0, h_out = 0, w_out = 0;
  int64_t pad_top = 0, pad_left = 0;
  bool turned = false;  // filter f of channel c is w[c][f], read backwards; else w[f][c]
  int64_t tile = 4;     // of results, along either axis: 4 or 2

  int64_t patch() const { return tile + 2; }  // what a tile is computed from
  int64_t elements() const { return patch() * patch(); }
  int64_t rows() const { return (h_out + tile - 1) / tile; }  // of tiles, of an image
  int64_t columns() const { return (w_out + tile - 1) / tile; }
  int64_t tiles() const { return images * rows() * columns(); }
};

/// Says how transformed factors and their products lie, in elements: u[element] as `share` filters
/// lie (by filter and channel, or turned), v[element][channel][tile], m[element][filter][tile].
struct WinogradLayout {
  int64_t lanes = 1;  // tiles, or numbers of a row of filters, that are transformed side by side
  int64_t share = 0;  // filters
  int64_t u_step = 0, v_step = 0, m_step = 0;  // from one element to the next
  int64_t row = 0;                             // from one channel or filter of v and m to the next
};

/// Units of the text are `lanes` channels of a filter, or filters of a channel where they are
/// turned, of a share from `first_filter` on (an expression); `u` is a pointer in it.
std::string print_filters(const Winograd& conv, const WinogradLayout& layout,
                          const std::string& first_filter);
int64_t filter_units(const Winograd& conv, const WinogradLayout& layout);

/// Units are `lanes` tiles of a channel, of those from `first` on (an expression), of which there
/// are `blocks` units; `v` is a pointer in it.
std::string print_patches(const Winograd& conv, const WinogradLayout& layout,
                          const std::string& first, int64_t blocks);

/// Units are `lanes` tiles of a filter, of those from `first` on and of filters from `first_filter`
/// on (expressions); `m` is a pointer in it. Results that are not finite, or so large that their
/// rounding would drown what lies beside them, are computed by the definition, in canonical order.
std::string print_results(const Winograd& conv, const WinogradLayout& layout,
                          const std::string& first, int64_t blocks, const std::string& first_filter,
                          bool has_epilogue);

}  // namespace mithril::device

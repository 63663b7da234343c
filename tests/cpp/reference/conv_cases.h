// Convolutions that the three tests share, and their products written out from the definition.
#pragma once
#include "reference/support.h"

namespace mithril::testing_support {

/// batch, groups, c_in, h_in, w_in, c_out, h_out, w_out, kh, kw, strides, pads, dilations.
inline std::vector<ref_conv2d_dims> conv_cases() {
  return {
      {1, 1, 1, 4, 4, 1, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1},
      {2, 1, 3, 5, 6, 2, 5, 6, 3, 3, 1, 1, 1, 1, 1, 1},      // same size
      {1, 2, 2, 7, 8, 3, 4, 4, 3, 2, 2, 2, 1, 0, 1, 1},      // groups, strides, padding below
      {1, 1, 2, 9, 80, 2, 3, 78, 3, 3, 2, 1, 0, 0, 2, 1},    // dilation, wide rows
      {1, 1, 29, 4, 4, 2, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1},     // depth 261: two blocks
      {2, 1, 2, 6, 5, 60, 6, 5, 3, 3, 1, 1, 2, 1, 1, 1},     // dx depth 540; asymmetric padding
      {3, 1, 1, 13, 11, 2, 13, 11, 1, 1, 1, 1, 0, 0, 1, 1},  // dw depth 429
      {1, 1, 1, 5, 7, 1, 2, 2, 2, 2, 3, 4, 0, 1, 1, 1},      // stride beyond the kernel
      {1, 1, 2, 3, 3, 2, 6, 7, 2, 2, 1, 1, 2, 3, 1, 1},      // outputs of padding alone
      {1, 1, 0, 3, 3, 2, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1},      // no input channels
      {0, 1, 1, 3, 3, 2, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1},      // no images
      {1, 1, 1, 3, 3, 0, 2, 2, 2, 2, 1, 1, 0, 0, 1, 1},      // no filters
  };
}

inline int64_t x_size(const ref_conv2d_dims& d) {
  return d.batch * d.groups * d.c_in * d.h_in * d.w_in;
}
inline int64_t w_size(const ref_conv2d_dims& d) {
  return d.groups * d.c_out * d.c_in * d.kh * d.kw;
}
inline int64_t y_size(const ref_conv2d_dims& d) {
  return d.batch * d.groups * d.c_out * d.h_out * d.w_out;
}

/// Calls visit(y index, w index, x index or -1 in the padding) for each product of a convolution,
/// outputs in row-major order, taps in the order (c, kh, kw).
template <class Visit>
void each_product(const ref_conv2d_dims& d, Visit visit) {
  for (int64_t y = 0; y < y_size(d); ++y) {
    const int64_t ow = y % d.w_out, oh = y / d.w_out % d.h_out;
    const int64_t o = y / d.w_out / d.h_out % (d.groups * d.c_out);
    const int64_t n = y / d.w_out / d.h_out / (d.groups * d.c_out);
    for (int64_t tap = 0; tap < d.c_in * d.kh * d.kw; ++tap) {
      const int64_t j = tap % d.kw, i = tap / d.kw % d.kh, c = tap / d.kw / d.kh;
      const int64_t ih = oh * d.stride_h + i * d.dilation_h - d.pad_top;
      const int64_t iw = ow * d.stride_w + j * d.dilation_w - d.pad_left;
      const bool inside = ih >= 0 && ih < d.h_in && iw >= 0 && iw < d.w_in;
      const int64_t plane = (n * d.groups + o / d.c_out) * d.c_in + c;
      visit(y, o * d.c_in * d.kh * d.kw + tap,
            inside ? (plane * d.h_in + ih) * d.w_in + iw : int64_t{-1});
    }
  }
}

}  // namespace mithril::testing_support

// The transforms of F(4x4, 3x3) and F(2x2, 3x3): Lavin and Gray, Fast Algorithms for Convolutional
// Neural Networks (arXiv:1509.09308); the larger one interpolated at 0, infinity and the square
// roots of 1/2 and 2, which round a fourth of what the paper's 1 and 2 do. Each is a matrix that is
// applied to the columns of a patch and then to its rows.
#include "backends/cpu/conv/winograd_parts.h"

#if defined(__AVX2__)
#include "backends/cpu/machine/lanes.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

using Lane = FloatLane;
constexpr int64_t kLanes = Lane::width;

constexpr float kRoot = 1.41421356F;  // of 2

// `in(i)` loads the i-th value, `out(i, value)` stores the i-th result.

struct Of4 {
  static constexpr int64_t kTile = 4;

  template <class In, class Out>
  static void transform_input(const In& in, const Out& out) {
    const Lane d0 = in(0), d1 = in(1), d2 = in(2), d3 = in(3), d4 = in(4), d5 = in(5);
    const Lane half(0.5F), two(2.F), both(2.5F), root(kRoot), half_root(kRoot / 2);
    out(0, fnma(both, d2, d0 + d4));
    const Lane near_even = fnma(two, d2, d4), near_odd = fnma(two, d1, d3);
    out(1, fma(half_root, near_odd, near_even));
    out(2, fnma(half_root, near_odd, near_even));
    const Lane far_even = fnma(half, d2, d4), far_odd = fnma(half, d1, d3);
    out(3, fma(root, far_odd, far_even));
    out(4, fnma(root, far_odd, far_even));
    out(5, fnma(both, d3, d1 + d5));
  }

  template <class In, class Out>
  static void transform_output(const In& in, const Out& out) {
    const Lane m1 = in(1), m2 = in(2), m3 = in(3), m4 = in(4);
    const Lane near = m1 + m2, near_odd = m1 - m2, far = m3 + m4, far_odd = m3 - m4;
    const Lane quarter(0.25F), half(0.5F), two(2.F), root(kRoot);
    out(0, in(0) + (near + far));
    out(1, root * fma(half, near_odd, far_odd));
    out(2, fma(two, far, half * near));
    out(3, fma(root, fma(two, far_odd, quarter * near_odd), in(5)));
  }

  template <class In, class Out>
  static void transform_filter(const In& in, const Out& out) {
    const Lane g0 = in(0), g1 = in(1), g2 = in(2);
    out(0, g0);
    const Lane near = fma(Lane(2.F), g0, g2) * Lane(-1.F / 3), near_odd = g1 * Lane(-kRoot / 3);
    out(1, near + near_odd);
    out(2, near - near_odd);
    const Lane far = fma(Lane(2.F), g2, g0) * Lane(1.F / 6), far_odd = g1 * Lane(kRoot / 6);
    out(3, far + far_odd);
    out(4, far - far_odd);
    out(5, g2);
  }

  // The transpose of transform_output.
  template <class In, class Out>
  static void transform_cotangent(const In& in, const Out& out) {
    const Lane d0 = in(0), d1 = in(1), d2 = in(2), d3 = in(3);
    const Lane half(0.5F), two(2.F), root(kRoot), half_root(kRoot / 2);
    out(0, d0);
    const Lane near = fma(half, d2, d0), near_odd = fma(half, d3, d1);
    out(1, fma(half_root, near_odd, near));
    out(2, fnma(half_root, near_odd, near));
    const Lane far = fma(two, d2, d0), far_odd = fma(two, d3, d1);
    out(3, fma(root, far_odd, far));
    out(4, fnma(root, far_odd, far));
    out(5, d3);
  }

  // The transpose of transform_filter.
  template <class In, class Out>
  static void transform_sums(const In& in, const Out& out) {
    const Lane m1 = in(1), m2 = in(2), m3 = in(3), m4 = in(4);
    const Lane near = m1 + m2, far = m3 + m4, third(1.F / 3), sixth(1.F / 6);
    out(0, fma(sixth, far, fnma(third + third, near, in(0))));
    out(1, fma(Lane(kRoot / 6), m3 - m4, Lane(kRoot / 3) * (m2 - m1)));
    out(2, fma(third, far - near, in(5)));
  }
};

struct Of2 {
  static constexpr int64_t kTile = 2;

  template <class In, class Out>
  static void transform_input(const In& in, const Out& out) {
    const Lane d0 = in(0), d1 = in(1), d2 = in(2), d3 = in(3);
    out(0, d0 - d2);
    out(1, d1 + d2);
    out(2, d2 - d1);
    out(3, d1 - d3);
  }

  template <class In, class Out>
  static void transform_output(const In& in, const Out& out) {
    const Lane m1 = in(1), m2 = in(2);
    out(0, in(0) + (m1 + m2));
    out(1, (m1 - m2) - in(3));
  }

  template <class In, class Out>
  static void transform_filter(const In& in, const Out& out) {
    const Lane g0 = in(0), g1 = in(1), g2 = in(2), half(0.5F);
    const Lane even = half * (g0 + g2), odd = half * g1;
    out(0, g0);
    out(1, even + odd);
    out(2, even - odd);
    out(3, g2);
  }
};

// Values `step` elements apart.
auto loads(const float* at, int64_t step) {
  return [at, step](int64_t i) { return Lane::load(at + i * step); };
}
auto stores(float* at, int64_t step) {
  return [at, step](int64_t i, Lane value) { value.store(at + i * step); };
}

template <class Of>
void input(const WinogradInput& w) {
  constexpr int64_t kTile = Of::kTile, kPatch = kTile + 2, kElements = kPatch * kPatch;
  alignas(64) float columns[kElements * kLanes];
  for (int64_t tile = 0; tile < w.tiles; ++tile) {
    for (int64_t c = 0; c < w.channels; c += kLanes) {
      const float* x = w.x + tile * kTile * w.channels + c;
      float* v = w.v + tile * w.channels + c;
      for (int64_t j = 0; j < kPatch; ++j) {
        Of::transform_input(loads(x + j * w.channels, w.row_step),
                            stores(columns + j * kLanes, kPatch * kLanes));
      }
      for (int64_t i = 0; i < kPatch; ++i) {
        Of::transform_input(loads(columns + i * kPatch * kLanes, kLanes),
                            stores(v + i * kPatch * w.element_step, w.element_step));
      }
    }
  }
}

// Stores, and adds 0 times each value to `check`, which is NaN from the first on that is not finite
// or so large that its rounding would drown what lies beside it.
auto checked_stores(float* at, int64_t step, Lane& check) {
  return [at, step, &check](int64_t i, Lane value) {
    value.store(at + i * step);
    check = fma(value * Lane(kOverflowsIfHuge), Lane(0.F), check);
  };
}

template <class Of>
bool output(const WinogradOutput& w) {
  constexpr int64_t kTile = Of::kTile, kPatch = kTile + 2;
  alignas(64) float columns[kTile * kPatch * kLanes];
  bool any = false;
  for (int64_t tile = 0; tile < w.tiles; ++tile) {
    Lane check(0.F);
    for (int64_t c = 0; c < w.channels; c += kLanes) {
      const float* m = w.m + tile * w.channels + c;
      float* y = w.y + tile * kTile * w.channels + c;
      for (int64_t j = 0; j < kPatch; ++j) {
        Of::transform_output(loads(m + j * w.element_step, kPatch * w.element_step),
                             stores(columns + j * kLanes, kPatch * kLanes));
      }
      for (int64_t i = 0; i < kTile; ++i) {
        Of::transform_output(loads(columns + i * kPatch * kLanes, kLanes),
                             checked_stores(y + i * w.row_step, w.channels, check));
      }
    }
    w.broken[tile] = !all(check == check, check);
    any = any || w.broken[tile];
  }
  return any;
}

bool are_nan(const float* x, int64_t count) {
  bool all = true;
  for (int64_t i = 0; i < count; ++i) all = all && x[i] != x[i];
  return all;
}

// Rows of a tile side by side: compilers make vectors of them.
template <int64_t kTile>
void add_tap(float factor, const float* from, float* sums) {
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t j = 0; j < kTile; ++j) sums[i * kTile + j] += factor * from[i * (kTile + 2) + j];
  }
}

template <class Of>
void tile_results(const WinogradTile& w) {
  constexpr int64_t kTile = Of::kTile, kPatch = kTile + 2;
  for (int64_t f = 0; f < w.filters; ++f) {
    float sums[kTile * kTile] = {};
    for (int64_t c = 0; c < w.channels && !are_nan(sums, kTile * kTile); ++c) {
      const float* const taps = w.w + f * w.filter_step + c * w.channel_step;
      const float* const patch = w.patch + c * kPatch * kPatch;
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        const float factor = taps[w.turned ? kTaps - 1 - tap : tap];
        add_tap<kTile>(factor, patch + tap / 3 * kPatch + tap % 3, sums);
      }
    }
    for (int64_t i = 0; i < kTile; ++i) {
      for (int64_t j = 0; j < kTile; ++j) {
        w.y[i * w.row_step + j * w.column_step + f] = sums[i * kTile + j];
      }
    }
  }
}

template <class Of>
void filters(const WinogradFilters& w) {
  constexpr int64_t kPatch = Of::kTile + 2;
  alignas(64) float columns[kPatch * 3 * kLanes];
  for (int64_t j = 0; j < 3; ++j) {
    const float* first = w.taps + (w.turned ? kTaps - 1 - j : j) * kLanes;
    Of::transform_filter(loads(first, w.turned ? -3 * kLanes : 3 * kLanes),
                         stores(columns + j * kLanes, 3 * kLanes));
  }
  for (int64_t i = 0; i < kPatch; ++i) {
    Of::transform_filter(loads(columns + i * 3 * kLanes, kLanes),
                         stores(w.u + i * kPatch * w.element_step, w.element_step));
  }
}

void cotangents(const WinogradInput& w) {
  constexpr int64_t kTile = Of4::kTile, kPatch = kTile + 2;
  alignas(64) float columns[kPatch * kTile * kLanes];
  for (int64_t tile = 0; tile < w.tiles; ++tile) {
    for (int64_t c = 0; c < w.channels; c += kLanes) {
      const float* x = w.x + tile * kTile * w.channels + c;
      float* v = w.v + tile * w.channels + c;
      for (int64_t j = 0; j < kTile; ++j) {
        Of4::transform_cotangent(loads(x + j * w.channels, w.row_step),
                                 stores(columns + j * kLanes, kTile * kLanes));
      }
      for (int64_t i = 0; i < kPatch; ++i) {
        Of4::transform_cotangent(loads(columns + i * kTile * kLanes, kLanes),
                                 stores(v + i * kPatch * w.element_step, w.element_step));
      }
    }
  }
}

void sums(const WinogradSums& w) {
  constexpr int64_t kPatch = Of4::kTile + 2;
  alignas(64) float columns[3 * kPatch * kLanes];
  for (int64_t j = 0; j < kPatch; ++j) {
    Of4::transform_sums(loads(w.m + j * w.element_step, kPatch * w.element_step),
                        stores(columns + j * kLanes, kPatch * kLanes));
  }
  for (int64_t i = 0; i < 3; ++i) {
    Of4::transform_sums(loads(columns + i * kPatch * kLanes, kLanes),
                        stores(w.taps + 3 * i * kLanes, kLanes));
  }
}

}  // namespace

const WinogradParts kTilesOf4 = {kLanes,      4, 6, input<Of4>, output<Of4>, tile_results<Of4>,
                                 filters<Of4>};
const WinogradParts kTilesOf2 = {kLanes,      2, 4, input<Of2>, output<Of2>, tile_results<Of2>,
                                 filters<Of2>};
const WinogradGradientParts kGradientOf4 = {cotangents, sums};

}  // namespace mithril::cpu::MITHRIL_ISA

#endif

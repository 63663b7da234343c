// What convolution by small tiles and its transforms for one instruction set agree on. All of it is
// channels last: lanes lie along the channels, whose count is rounded up to whole vectors.
#pragma once
#include <cstdint>

#include "backends/cpu/machine/cpuid.h"

namespace mithril::cpu {

constexpr int64_t kTaps = 3 * 3;
constexpr float kHuge = 0x1p40F;             // results above it are computed by the definition
constexpr float kOverflowsIfHuge = 0x1p88F;  // times what is at least that: infinite

/// A row of tiles: x[patch rows][tile * tiles + 2 columns][channels] to
/// v[patch * patch][tiles][channels]. Steps in elements.
struct WinogradInput {
  const float* x;
  int64_t row_step, channels, tiles;
  float* v;
  int64_t element_step;
};

/// m[patch * patch][tiles][channels] to y[tile rows][tile * tiles columns][channels]; `broken` says
/// of each tile whether a result of it is huge or not finite.
struct WinogradOutput {
  const float* m;
  int64_t element_step, channels, tiles;
  float* y;
  int64_t row_step;
  bool* broken;
};

/// The results of one tile by the definition, from patch[channels][patch][patch]: y[tile rows][tile
/// columns][filters], of filters that lie `filter_step` apart, and their channels `channel_step`.
struct WinogradTile {
  const float* patch;
  int64_t channels;
  const float* w;
  int64_t filter_step, channel_step;
  bool turned;
  float* y;
  int64_t row_step, column_step, filters;
};

/// One vector of filters: taps[9][lanes] to u[patch * patch][lanes]. Turned filters are read
/// backwards, as the gradient of the input wants them.
struct WinogradFilters {
  const float* taps;
  bool turned;
  float* u;
  int64_t element_step;
};

/// One vector of sums over tiles, m[patch * patch][lanes], to the gradient of filters,
/// taps[9][lanes].
struct WinogradSums {
  const float* m;
  int64_t element_step;
  float* taps;
};

struct WinogradParts {
  int64_t lanes;
  int64_t tile;   // of results, along either axis
  int64_t patch;  // of what a tile is computed from: tile + 2
  void (*input)(const WinogradInput&);
  bool (*output)(const WinogradOutput&);  // whether a tile is broken
  void (*tile_results)(const WinogradTile&);
  void (*filters)(const WinogradFilters&);
};

/// For the gradient of the filters: the transposes of `output` and of `filters`. Patches of the
/// input are those of tiles of 4.
struct WinogradGradientParts {
  void (*cotangents)(const WinogradInput&);  // of x[tile rows][tile * tiles columns][channels]
  void (*sums)(const WinogradSums&);
};

#if defined(__x86_64__)
namespace avx2 {
extern const WinogradParts kTilesOf4, kTilesOf2;
extern const WinogradGradientParts kGradientOf4;
}  // namespace avx2
namespace avx512 {
extern const WinogradParts kTilesOf4, kTilesOf2;
extern const WinogradGradientParts kGradientOf4;
}  // namespace avx512
#endif

}  // namespace mithril::cpu

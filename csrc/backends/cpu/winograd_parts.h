// What convolution by small tiles and its transforms for one instruction set agree on. All of it is
// channels last: lanes lie along the channels, whose count is rounded up to whole vectors.
#pragma once
#include <cstdint>

#include "backends/cpu/cpuid.h"

namespace mithril::cpu {

constexpr int64_t kTile = 4;                    // of results, along either axis
constexpr int64_t kPatch = 6;                   // of what a tile is computed from
constexpr int64_t kElements = kPatch * kPatch;  // of a transformed patch
constexpr int64_t kTaps = 3 * 3;

/// A row of tiles: x[6 rows][4 * tiles + 2 columns][channels] to v[36][tiles][channels]. Steps in
/// elements.
struct WinogradInput {
  const float* x;
  int64_t row_step, channels, tiles;
  float* v;
  int64_t element_step;
};

/// m[36][tiles][channels] to y[4 rows][4 * tiles columns][channels].
struct WinogradOutput {
  const float* m;
  int64_t element_step, channels, tiles;
  float* y;
  int64_t row_step;
};

/// One vector of filters: taps[9][lanes] to u[36][lanes]. Turned filters are read backwards, as
/// the gradient of the input wants them.
struct WinogradFilters {
  const float* taps;
  bool turned;
  float* u;
  int64_t element_step;
};

struct WinogradParts {
  int64_t lanes;
  void (*input)(const WinogradInput&);
  void (*output)(const WinogradOutput&);
  void (*filters)(const WinogradFilters&);
};

#if defined(__x86_64__)
namespace avx2 {
extern const WinogradParts kWinograd;
}
namespace avx512 {
extern const WinogradParts kWinograd;
}
#endif

}  // namespace mithril::cpu

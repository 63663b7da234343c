// Convolution of 3x3 windows by tiles of 4x4 results, a quarter of the multiplications, or of 2x2,
// four in nine: filters and patches are transformed, multiplied element by element as matrices of
// channels, and transformed back. Sums are taken in another order than canonical kernels take
// (docs/numerics.md says how far results may lie apart), and depend on sizes alone.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "backends/device/products.h"
#include "backends/device/winograd_text.h"

namespace mithril::device {

/// Tells kinds of devices apart: few long items, each with memory of its own that caches hold, as
/// on a CPU; or many short ones.
enum class Items : uint8_t { kLong, kShort };

/// The tile that is expected to be quickest, 4 or 2, for a convolution of any tile; 0 where
/// products of gathered taps are.
int64_t winograd_tile(const Winograd& conv, Items items);

/// For tests and measurements: takes tiles of this size, 4 or 2, wherever there can be tiles, or
/// none (0), and no library; without a number, as winograd_tile() says. Programs that were made
/// stay as they are.
void force_winograd_tile(std::optional<int64_t> tile);
bool is_winograd_tile_forced();

/// The convolution of a node of op conv2d, or that of its gradient by the input, where tiles are
/// taken: float32, windows of 3x3, and neither strides, dilations nor groups.
std::optional<Winograd> winograd_of_conv2d(const KernelRequest& request, Items items);
std::optional<Winograd> winograd_of_conv2d_dx(const KernelRequest& request, Items items);

plan::Step winograd_step(const KernelRequest& request, const Winograd& conv, Items items,
                         const ProductLanguage& language);

/// The rows of a language, which stand before its others.
template <const ProductLanguage& kLanguage, Items kItems>
struct WinogradRows {
  using Of = std::optional<Winograd> (*)(const KernelRequest&, Items);
  template <Of kOf>
  static bool fits(const KernelRequest& request) {
    return kOf(request, kItems).has_value();
  }
  template <Of kOf>
  static core::Result<plan::Step> make(const KernelRequest& request) {
    return winograd_step(request, *kOf(request, kItems), kItems, kLanguage);
  }
  template <Of kOf>
  static constexpr select::KernelDef row(const char* op, const char* name) {
    return {op,
            name,
            select::OrderClass::kOther,
            true,
            {fits<kOf>,
             "float32, windows of 3x3 without strides, dilations and groups, and time to be saved "
             "by tiles"},
            make<kOf>,
            select::EpilogueSupport::kBlocks};
  }
  static constexpr std::array<select::KernelDef, 2> rows(const char* conv2d,
                                                         const char* conv2d_dx) {
    return {row<winograd_of_conv2d>("conv2d", conv2d),
            row<winograd_of_conv2d_dx>("conv2d_dx", conv2d_dx)};
  }
};

}  // namespace mithril::device

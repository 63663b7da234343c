// Matrix products and convolutions in register tiles; convolutions gather their taps as panels.
#include <array>

#include "backends/device/kernel_families.h"
#include "backends/device/winograd.h"
#include "backends/opencl/gemm_text.h"
#include "backends/opencl/kernel_families.h"

namespace mithril::opencl {
namespace {

constexpr device::ProductLanguage kLanguage = {print_gemm, gemm_units};
using Rows = device::ProductRows<kLanguage>;
constexpr select::KernelDef kKernels[] = {
    Rows::matmul("opencl.matmul"),          Rows::conv2d("opencl.conv2d"),
    Rows::conv2d_dx("opencl.conv2d_dx")[0], Rows::conv2d_dx("opencl.conv2d_dx")[1],
    Rows::conv2d_dw("opencl.conv2d_dw"),
};

template <device::Items kItems>
using Tiles = device::WinogradRows<kLanguage, kItems>;
constexpr const char *kTiles = "opencl.conv2d.winograd", *kTilesDx = "opencl.conv2d_dx.winograd";
constexpr auto kLongTiles = Tiles<device::Items::kLong>::rows(kTiles, kTilesDx);
constexpr auto kShortTiles = Tiles<device::Items::kShort>::rows(kTiles, kTilesDx);

std::span<const select::KernelDef> product_kernels() { return kKernels; }
std::span<const select::KernelDef> long_tiles() { return kLongTiles; }
std::span<const select::KernelDef> short_tiles() { return kShortTiles; }

// In order of preference within an op.
constexpr std::array<select::KernelFamily, 7> families(select::KernelFamily tiles) {
  return {tiles,
          product_kernels,
          device::row_kernels,
          device::movement_kernels,
          device::pool_kernels,
          device::axis_kernels,
          device::attention_kernels};
}
constexpr auto kOfCpus = families(long_tiles), kOfOthers = families(short_tiles);

}  // namespace

std::span<const select::KernelFamily> kernel_families(bool is_cpu) {
  return is_cpu ? kOfCpus : kOfOthers;
}

}  // namespace mithril::opencl

// Matrix products and convolutions in tiles of blocks; convolutions gather their taps. Products by
// cuBLASLt and convolutions by cuDNN stand before them where these are there.
#include <array>
#include <vector>

#include "backends/cuda/kernel_families.h"
#include "backends/device/block_products.h"
#include "backends/device/kernel_families.h"
#include "backends/device/library_products.h"
#include "backends/device/winograd.h"
#include "select/kernel_rows.h"
#include "select/views.h"
#include "tile/convert.h"

namespace mithril::cuda {
namespace {

using select::KernelRequest;

constexpr device::ProductLanguage kLanguage = {device::print_block_product,
                                               device::block_product_units, device::kBlockTile};
using Rows = device::ProductRows<kLanguage>;
constexpr select::KernelDef kKernels[] = {
    Rows::matmul("cuda.matmul"),          Rows::conv2d("cuda.conv2d"),
    Rows::conv2d_dx("cuda.conv2d_dx")[0], Rows::conv2d_dx("cuda.conv2d_dx")[1],
    Rows::conv2d_dw("cuda.conv2d_dw"),
};

constexpr auto kTiles = device::WinogradRows<kLanguage, device::Items::kShort>::rows(
    "cuda.conv2d.winograd", "cuda.conv2d_dx.winograd");

bool fits_library(const KernelRequest& request) {
  return device::library_matmul(request).has_value();
}

// Halves in any layout, once they are copied: that is less work than a product without tensor
// cores.
bool fits_library_copied(const KernelRequest& request) {
  std::vector<select::Operand> copies(request.inputs.begin(), request.inputs.end());
  for (select::Operand& copy : copies) copy.strides = select::contiguous_strides(copy.shape);
  KernelRequest copied = request;
  copied.inputs = copies;
  return tile::is_half(request.inputs[0].dtype) && fits_library(copied);
}

template <bool kAllowsTf32>
core::Result<plan::Step> make_library_step(const KernelRequest& request) {
  plan::LibraryMatmul product = *device::library_matmul(request);
  product.allows_tf32 = kAllowsTf32 && product.dtype == core::DType::kFloat32;
  return device::library_step(request, product, kLanguage);
}

// Two rows of each op.
template <bool kAllowsTf32>
constexpr std::array<select::KernelDef, 6> library_matmul(const char* name) {
  select::KernelDef as_they_lie = {
      "matmul",
      name,
      select::OrderClass::kOther,
      false,
      {fits_library, "floats of one type, some, side by side along an axis"},
      make_library_step<kAllowsTf32>,
      select::EpilogueSupport::kBlocks};
  select::KernelDef copied = as_they_lie;
  copied.contiguous = true;
  copied.matches = {fits_library_copied, "halves, some"};
  const auto of = [](const char* op, select::KernelDef row) {
    row.op = op;
    return row;
  };
  return {as_they_lie,
          copied,
          of("widening_matmul", as_they_lie),
          of("widening_matmul", copied),
          of("biased_matmul", as_they_lie),
          of("biased_matmul", copied)};
}
constexpr auto kLibrary = library_matmul<false>("cuda.cublaslt");
constexpr auto kLibraryTf32 = library_matmul<true>("cuda.cublaslt_tf32");

template <bool kHasBfloat16>
bool fits_cudnn(const KernelRequest& request) {
  return !device::is_winograd_tile_forced() &&
         (kHasBfloat16 || request.outputs[0].dtype != core::DType::kBFloat16) &&
         device::library_conv2d(request).has_value();
}

// Tells whether kernels, too, finish the result by blocks, which lie side by side.
template <bool kHasBfloat16>
bool fits_cudnn_side_by_side(const KernelRequest& request) {
  if (!fits_cudnn<kHasBfloat16>(request)) return false;
  const plan::LibraryConv2d product = *device::library_conv2d(request);
  return product.stride_h == 1 && product.stride_w == 1;
}

template <bool kAllowsTf32>
core::Result<plan::Step> make_cudnn_step(const KernelRequest& request) {
  plan::LibraryConv2d product = *device::library_conv2d(request);
  product.allows_tf32 = kAllowsTf32 && product.dtype == core::DType::kFloat32;
  return device::library_step(request, product, kLanguage);
}

template <bool kAllowsTf32, bool kHasBfloat16>
constexpr std::array<select::KernelDef, 4> library_conv2d(const char* name) {
  using Support = select::EpilogueSupport;
  const auto row = [&](const char* op, Support epilogues, const select::Condition& matches) {
    return select::KernelDef{op,       name,    select::OrderClass::kOther,
                             true,     matches, make_cudnn_step<kAllowsTf32>,
                             epilogues};
  };
  constexpr select::Condition kFits = {
      fits_cudnn<kHasBfloat16>, "floats of one type, some, and padding alike on either side"};
  constexpr select::Condition kFitsSideBySide = {
      fits_cudnn_side_by_side<kHasBfloat16>,
      "floats of one type, some, padding alike on either side, and no strides"};
  constexpr select::Condition kFitsStrided = {
      fits_cudnn<kHasBfloat16>,
      "floats of one type, some, padding alike on either side, and strides of at most 4"};
  return {
      row("conv2d", Support::kBlocks, kFits), row("conv2d_dx", Support::kBlocks, kFitsSideBySide),
      row("conv2d_dx", Support::kNothing, kFitsStrided), row("conv2d_dw", Support::kBlocks, kFits)};
}
constexpr auto kCudnn = library_conv2d<false, true>("cuda.cudnn");
constexpr auto kCudnnTf32 = library_conv2d<true, true>("cuda.cudnn_tf32");
constexpr auto kCudnnWithoutBfloat16 = library_conv2d<false, false>("cuda.cudnn");

template <const auto& kRows>
std::span<const select::KernelDef> rows() {
  return kRows;
}
std::span<const select::KernelDef> no_rows() { return {}; }

// In the order of Products and of Convolutions.
constexpr select::KernelFamily kOfProducts[] = {no_rows, rows<kLibrary>, rows<kLibraryTf32>};
constexpr select::KernelFamily kOfConvolutions[] = {no_rows, rows<kCudnn>, rows<kCudnnTf32>,
                                                    rows<kCudnnWithoutBfloat16>};

using Families = std::array<select::KernelFamily, 10>;
constexpr auto kFamilies = [] {
  std::array<std::array<Families, std::size(kOfConvolutions)>, std::size(kOfProducts)> out{};
  for (size_t i = 0; i < std::size(kOfProducts); ++i) {
    for (size_t k = 0; k < std::size(kOfConvolutions); ++k) {
      out[i][k] = {tile_attention_kernels,  // only where warps multiply tiles
                   kOfProducts[i],         kOfConvolutions[k],   rows<kTiles>,
                   rows<kKernels>,         device::row_kernels,  device::movement_kernels,
                   device::pool_kernels,   device::axis_kernels, device::attention_kernels};
    }
  }
  return out;
}();

}  // namespace

std::span<const select::KernelFamily> kernel_families(const Makers& makers) {
  const std::span<const select::KernelFamily> all =
      kFamilies[static_cast<size_t>(makers.products)][static_cast<size_t>(makers.convolutions)];
  return makers.multiplies_tiles ? all : all.subspan(1);
}

}  // namespace mithril::cuda

// Matrix products and convolutions in tiles of blocks; convolutions gather their taps. Products by
// cuBLASLt stand before them where it is there.
#include <array>
#include <vector>

#include "backends/cuda/gemm_text.h"
#include "backends/cuda/kernel_families.h"
#include "backends/device/kernel_families.h"
#include "backends/device/library_products.h"
#include "select/kernel_rows.h"
#include "select/views.h"

namespace mithril::cuda {
namespace {

using select::KernelRequest;

constexpr device::ProductLanguage kLanguage = {print_gemm, gemm_units, kGemmThreads};
using Rows = device::ProductRows<kLanguage>;
constexpr select::KernelDef kKernels[] = {
    Rows::matmul("cuda.matmul"),          Rows::conv2d("cuda.conv2d"),
    Rows::conv2d_dx("cuda.conv2d_dx")[0], Rows::conv2d_dx("cuda.conv2d_dx")[1],
    Rows::conv2d_dw("cuda.conv2d_dw"),
};

bool fits_library(const KernelRequest& request) {
  return device::library_product(request).has_value();
}

// Halves in any layout, once they are copied: kernels multiply no halves.
bool fits_library_copied(const KernelRequest& request) {
  std::vector<select::Operand> copies(request.inputs.begin(), request.inputs.end());
  for (select::Operand& copy : copies) copy.strides = select::contiguous_strides(copy.shape);
  KernelRequest copied = request;
  copied.inputs = copies;
  return !select::has_real_type(request) && fits_library(copied);
}

template <bool kAllowsTf32>
core::Result<plan::Step> make_library_step(const KernelRequest& request) {
  plan::LibraryProduct product = *device::library_product(request);
  product.allows_tf32 = kAllowsTf32 && product.dtype == core::DType::kFloat32;
  return device::library_step(request, product, kLanguage);
}

template <bool kAllowsTf32>
constexpr std::array<select::KernelDef, 2> library_matmul(const char* name) {
  select::KernelDef as_they_lie = {
      "matmul",
      name,
      select::OrderClass::kOther,
      false,
      {fits_library,
       "floats of one type, some, side by side along an axis, and no deterministic='portable'"},
      make_library_step<kAllowsTf32>,
      select::EpilogueSupport::kBlocks};
  select::KernelDef copied = as_they_lie;
  copied.contiguous = true;
  copied.matches = {fits_library_copied, "halves, some, and no deterministic='portable'"};
  return {as_they_lie, copied};
}
constexpr auto kLibrary = library_matmul<false>("cuda.cublaslt");
constexpr auto kLibraryTf32 = library_matmul<true>("cuda.cublaslt_tf32");

std::span<const select::KernelDef> product_kernels() { return kKernels; }
std::span<const select::KernelDef> library_kernels() { return kLibrary; }
std::span<const select::KernelDef> library_kernels_tf32() { return kLibraryTf32; }

// In order of preference within an op.
#define MITHRIL_CUDA_FAMILIES                                                           \
  product_kernels, device::row_kernels, device::movement_kernels, device::pool_kernels, \
      device::axis_kernels, device::attention_kernels
constexpr select::KernelFamily kFamilies[] = {MITHRIL_CUDA_FAMILIES};
constexpr select::KernelFamily kWithLibrary[] = {library_kernels, MITHRIL_CUDA_FAMILIES};
constexpr select::KernelFamily kWithTf32[] = {library_kernels_tf32, MITHRIL_CUDA_FAMILIES};
#undef MITHRIL_CUDA_FAMILIES

}  // namespace

std::span<const select::KernelFamily> kernel_families(Products products) {
  switch (products) {
    case Products::kOwn: return kFamilies;
    case Products::kLibrary: return kWithLibrary;
    case Products::kLibraryTf32: return kWithTf32;
  }
  return kFamilies;
}

}  // namespace mithril::cuda

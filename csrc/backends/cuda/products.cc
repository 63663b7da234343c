// Matrix products and convolutions in tiles of blocks; convolutions gather their taps.
#include "backends/cuda/gemm_text.h"
#include "backends/cuda/kernel_families.h"
#include "backends/device/kernel_families.h"

namespace mithril::cuda {
namespace {

constexpr device::ProductLanguage kLanguage = {print_gemm, gemm_units, kGemmThreads};
using Rows = device::ProductRows<kLanguage>;
constexpr select::KernelDef kKernels[] = {
    Rows::matmul("cuda.matmul"),          Rows::conv2d("cuda.conv2d"),
    Rows::conv2d_dx("cuda.conv2d_dx")[0], Rows::conv2d_dx("cuda.conv2d_dx")[1],
    Rows::conv2d_dw("cuda.conv2d_dw"),
};

std::span<const select::KernelDef> product_kernels() { return kKernels; }
// In order of preference within an op.
constexpr select::KernelFamily kFamilies[] = {product_kernels,          device::row_kernels,
                                              device::movement_kernels, device::pool_kernels,
                                              device::axis_kernels,     device::attention_kernels};

}  // namespace

std::span<const select::KernelFamily> kernel_families() { return kFamilies; }

}  // namespace mithril::cuda

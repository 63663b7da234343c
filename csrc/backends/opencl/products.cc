// Matrix products and convolutions in register tiles; convolutions gather their taps as panels.
#include "backends/device/kernel_families.h"
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

std::span<const select::KernelDef> product_kernels() { return kKernels; }
// In order of preference within an op.
constexpr select::KernelFamily kFamilies[] = {product_kernels,          device::row_kernels,
                                              device::movement_kernels, device::pool_kernels,
                                              device::axis_kernels,     device::attention_kernels};

}  // namespace

std::span<const select::KernelFamily> kernel_families() { return kFamilies; }

}  // namespace mithril::opencl

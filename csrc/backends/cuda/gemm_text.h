// The text of a product that threads of a block do together.
#pragma once
#include "backends/device/products.h"

namespace mithril::cuda {

constexpr int kGemmThreads = 256;

/// The tiles of registers are fixed.
device::ProductText print_gemm(const device::Product& product, const plan::RegisterTile& tile);
/// Units of the work are tiles of 64 rows by 64 columns of a batch, for kGemmThreads each.
int64_t gemm_units(const device::Product& product);

}  // namespace mithril::cuda

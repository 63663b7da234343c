// The text of a product that threads of a block do together.
#pragma once
#include "backends/device/products.h"

namespace mithril::cuda {

/// Units of the work are tiles of 64 rows by 64 columns of a batch, for 256 threads each.
device::ProductText print_gemm(const device::Product& product);

}  // namespace mithril::cuda

// The kernels that plans for devices choose from.
#pragma once
#include "select/kernel_table.h"

namespace mithril::bindings {

/// Those of the device, then those of the engine's CPU, which steps fall back to.
const select::KernelTable& opencl_kernels();
const select::KernelTable& cuda_kernels();

}  // namespace mithril::bindings

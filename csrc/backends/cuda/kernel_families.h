// The kernels that the device has, as rows of the table of selection.
#pragma once
#include <span>

#include "select/kernel_def.h"
#include "select/kernel_table.h"

namespace mithril::cuda {

/// The families, in order of preference within an op.
std::span<const select::KernelFamily> kernel_families();

}  // namespace mithril::cuda

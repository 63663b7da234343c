// The kernels that the device has, as rows of the table of selection.
#pragma once
#include <span>

#include "select/kernel_def.h"
#include "select/kernel_table.h"

namespace mithril::opencl {

/// The families, in order of preference within an op, of a device that is a CPU or none.
std::span<const select::KernelFamily> kernel_families(bool is_cpu);

}  // namespace mithril::opencl

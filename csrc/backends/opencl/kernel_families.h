// Rows of the table that select.cc makes, by family.
#pragma once
#include <span>

#include "select/kernel_def.h"

namespace mithril::opencl {

std::span<const select::KernelDef> product_kernels();

}  // namespace mithril::opencl

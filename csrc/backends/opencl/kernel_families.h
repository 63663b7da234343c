// What select.cc lists: the rows of each family.
#pragma once
#include <span>

#include "select/kernel_def.h"

namespace mithril::opencl {

std::span<const select::KernelDef> product_kernels();

}  // namespace mithril::opencl

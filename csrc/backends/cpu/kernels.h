// The structured kernels of the CPU, as a table.
#pragma once
#include "select/kernel_table.h"

namespace mithril::cpu {

const select::KernelTable& kernel_table();

}  // namespace mithril::cpu

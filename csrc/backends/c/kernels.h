// The structured kernels that C has texts of, as a table.
#pragma once
#include "select/kernel_table.h"

namespace mithril::c {

const select::KernelTable& kernel_table();

}  // namespace mithril::c

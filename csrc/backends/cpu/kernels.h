// The structured kernels of the CPU, as a table.
#pragma once
#include <string_view>
#include <vector>

#include "select/kernel_def.h"

namespace mithril::cpu {

/// The first row for `request` that matches; null when the CPU has no kernel for the op.
const select::KernelDef* find_kernel(const select::KernelRequest& request);

/// Every row for an op, in order of preference.
std::vector<const select::KernelDef*> kernels_of(std::string_view op);

/// Whether any row is for this op: what the support table and Target::keeps_whole ask.
bool has_kernel(std::string_view op);

}  // namespace mithril::cpu

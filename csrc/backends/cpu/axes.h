// What kernels along one axis are told of it.
#pragma once
#include "backends/cpu/reference.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// The first operand as [outer, n, inner] around the node's axis; `flag` names the attribute that
/// turns the direction.
ref_axis_dims axis_dims(const select::KernelRequest& request, const char* flag);

}  // namespace mithril::cpu

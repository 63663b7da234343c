// The CPU as passes see it.
#pragma once
#include "ir/target.h"

namespace mithril::cpu {

/// Composites for which the CPU has a kernel of its own stay whole.
ir::Target target(core::DType default_float = core::DType::kFloat32);

}  // namespace mithril::cpu

// C as passes see it.
#pragma once
#include "ir/target.h"

namespace mithril::c {

/// Composites for which there is a text of their own stay whole.
ir::Target target(core::DType default_float = core::DType::kFloat32);

}  // namespace mithril::c

// Derivatives as ops; the blocks of other families are declared in families.h.
#pragma once
#include "ir/op_def.h"

namespace mithril::ops {

void define_derivative(ir::OpFamily& ops);

}  // namespace mithril::ops

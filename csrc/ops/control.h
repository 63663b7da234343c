#pragma once
#include "ir/op_def.h"

namespace mithril::ops {

void define_control(ir::OpFamily& ops);

}  // namespace mithril::ops

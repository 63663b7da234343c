#pragma once
#include "ir/op_def.h"
namespace mithril::ops {
void define_angle(ir::OpFamily& ops);
void define_threshold_activation(ir::OpFamily& ops);
void define_similarity_loss(ir::OpFamily& ops);
void define_likelihood_loss(ir::OpFamily& ops);
}  // namespace mithril::ops

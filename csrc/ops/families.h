// One function per file of blocks; register.cc calls them.
#pragma once
#include "ir/op_def.h"

namespace mithril::ops {

void define_elementwise(ir::OpFamily& ops);
void define_special(ir::OpFamily& ops);
void define_angle(ir::OpFamily& ops);
void define_robust(ir::OpFamily& ops);
void define_activation(ir::OpFamily& ops);
void define_smooth_activation(ir::OpFamily& ops);
void define_threshold_activation(ir::OpFamily& ops);
void define_reduce(ir::OpFamily& ops);
void define_scan(ir::OpFamily& ops);
void define_movement(ir::OpFamily& ops);
void define_rearrange(ir::OpFamily& ops);
void define_diagonal(ir::OpFamily& ops);
void define_index(ir::OpFamily& ops);
void define_places(ir::OpFamily& ops);
void define_order(ir::OpFamily& ops);
void define_matmul(ir::OpFamily& ops);
void define_linalg(ir::OpFamily& ops);
void define_matrix_functions(ir::OpFamily& ops);
void define_fourier(ir::OpFamily& ops);
void define_creation(ir::OpFamily& ops);
void define_host(ir::OpFamily& ops);
void define_conv(ir::OpFamily& ops);
void define_pool(ir::OpFamily& ops);
void define_norm(ir::OpFamily& ops);
void define_attention(ir::OpFamily& ops);
void define_loss(ir::OpFamily& ops);
void define_pointwise_loss(ir::OpFamily& ops);
void define_similarity_loss(ir::OpFamily& ops);
void define_likelihood_loss(ir::OpFamily& ops);
void define_features(ir::OpFamily& ops);
void define_random(ir::OpFamily& ops);
void define_optimizer(ir::OpFamily& ops);

}  // namespace mithril::ops

// Weights of products in fewer bits, where somebody asked for that.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/packed_matrix.h"
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Before: matmul(x, transpose(constant f32[n, k])). After: matmul(x, constant f32[k, n]), of which
/// the literal is packed. Constants of rank 2 in float32 that take less memory so; what else reads
/// the constant keeps the float32 one. Bodies of loops and branches stay as they are.
core::Result<ir::Graph> pack_weights(const ir::Graph& graph, core::WeightFormat format);

/// For each literal the same in packed form, if `pack_weights` leaves no reader of it in this graph
/// and packs it once; else null. So whoever holds the literal may hold the packed one instead.
core::Result<std::vector<std::shared_ptr<const core::TensorData>>> pack_literals(
    const ir::Graph& graph, std::span<const std::shared_ptr<const core::TensorData>> literals,
    core::WeightFormat format);

}  // namespace mithril::passes

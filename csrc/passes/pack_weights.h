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

/// The same for backends without kernels for packed weights. After: matmul(x, the elements that the
/// packed constant stands for), computed in front of the product from integers and scales:
///   multiply(cast(constant i8[k/32, 32, n]), cast(constant bf16[k/32, 1, n])) as f32[k, n]
/// Two of int4 are one i8: 16 times the one plus the other plus 8. The values are those of
/// `core::PackedMatrix::at`, to the bit.
core::Result<ir::Graph> dequantize_weights(const ir::Graph& graph, core::WeightFormat format);

/// A parameter that products multiply by, and whether they read it transposed.
struct WeightInput {
  int32_t input;  // by place
  bool transposed;
};

/// Before: matmul(x, transpose(%w: f32[n, k] param)). After: matmul(x, %w': f32[k, n]), an input
/// more behind all others, for each of those that are returned. So whoever runs the graph rounds
/// weights as they come.
core::Result<std::pair<ir::Graph, std::vector<WeightInput>>> separate_weights(
    const ir::Graph& graph);

/// Computes what stands for the elements of a matrix in a format, in its own orientation: the
/// matrix itself where it takes no less memory so.
core::Result<std::vector<float>> rounded_weights(const core::MatrixView& matrix,
                                                 core::WeightFormat format);

/// For each literal the same in packed form, if `pack_weights` leaves no reader of it in this graph
/// and packs it once; else null. So whoever holds the literal may hold the packed one instead.
core::Result<std::vector<std::shared_ptr<const core::TensorData>>> pack_literals(
    const ir::Graph& graph, std::span<const std::shared_ptr<const core::TensorData>> literals,
    core::WeightFormat format);

}  // namespace mithril::passes

// Computes once, at compile, what depends on constants only.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Runs a graph without inputs; one literal for each output. Given by compile, so that passes do
/// not know backends.
using Evaluate = std::function<core::Result<std::vector<std::shared_ptr<const core::TensorData>>>(
    const ir::Graph&)>;

/// Before: %0 = constant(value=tensor<f32[2, 3]>(…))  %1 = transpose(%0) %2 = matmul(%x, %1)
/// After:  %0 = constant(value=tensor<f32[3, 2]>(…))  %1 = matmul(%x, %0)
/// Needs static sizes. Random ops stay, and so does what takes more memory than what it is made of:
/// a broadcast or a fill, which costs nothing as a view or an immediate, more than a few places
/// (`arange`), and integers that become wider floats, which loops read as they are.
core::Result<ir::Graph> fold_constants(const ir::Graph& graph, const Evaluate& evaluate);

}  // namespace mithril::passes

// Reverse-mode differentiation: the gradient program is appended to the graph.
#pragma once
#include <string>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

struct DifferentiateOptions {
  std::vector<std::string> outputs;  // which outputs send cotangents
  std::vector<std::string> wrt;      // which inputs get gradients
  /// Outputs whose cotangent is 1 everywhere: no input is made for them.
  std::vector<std::string> unit;
  bool keep_outputs = true;  // the forward results stay outputs
};

/// Before: graph f(%x: f32[b, 4]) {  %0 = tanh(%x) …  return y=%0 }
/// After:  graph f(%x: f32[b, 4], %cotangent.y: f32[b, 4] cotangent) {  %0 = tanh(%x)
///           %1 … = (1 - tanh²) · cotangent   return y=%0, grad.x=%4 }
/// Needs concrete dtypes. Composites without a rule of their own are expanded on the way.
/// Broadcasting is undone by sum_to. The result may be differentiated again. An input that no
/// output depends on gets zeros. Cost: linear in the graph.
core::Result<ir::Graph> differentiate(const ir::Graph& graph, const DifferentiateOptions& options);

}  // namespace mithril::passes

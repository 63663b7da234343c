// The reverse sweep that differentiation is made of: cotangents flow from some values of a graph
// to others, by the gradient rules of the ops between them.
#pragma once
#include <vector>

#include "core/status.h"
#include "ir/builder.h"

namespace mithril::passes {

/// Appends nodes to the graph of a builder. It goes through the nodes that the graph has when the
/// object is made; every op between wanted values and seeds must have a gradient rule
/// (decompose_if). Order of calls: `want`, `find_dependents`, `add` for each seed, `run`, `take`.
class Backward {
 public:
  explicit Backward(ir::Builder& builder);

  /// The cotangent of this value, an input or the result of a node, is wanted.
  void want(ir::ValueId id);
  void find_dependents();
  /// Adds to the cotangent of a value.
  void add(ir::ValueId id, ir::Value cotangent);
  core::Status run();
  /// The cotangent of a wanted value: zeros where nothing flows.
  ir::Value take(ir::ValueId id);

 private:
  bool depends(ir::ValueId id) const;
  /// Gives what flows to a value, in its type; none where nothing does.
  ir::Value cotangent_of(ir::ValueId id);
  core::Status pull_back(size_t at);
  core::Status no_gradient(const ir::Node& node) const;
  core::Status located(core::Status status, const ir::Node& node) const;

  ir::Graph& graph_;
  ir::Builder& builder_;
  size_t node_count_;
  std::vector<bool> depends_;          // by value: a chain of floats leads here from a wanted one
  std::vector<ir::Value> cotangents_;  // by value; of halves in float32 where two are added
};

/// Tells whether gradients exist for values of the type.
bool is_differentiable(const ir::Type& type);

}  // namespace mithril::passes

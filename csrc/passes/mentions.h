// Which symbols nodes speak of, in types, attributes and regions.
#pragma once
#include <vector>

#include "ir/graph.h"

namespace mithril::passes {

/// Collects symbols of a graph, each once, in the order in which they come.
class Mentions {
 public:
  explicit Mentions(const ir::Graph& graph) : graph_(graph) {}

  /// Those of the node, of its results, and of what it runs by itself.
  void add(const ir::Node& node);
  /// Those of a value's shape, or of its host value.
  void add(ir::ValueId value);

  /// Those of an expression.
  void add_dim(infer::Dim dim);

  const std::vector<infer::Dim>& symbols() const { return symbols_; }
  bool has(infer::Dim symbol) const;

 private:
  void add_host(const core::HostValue& value);
  void add_region(const ir::Graph& region);
  void add_symbol(infer::Dim symbol);

  const ir::Graph& graph_;
  std::vector<infer::Dim> symbols_;
};

}  // namespace mithril::passes

// How parameters start (Model::set_initializers). Internal to model/.
#pragma once
#include <unordered_map>

#include "model/tree/naming.h"
#include "model/tree/tree.h"

namespace mithril::model {

/// Throws for what is neither the name of an initializer nor a number.
void check_initializer(const HostValue& value, const Location& where);

/// Finds what models say of how parameters start. The tree must not change meanwhile.
class InitializerTable {
 public:
  InitializerTable(const ModelTree& tree, Paths& paths) : tree_(tree), paths_(paths) {}

  /// Finds how a parameter that a leaf reads starts: the outermost model that speaks of it counts.
  /// Null where none does.
  const HostValue* find(NodeId leaf, EdgeId parameter);

 private:
  using Wires = std::unordered_multimap<EdgeId, ConnId>;
  const HostValue* find_in(NodeId node, EdgeId parameter);
  const Wires& wires_of(NodeId node);

  const ModelTree& tree_;
  Paths& paths_;
  std::unordered_map<NodeId, Wires> wires_;  // of nodes with initializers
};

}  // namespace mithril::model

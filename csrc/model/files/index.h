// Who is who in a model file: ids of submodels, numbers of ops, wires through all levels. Internal
// to model/.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

struct FileIndex {
  FileIndex(const ModelTree& all, NodeId outermost);

  const ModelTree& tree;
  NodeId top;
  std::vector<NodeId> order;  // parents before children, in the order of insertion
  std::unordered_map<NodeId, std::string> ids;      // of submodels
  std::unordered_map<NodeId, size_t> op_number;     // in `order`, ops alone
  std::unordered_map<EdgeId, ConnId> visible_wire;  // of a root: the outermost that sees it

  bool has(NodeId node) const {
    return node == top || ids.count(node) != 0 || op_number.count(node) != 0;
  }
  /// Those that are one with another are left out.
  std::vector<ConnId> wires(NodeId id) const;
  bool sees(EdgeId edge) const { return visible_wire.count(tree.root(edge)) != 0; }
  ConnId wire(EdgeId edge) const { return visible_wire.at(tree.root(edge)); }
  /// "" for the outermost one.
  std::string id(NodeId model) const { return model == top ? "" : ids.at(model); }

 private:
  void number_nodes();
  std::string id_of(NodeId parent, const std::string& name) const;
  void find_wires();
};

}  // namespace mithril::model

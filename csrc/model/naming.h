// Generated names of unnamed wires (reference 2.11). Internal to model/.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "model/tree.h"

namespace mithril::model {

/// Names, without `$`, of the unnamed wires of a model, in the order of creation.
std::vector<std::pair<ConnId, std::string>> generated_names(const Arena& arena, NodeId node,
                                                            bool internals, bool outputs);

/// Dotted paths of nodes, made on demand; a path of more than 32 levels is shortened in the
/// middle.
class Paths {
 public:
  explicit Paths(const Arena& arena) : arena_(arena) {}
  std::string path(NodeId node);
  /// "linear_0_weight": path and key of the leaf that reads (or writes) the wire, lower case.
  std::string long_name(ConnId wire);

 private:
  const std::string& segment(NodeId node);
  const Arena& arena_;
  std::unordered_map<NodeId, std::string> segments_;
};

/// The key of the leaf that first reads the wire, else writes it.
ConnId leaf_key(const Arena& arena, ConnId wire);

}  // namespace mithril::model

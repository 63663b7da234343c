// Generated names of unnamed wires (reference 2.11). Internal to model/.
#pragma once
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

/// Names, without `$`, of the unnamed wires of a model, in the order of creation.
std::vector<std::pair<ConnId, std::string>> generated_names(const ModelTree& tree, NodeId node,
                                                            bool internals, bool outputs);

/// The names that compiling gives to the unnamed keys of a model: that of the leaf's key where it
/// is the only one of all keys, else with a number, and never one that the user gave.
std::vector<std::pair<ConnId, std::string>> names_by_origin(const ModelTree& tree, NodeId node);
/// The same by keys: "$3" -> "weight_0".
std::vector<std::pair<std::string, std::string>> compiled_names(const Model& model);

/// Dotted paths of nodes, made on demand; a path of more than 32 levels is shortened in the
/// middle.
class Paths {
 public:
  explicit Paths(const ModelTree& tree) : tree_(tree) {}
  std::string path(NodeId node);
  /// "linear_0_weight": the parts below `root` down to the outermost one that has a name for the
  /// wire, in lower case, with that name.
  std::string long_name(ConnId wire, NodeId root);
  /// "encoder.attn.w_q": the parts below `root` down to the outermost one that has a name for the
  /// wire, with that name. Unnamed parts are counted among all of their class, so that a name for
  /// one of them leaves those of the others alone.
  std::string key_path(ConnId wire, NodeId root);
  /// The wire's name in its own model, else its key_path from there.
  std::string name(ConnId wire);
  /// "encoder.attn.length": a key of a part below `root`.
  std::string key_path(NodeId node, const std::string& key, NodeId root);

 private:
  const std::string& segment(NodeId node);
  const std::string& counted_segment(NodeId node);
  const ModelTree& tree_;
  std::unordered_map<NodeId, std::string> segments_, counted_;
};

/// The key of the outermost part that has a name for the wire, else that of the leaf which first
/// reads it, else of the one which writes it.
ConnId named_key(const ModelTree& tree, ConnId wire);

}  // namespace mithril::model

// What model files leave out, because it follows from the rest. Internal to model/.
#pragma once
#include <string>
#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

inline std::string usual_class(const ir::OpDef* op) {
  if (op == nullptr) return "Model";
  return op->python_name.empty() ? op->name : op->python_name;
}

/// The canonical sets of a model that is one op.
inline std::vector<ConnId> usual_cins(const ModelTree& tree, NodeId leaf) {
  std::vector<ConnId> out;
  for (const std::string& name : tree.node(leaf).op->canonical_inputs) {
    const ConnId conn = tree.find(leaf, name);
    if (conn != kNone && !tree.is_valued(conn)) out.push_back(conn);
  }
  return out;
}

inline std::vector<ConnId> usual_couts(const ModelTree& tree, NodeId leaf) {
  const std::vector<ConnId>& outputs = tree.node(leaf).outputs;
  return {outputs.begin(), outputs.begin() + (outputs.empty() ? 0 : 1)};
}

/// The innermost name of a wire: of the key that writes it, else of the one that reads it first.
inline std::string usual_origin(const ModelTree& tree, const Conn& conn, ConnId reader) {
  const ConnId key = conn.produced() ? conn.producer : reader;
  return key == kNone ? conn.name : tree.conn(key).origin;
}

/// Names a wire in errors, where nobody gave it another name on a lower level.
inline const std::string& usual_label(const Conn& top) {
  return top.name.empty() ? top.origin : top.name;
}

}  // namespace mithril::model

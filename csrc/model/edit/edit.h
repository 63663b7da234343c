// An edit as a copy of the tree without what is taken out: made, repaired and inferred apart, then
// put in the tree's place or thrown away. Internal to model/.
#pragma once
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

/// Lists what an edit takes out.
struct Deletion {
  std::vector<NodeId> nodes;    // submodels, with all that is in them
  std::vector<ConnId> waiting;  // wires that stay although theirs go: something else will come
  std::vector<std::pair<ConnId, Facets>> said;  // what was said of these wires, at every level
};

/// Ids of a tree -> ids of its copy.
class IdMap {
 public:
  IdMap() = default;
  /// `kept`: ascending.
  IdMap(std::vector<uint32_t> kept, size_t total);
  uint32_t operator()(uint32_t old) const;
  const std::vector<uint32_t>& kept() const { return kept_; }
  /// Those that were not kept, or that the copy lost since.
  std::vector<uint32_t> removed(size_t total) const;
  void drop(const std::vector<uint8_t>& dead);  // by id of the copy

 private:
  std::vector<uint32_t> kept_;
  std::vector<uint32_t> dense_;  // by old id, where most are kept
  std::vector<uint32_t> lost_;   // by place in kept_, after a drop: the new id
};

/// A copy of (part of) a tree that still has to be repaired.
struct Copy {
  std::shared_ptr<Home> home;
  IdMap nodes, conns;
  NodeId root = kNone;  // in the copy
  // By conn of the copy.
  std::vector<uint8_t> was_produced, waiting, opened;
  std::vector<uint32_t> readers;  // before the edit

  ModelTree& tree() const { return *home->tree; }
};

/// Copies the tree below `root` without `deletion`; links to what is not copied are cut.
Copy copy_tree(const ModelTree& from, NodeId root, const Deletion& deletion);
/// Makes the copy what composing it would have made: kinds of keys, canonical sets, wires of outer
/// levels, edges with what was said of them. Drops wires that nothing is connected to any more.
void repair(Copy& copy);
/// Gives the keys of a submodel that its parent has no wires for one each.
void lift_keys(ModelTree& tree, NodeId child);
/// Takes out what is marked; `conns` maps to what is left.
void drop_conns(ModelTree& tree, const std::vector<uint8_t>& dead);

/// A tree after an edit, not yet in the place of the old one.
class Draft {
 public:
  Draft(const Access::At& at, NodeId root, const Deletion& deletion);
  Model model(NodeId old) const { return Access::model(copy_.home, copy_.nodes(old)); }
  Connection wire(ConnId old) const { return Access::connection(copy_.home, copy_.conns(old)); }
  NodeId node(NodeId old) const { return copy_.nodes(old); }
  ConnId conn(ConnId old) const { return copy_.conns(old); }
  const std::shared_ptr<Home>& home() const { return copy_.home; }
  ModelTree& tree() const { return copy_.tree(); }
  /// The handles of the old tree are handles of this one from now on.
  void adopt();

 private:
  std::shared_ptr<Home> old_;
  Copy copy_;
};

}  // namespace mithril::model

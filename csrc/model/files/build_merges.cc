// Wires of a model file that were merged: apart until the history says so, so that the solver meets
// them as it did when the model was composed.
#include <algorithm>

#include "model/files/build.h"

namespace mithril::model {

void ModelBuilder::divide_wires() {
  if (!file_.history || file_.history->merges.empty()) return;
  std::vector<NodeId> ops;
  for (const Made& made : made_) {
    if (made.op != nullptr) ops.push_back(made.node);
  }
  const std::vector<MergeRecord>& merges = file_.history->merges;
  for (const MergeRecord& record : merges) divide_wire(record, ops);
  for (size_t i = 0; i < merges.size(); ++i) {
    if (!merges[i].into) continue;
    const auto into = static_cast<size_t>(*merges[i].into);
    if (into <= i || into >= merges.size() || parts_[into].wire != parts_[i].wire) {
      refuse("a history that merges a wire into one that is none any more");
    }
  }
}

void ModelBuilder::divide_wire(const MergeRecord& record, const std::vector<NodeId>& ops) {
  const ConnId merged = wire(model_named(record.model), record.wire);
  const Conn& c = tree_.conn(merged);
  if (c.outer != kNone || tree_.node(c.node).op != nullptr) {
    refuse(fmt::format("'{}' is no wire that others were merged into", record.wire));
  }
  const EdgeId part = tree_.new_edge();
  tree_.edges[part].label = tree_.edges[c.edge].label;
  for (const auto& [op, name] : record.keys) {
    if (static_cast<size_t>(op) >= ops.size()) refuse("a history of other ops");
    const ConnId key = wire(ops[static_cast<size_t>(op)], name);
    if (tree_.conn(key).edge != c.edge) {
      refuse(fmt::format("'{}' is not connected to '{}'", name, record.wire));
    }
    tree_.conns[key].edge = part;
  }
  for (const auto& mention : record.facts) {
    if (!part_of_mention_.emplace(mention, parts_.size()).second) {
      refuse("a history that says twice which wire a fact is about");
    }
  }
  parts_.push_back({merged, part});
}

// The edge that a fact, which names `conn` next, is about.
EdgeId ModelBuilder::edge_of_mention(ConnId conn) {
  const auto found = part_of_mention_.find(mention_);
  ++mention_.second;
  if (found == part_of_mention_.end()) return tree_.root(tree_.conn(conn).edge);
  const Part& part = parts_[found->second];
  const EdgeId first = parts_.front().edge;  // they were made one after the other
  const size_t number = tree_.conn(conn).edge - first;
  const bool is_of_part = tree_.conn(conn).edge >= first && number < parts_.size();
  const EdgeId whole = is_of_part ? tree_.conn(parts_[number].wire).edge : tree_.conn(conn).edge;
  if (whole != tree_.conn(part.wire).edge) refuse("a history whose facts are about other wires");
  return tree_.root(part.edge);
}

bool ModelBuilder::is_merged_next(size_t done) const {
  if (joined_ == parts_.size()) return false;
  return static_cast<size_t>(file_.history->merges[joined_].at) <= done;
}

void ModelBuilder::merge_next() {
  const MergeRecord& record = file_.history->merges[joined_];
  const Part& part = parts_[joined_++];
  const EdgeId stays = tree_.root(record.into ? parts_[static_cast<size_t>(*record.into)].edge
                                              : tree_.conn(part.wire).edge);
  Edge& edge = tree_.edges[stays];
  edge.size = std::max(edge.size, tree_.edges[part.edge].size);
  tree_.unite(stays, part.edge, tree_.key(part.wire), place(record.place, 0), record.by);
}

}  // namespace mithril::model

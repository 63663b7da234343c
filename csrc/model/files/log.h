// What was said of a model, sorted as a file has it. Internal to model/.
#pragma once
#include <unordered_map>
#include <vector>

#include "model/files/index.h"

namespace mithril::model {

struct FileLog {
  explicit FileLog(const FileIndex& index);

  /// Holds what the user said in one call: entries of the log that rest on one fact.
  struct Call {
    uint32_t fact = kNone;
    std::vector<const Entry*> entries;  // a constraint is alone
    bool is_constraint() const { return entries.front()->type == Entry::Type::kConstraint; }
  };
  /// Two wires of the model that became one after the solver knew both. The file has one wire;
  /// `gone` and the edges that were joined to it before are its part of it.
  struct Merge {
    EdgeId stays = kNone, gone = kNone;
    uint32_t fact = kNone;
    size_t at = 0;  // how many items came before it, merges aside
  };
  /// An op's rule, a call, or a merge, by number; `place`: in the tree's log.
  struct Item {
    enum class Type : uint8_t { kOp, kCall, kMerge };
    Type type;
    size_t number, place;
  };
  std::vector<Item> items;
  std::vector<Call> calls;
  std::vector<Merge> merges;
  std::unordered_map<NodeId, std::vector<const Entry*>> said_of_op;
  std::unordered_map<NodeId, uint32_t> fact_of_op;
  /// Maps nodes to numbers of constraints in the order of the file.
  std::unordered_map<NodeId, std::vector<uint32_t>> constraints;
  std::unordered_map<uint32_t, size_t> scopes;  // those that need a number

  /// The merge whose part of a wire an edge is; kNone: the wire as it is.
  size_t merge_of(EdgeId edge) const;

 private:
  void sort();
  void add_constraint(const Entry& entry);
  void sort_entry(const Entry& entry, const std::unordered_map<uint32_t, NodeId>& op_of);
  void add_merge(const Entry& entry);
  void name_scopes();
  size_t place_of(const Entry& entry) const;

  std::unordered_map<EdgeId, size_t> merge_of_gone_;
  const FileIndex& index_;
  const ModelTree& tree_;
};

}  // namespace mithril::model

#include "model/files/log.h"

#include <algorithm>
#include <set>

namespace mithril::model {

FileLog::FileLog(const FileIndex& index) : index_(index), tree_(index.tree) {
  sort();
  name_scopes();
}

size_t FileLog::place_of(const Entry& entry) const {
  return static_cast<size_t>(&entry - tree_.log.data());
}

void FileLog::sort() {
  std::unordered_map<uint32_t, NodeId> op_of;  // fact -> the op that it made
  for (const Entry& entry : tree_.log) {
    if (entry.type == Entry::Type::kRule) op_of.emplace(entry.fact, entry.id);
  }
  for (const Entry& entry : tree_.log) sort_entry(entry, op_of);
}

void FileLog::sort_entry(const Entry& entry, const std::unordered_map<uint32_t, NodeId>& op_of) {
  if (entry.type == Entry::Type::kRule) {
    const auto number = index_.op_number.find(entry.id);
    if (number == index_.op_number.end()) return;
    items.push_back({Item::Type::kOp, number->second, place_of(entry)});
    fact_of_op[entry.id] = entry.fact;
    return;
  }
  if (entry.type == Entry::Type::kConstraint) return add_constraint(entry);
  if (!index_.sees(entry.id)) return;
  if (entry.type == Entry::Type::kUnify) return add_merge(entry);
  if (const auto op = op_of.find(entry.fact); op != op_of.end()) {
    said_of_op[op->second].push_back(&entry);
    return;
  }
  if (calls.empty() || calls.back().fact != entry.fact || calls.back().is_constraint()) {
    items.push_back({Item::Type::kCall, calls.size(), place_of(entry)});
    calls.push_back({entry.fact, {}});
  }
  calls.back().entries.push_back(&entry);
}

// Those that lost a key are no more.
void FileLog::add_constraint(const Entry& entry) {
  if (!index_.has(entry.id) || tree_.node(entry.id).constraints[entry.other].keys.empty()) return;
  items.push_back({Item::Type::kCall, calls.size(), place_of(entry)});
  calls.push_back({entry.fact, {&entry}});
  constraints[entry.id].push_back(entry.other);
}

void FileLog::add_merge(const Entry& entry) {
  // A tree that was taken into another one is solved with one wire from the start.
  const bool was_known =
      tree_.edges[entry.id].cell.valid() && tree_.edges[entry.other].cell.valid();
  if (!was_known) return;
  merge_of_gone_.emplace(entry.other, merges.size());
  const size_t at = items.size() - merges.size();
  items.push_back({Item::Type::kMerge, merges.size(), place_of(entry)});
  merges.push_back({entry.id, entry.other, entry.fact, at});
}

size_t FileLog::merge_of(EdgeId edge) const {
  for (EdgeId at = edge; at != kNone; at = tree_.edges[at].parent) {
    if (const auto found = merge_of_gone_.find(at); found != merge_of_gone_.end()) {
      return found->second;
    }
  }
  return kNone;
}

namespace {
bool has_names(const ShapeTemplate& shape) {
  return std::any_of(shape.begin(), shape.end(),
                     [](const auto& item) { return !item.name.empty(); });
}

}  // namespace

// Names of sizes mean the same within one statement; a scope that is not just that gets a number.
void FileLog::name_scopes() {
  std::unordered_map<uint32_t, const void*> user;
  std::vector<uint32_t> order;
  std::set<uint32_t> special;
  const auto visit = [&](const std::vector<const Entry*>& entries) {
    std::set<uint32_t> found;
    for (const Entry* entry : entries) {
      if (entry->type != Entry::Type::kShape || !has_names(*entry->shape)) continue;
      const auto [at, is_new] = user.emplace(entry->other, &entries);
      if (is_new) order.push_back(entry->other);
      if (at->second != &entries) special.insert(entry->other);
      found.insert(entry->other);
    }
    if (found.size() > 1) special.insert(found.begin(), found.end());
  };
  for (const NodeId id : index_.order) {
    const auto said = said_of_op.find(id);
    if (said != said_of_op.end()) visit(said->second);
  }
  for (const Call& call : calls) visit(call.entries);
  for (const uint32_t scope : order) {
    if (special.count(scope) != 0) scopes.emplace(scope, scopes.size());
  }
}

}  // namespace mithril::model

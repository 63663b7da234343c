// Where in user code everything was said, and in which order the solver met it.
#include "model/files/write.h"

namespace mithril::model {

namespace {

class HistoryWriter {
 public:
  HistoryWriter(core::JsonWriter& out, const FileIndex& index, const FileLog& log)
      : out_(out), index_(index), tree_(index.tree), log_(log) {}
  void write();

 private:
  void write_order();
  void write_stops();
  void write_merges();
  std::vector<std::vector<std::pair<size_t, std::string>>> keys_by_merge() const;
  std::vector<std::vector<std::pair<size_t, size_t>>> mentions_by_merge() const;
  void write_place(const Location& where);

  core::JsonWriter& out_;
  const FileIndex& index_;
  const ModelTree& tree_;
  const FileLog& log_;
  std::vector<std::string> files_;
  std::unordered_map<std::string, size_t> file_number_;
};

void HistoryWriter::write_place(const Location& where) {
  const auto [found, is_new] = file_number_.emplace(where.file, files_.size());
  if (is_new) files_.push_back(where.file);
  out_.integer(static_cast<int64_t>(found->second));
  out_.integer(where.line);
}

void HistoryWriter::write() {
  out_.key("history");
  out_.begin_object();
  write_order();
  write_stops();
  out_.key("models");
  out_.begin_array(true);
  for (const NodeId id : index_.order) write_place(tree_.node(id).where);
  out_.end_array();
  out_.key("ops");
  out_.begin_array(true);
  for (const NodeId id : index_.order) {
    if (tree_.node(id).op != nullptr) write_place(tree_.facts[log_.fact_of_op.at(id)].where);
  }
  out_.end_array();
  out_.key("facts");
  out_.begin_array(true);
  for (const FileLog::Call& call : log_.calls) write_place(tree_.facts[call.fact].where);
  out_.end_array();
  write_merges();
  out_.key("files");
  out_.begin_array();
  for (const std::string& file : files_) out_.string(file);
  out_.end_array();
  out_.end_object();
}

// Runs of the log: how many ops, how many facts, and so on in turn.
void HistoryWriter::write_order() {
  std::vector<FileLog::Item> items = log_.items;
  std::erase_if(items, [](const auto& item) { return item.type == FileLog::Item::Type::kMerge; });
  out_.key("order");
  out_.begin_array(true);
  for (size_t i = 0; i < items.size();) {
    size_t end = i + 1;
    while (end < items.size() && items[end].type == items[i].type &&
           items[end].number == items[end - 1].number + 1) {
      ++end;
    }
    out_.string(items[i].type == FileLog::Item::Type::kOp ? "ops" : "facts");
    out_.integer(static_cast<int64_t>(items[i].number));
    out_.integer(static_cast<int64_t>(end - i));
    i = end;
  }
  out_.end_array();
}

// After how many entries of the order and merges the solver ran, as (distance, times) pairs.
void HistoryWriter::write_stops() {
  std::vector<std::pair<size_t, int64_t>> runs;
  size_t item = 0, last = 0;
  for (const size_t stop : tree_.stops) {
    while (item < log_.items.size() && log_.items[item].place < stop) ++item;
    if (item == last) continue;
    if (runs.empty() || runs.back().first != item - last) runs.emplace_back(item - last, 0);
    ++runs.back().second;
    last = item;
  }
  out_.key("stops");
  out_.begin_array(true);
  for (const auto& [distance, times] : runs) {
    out_.integer(static_cast<int64_t>(distance));
    out_.integer(times);
  }
  out_.end_array();
}

// By merge: op, key, and so on.
std::vector<std::vector<std::pair<size_t, std::string>>> HistoryWriter::keys_by_merge() const {
  std::vector<std::vector<std::pair<size_t, std::string>>> out(log_.merges.size());
  for (const NodeId id : index_.order) {
    if (tree_.node(id).op == nullptr) continue;
    for (const ConnId c : tree_.node(id).conns) {
      const size_t merge = log_.merge_of(tree_.conn(c).edge);
      if (merge != kNone) out[merge].emplace_back(index_.op_number.at(id), tree_.key(c));
    }
  }
  return out;
}

// By merge: a call, which of the wires that it names in turn, and so on.
std::vector<std::vector<std::pair<size_t, size_t>>> HistoryWriter::mentions_by_merge() const {
  std::vector<std::vector<std::pair<size_t, size_t>>> out(log_.merges.size());
  for (size_t call = 0; call < log_.calls.size(); ++call) {
    size_t mention = 0;
    const auto add = [&](EdgeId edge) {
      const size_t merge = log_.merge_of(edge);
      if (merge != kNone) out[merge].emplace_back(call, mention);
      ++mention;
    };
    for (const Entry* entry : log_.calls[call].entries) {
      if (entry->type == Entry::Type::kConstraint) {
        for (const EdgeId edge : tree_.node(entry->id).constraints[entry->other].edges) add(edge);
        continue;
      }
      add(entry->id);
      if (entry->type == Entry::Type::kSame) add(entry->other);
    }
  }
  return out;
}

void HistoryWriter::write_merges() {
  if (log_.merges.empty()) return;
  const auto keys = keys_by_merge();
  const auto mentions = mentions_by_merge();
  out_.key("merges");
  out_.begin_array();
  for (size_t i = 0; i < log_.merges.size(); ++i) {
    const FileLog::Merge& merge = log_.merges[i];
    const Fact& fact = tree_.facts[merge.fact];
    const ConnId wire = index_.wire(merge.gone);
    out_.begin_object();
    write_text(out_, "by", fact.text);
    write_text(out_, "model", index_.id(tree_.conn(wire).node));
    write_text(out_, "wire", tree_.key(wire));
    if (const size_t into = log_.merge_of(merge.stays); into != kNone) {
      out_.key("into");
      out_.integer(static_cast<int64_t>(into));
    }
    out_.key("at");
    out_.integer(static_cast<int64_t>(merge.at));
    out_.key("keys");
    out_.begin_array(true);
    for (const auto& [op, key] : keys[i]) {
      out_.integer(static_cast<int64_t>(op));
      out_.string(key);
    }
    out_.end_array();
    out_.key("facts");
    out_.begin_array(true);
    for (const auto& [call, mention] : mentions[i]) {
      out_.integer(static_cast<int64_t>(call));
      out_.integer(static_cast<int64_t>(mention));
    }
    out_.end_array();
    out_.key("place");
    out_.begin_array(true);
    write_place(fact.where);
    out_.end_array();
    out_.end_object();
  }
  out_.end_array();
}

}  // namespace

void write_history(core::JsonWriter& out, const FileIndex& index, const FileLog& log) {
  HistoryWriter(out, index, log).write();
}

}  // namespace mithril::model

// Where in user code everything was said, and in which order the solver met it.
#include "model/serialize_write.h"

namespace mithril::model {

namespace {

class HistoryWriter {
 public:
  HistoryWriter(core::JsonWriter& out, const FileIndex& index, const FileLog& log)
      : out_(out), index_(index), arena_(index.arena), log_(log) {}
  void write();

 private:
  void write_order();
  void write_stops();
  void write_place(const Location& where);

  core::JsonWriter& out_;
  const FileIndex& index_;
  const Arena& arena_;
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
  for (const NodeId id : index_.order) write_place(arena_.node(id).where);
  out_.end_array();
  out_.key("ops");
  out_.begin_array(true);
  for (const NodeId id : index_.order) {
    if (arena_.node(id).op != nullptr) write_place(arena_.facts[log_.fact_of_op.at(id)].where);
  }
  out_.end_array();
  out_.key("facts");
  out_.begin_array(true);
  for (const FileLog::Call& call : log_.calls) write_place(arena_.facts[call.fact].where);
  out_.end_array();
  out_.key("files");
  out_.begin_array();
  for (const std::string& file : files_) out_.string(file);
  out_.end_array();
  out_.end_object();
}

// Runs of the log: how many ops, how many facts, and so on in turn.
void HistoryWriter::write_order() {
  const std::vector<FileLog::Item>& items = log_.items;
  out_.key("order");
  out_.begin_array(true);
  for (size_t i = 0; i < items.size();) {
    size_t end = i + 1;
    while (end < items.size() && items[end].is_op == items[i].is_op &&
           items[end].number == items[end - 1].number + 1) {
      ++end;
    }
    out_.string(items[i].is_op ? "ops" : "facts");
    out_.integer(static_cast<int64_t>(items[i].number));
    out_.integer(static_cast<int64_t>(end - i));
    i = end;
  }
  out_.end_array();
}

// After how many entries of the order the solver ran, as (distance, times) pairs.
void HistoryWriter::write_stops() {
  std::vector<std::pair<size_t, int64_t>> runs;
  size_t item = 0, last = 0;
  for (const size_t stop : arena_.stops) {
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

}  // namespace

void write_history(core::JsonWriter& out, const FileIndex& index, const FileLog& log) {
  HistoryWriter(out, index, log).write();
}

}  // namespace mithril::model

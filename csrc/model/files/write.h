// The parts of a model file's writer. Internal to model/.
#pragma once
#include <string>
#include <string_view>

#include "core/json.h"
#include "model/files/log.h"

namespace mithril::model {

/// A key with text; nothing for the usual one.
inline void write_text(core::JsonWriter& out, std::string_view key, const std::string& value,
                       std::string_view usual = "") {
  if (value == usual) return;
  out.key(key);
  out.string(value);
}

class FactWriter {
 public:
  FactWriter(core::JsonWriter& out, const FileIndex& index, const FileLog& log)
      : out_(out), index_(index), tree_(index.tree), log_(log) {}
  /// "values" and "facts": what an op's constructor was told.
  void write_op(NodeId op);
  /// "facts": what was said since.
  void write_calls();

 private:
  void write_entry(const Entry& entry, std::string_view wire, std::string_view model);
  void write_constraint(const Entry& entry);
  std::string key_of(NodeId op, const Entry& entry) const;

  core::JsonWriter& out_;
  const FileIndex& index_;
  const ModelTree& tree_;
  const FileLog& log_;
};

/// "history": where in user code everything was said, in which order the solver met it.
void write_history(core::JsonWriter& out, const FileIndex& index, const FileLog& log);

}  // namespace mithril::model

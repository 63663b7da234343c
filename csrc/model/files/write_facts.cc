// The log of facts as JSON, in its order: values and facts of ops, what was said in later calls.
#include <algorithm>

#include "model/files/type.h"
#include "model/files/write.h"

namespace mithril::model {

std::string FactWriter::key_of(NodeId op, const Entry& entry) const {
  for (const ConnId c : tree_.node(op).conns) {
    if (tree_.conn(c).edge == entry.id) return tree_.key(c);
  }
  return tree_.key(index_.wire(entry.id));
}

void FactWriter::write_op(NodeId op) {
  const auto said = log_.said_of_op.find(op);
  if (said == log_.said_of_op.end()) return;
  const auto is_value = [](const Entry* e) { return e->type == Entry::Type::kValue; };
  if (std::any_of(said->second.begin(), said->second.end(), is_value)) {
    out_.key("values");
    out_.begin_object();
    for (const Entry* entry : said->second) {
      if (!is_value(entry)) continue;
      const std::string key = key_of(op, *entry);
      out_.key(key);
      write_value(out_, *entry->value, fmt::format("'{}' of {}", key, title(tree_.node(op))));
    }
    out_.end_object();
  }
  if (std::all_of(said->second.begin(), said->second.end(), is_value)) return;
  out_.key("facts");
  out_.begin_array();
  for (const Entry* entry : said->second) {
    if (!is_value(entry)) write_entry(*entry, key_of(op, *entry), "");
  }
  out_.end_array();
}

void FactWriter::write_calls() {
  if (log_.calls.empty()) return;
  out_.key("facts");
  out_.begin_array();
  for (const FileLog::Call& call : log_.calls) {
    out_.begin_object();
    write_text(out_, "by", tree_.facts[call.fact].text);
    if (call.is_constraint()) {
      write_constraint(*call.entries.front());
      out_.end_object();
      continue;
    }
    out_.key("says");
    out_.begin_array();
    for (const Entry* entry : call.entries) {
      const ConnId wire = index_.wire(entry->id);
      write_entry(*entry, tree_.key(wire), index_.id(tree_.conn(wire).node));
    }
    out_.end_array();
    out_.end_object();
  }
  out_.end_array();
}

namespace {

std::string listed(const ModelTree& tree, const std::vector<ConnId>& keys) {
  constexpr size_t kMost = 4;
  std::string out;
  for (size_t i = 0; i < std::min(keys.size(), kMost); ++i) {
    out += fmt::format("{}'{}'", i == 0 ? "" : ", ", tree.key(tree.surviving(keys[i])));
  }
  return keys.size() > kMost ? out + " ..." : out;
}

[[noreturn]] void refuse_unnamed(const ModelTree& tree, const Entry& entry) {
  const Node& node = tree.node(entry.id);
  core::Error error =
      core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                 "the constraint of {} on {} has no registered name, and files hold no functions",
                 title(node), listed(tree, node.constraints[entry.other].keys));
  error.hint = "give the function to ml.constraints.register before it is added";
  const Fact& fact = tree.facts[entry.fact];
  error.facts.push_back({"the constraint", fact.where, fact.text, 0});
  raise(std::move(error));
}

}  // namespace

void FactWriter::write_constraint(const Entry& entry) {
  const Node& node = tree_.node(entry.id);
  const UserConstraint& constraint = node.constraints[entry.other];
  if (constraint.name.empty()) refuse_unnamed(tree_, entry);
  out_.key("constraint");
  out_.begin_object();
  write_text(out_, "name", constraint.name);
  const bool is_part = node.op != nullptr && entry.id != index_.top;
  write_text(out_, "model", index_.id(is_part ? node.parent : entry.id));
  if (is_part) {
    const std::vector<NodeId>& siblings = tree_.node(node.parent).children;
    out_.key("part");
    out_.integer(std::find(siblings.begin(), siblings.end(), entry.id) - siblings.begin());
  }
  out_.key("keys");
  out_.begin_array();
  for (const ConnId key : constraint.keys) out_.string(tree_.key(tree_.surviving(key)));
  out_.end_array();
  if (!constraint.after.empty()) {
    const std::vector<uint32_t>& written = log_.constraints.at(entry.id);
    out_.key("after");
    out_.begin_array(true);
    for (const uint32_t number : constraint.after) {
      out_.integer(std::find(written.begin(), written.end(), number) - written.begin());
    }
    out_.end_array();
  }
  out_.end_object();
}

void FactWriter::write_entry(const Entry& entry, std::string_view wire, std::string_view model) {
  out_.begin_object();
  write_text(out_, "model", std::string(model));
  write_text(out_, "wire", std::string(wire), "$");
  switch (entry.type) {
    case Entry::Type::kKinds:
      write_type(out_, entry.content ? *entry.content : infer::Type(entry.kinds),
                 fmt::format("wire '{}'", wire));
      break;
    case Entry::Type::kInterval: write_interval(out_, *entry.interval); break;
    case Entry::Type::kShape:
      out_.key("shape");
      write_shape(out_, *entry.shape);
      if (const auto scope = log_.scopes.find(entry.other); scope != log_.scopes.end()) {
        out_.key("scope");
        out_.integer(static_cast<int64_t>(scope->second));
      }
      break;
    case Entry::Type::kValue:
      out_.key("value");
      write_value(out_, *entry.value, fmt::format("wire '{}'", wire));
      break;
    case Entry::Type::kSame: {
      const ConnId other = index_.wire(entry.other);
      write_text(out_, "next", tree_.key(other));
      write_text(out_, "next_model", index_.id(tree_.conn(other).node));
      break;
    }
    case Entry::Type::kRule:
    case Entry::Type::kConstraint:
    case Entry::Type::kUnify: break;
  }
  out_.end_object();
}

}  // namespace mithril::model

// From JSON text to records: the grammar of model files.
#include <algorithm>
#include <charconv>
#include <limits>

#include "ir/registry.h"
#include "model/files/record.h"
#include "model/files/serialize.h"
#include "model/files/type.h"
#include "model/files/value.h"

namespace mithril::model {

using core::Code;
using core::JsonReader;

namespace {

constexpr int64_t kMostItems = 1 << 20;
constexpr size_t kMostNotes = 20;

class RecordReader {
 public:
  RecordReader(JsonReader& in, std::vector<std::string>& notes)
      : in_(in), values_(in), notes_(notes) {}
  FileRecord file();

 private:
  /// Reads an object: `field(key)` reads the value of a key that it knows, else returns false.
  template <class Field>
  void object(std::string_view what, Field field);
  template <class Item>
  void array(Item item);
  template <class T, class Read>
  Map<T> map(Read read);
  std::vector<Name> names();

  void version();
  ModelRecord model();
  PartRecord part();
  bool op_field(Name key, OpRecord& op);
  void op_name(OpRecord& op);
  Said said();
  StateRecord state();
  StatementRecord statement();
  ConstraintRecord constraint();
  std::pair<int64_t, Name> reader();
  HistoryRecord history();
  MergeRecord merge();
  std::vector<Run> order();
  std::vector<int64_t> places();
  void note(std::string_view what, Name key);

  JsonReader& in_;
  ValueReader values_;
  std::vector<std::string>& notes_;
};

void RecordReader::note(std::string_view what, Name key) {
  std::string text =
      fmt::format("'{}' of {} is not known to this release", key.substr(0, 60), what);
  const bool is_known = std::find(notes_.begin(), notes_.end(), text) != notes_.end();
  if (!is_known && notes_.size() < kMostNotes) notes_.push_back(std::move(text));
  in_.skip();
}

template <class Field>
void RecordReader::object(std::string_view what, Field field) {
  std::vector<Name> seen;
  in_.begin_object();
  for (Name key; in_.next_key(key);) {
    if (seen.size() < 64 && std::find(seen.begin(), seen.end(), key) != seen.end()) {
      return in_.fail(fmt::format("'{}' stands twice in {}", key.substr(0, 60), what));
    }
    seen.push_back(key);
    if (!field(key)) note(what, key);
  }
}

template <class Item>
void RecordReader::array(Item item) {
  in_.begin_array();
  while (in_.next_item()) item();
}

template <class T, class Read>
Map<T> RecordReader::map(Read read) {
  Map<T> out;
  in_.begin_object();
  for (Name key; in_.next_key(key);) out.emplace_back(key, read());
  return out;
}

std::vector<Name> RecordReader::names() {
  std::vector<Name> out;
  array([&] { out.push_back(in_.read_string()); });
  return out;
}

FileRecord RecordReader::file() {
  FileRecord out;
  bool has_format = false, has_version = false, has_model = false;
  object("the file", [&](Name key) {
    if (key == "format") {
      has_format = in_.read_string() == "mithril-model";
      if (!has_format) in_.fail("requires the format 'mithril-model'");
    } else if (key == "version") {
      version();
      has_version = true;
    } else if (!has_format || !has_version) {
      in_.fail("a model file begins with 'format' and 'version'");
    } else if (key == "model") {
      out.model = model();
      has_model = true;
    } else if (key == "submodels") {
      out.submodels = map<ModelRecord>([&] { return model(); });
    } else if (key == "facts") {
      array([&] { out.facts.push_back(statement()); });
    } else if (key == "training") {
      out.training = in_.read_raw();
    } else if (key == "history") {
      out.history = history();
    } else {
      return false;
    }
    return true;
  });
  if (!has_model) in_.fail("a model file has 'format', 'version' and 'model'");
  in_.finish();
  return out;
}

void RecordReader::version() {
  const Name text = in_.read_string();
  uint32_t major = 0, minor = 0;
  const char *const begin = text.data(), *const end = begin + text.size();
  const char* const dot = std::from_chars(begin, end, major).ptr;
  if (dot == begin || dot == end || *dot != '.' ||
      std::from_chars(dot + 1, end, minor).ptr != end || dot + 1 == end) {
    return in_.fail("requires a version such as \"1.0\"");
  }
  if (major == uint32_t{kFileMajor}) return;
  in_.fail(fmt::format("version {} of model files is not known, this release reads version {}",
                       text.substr(0, 20), kFileMajor),
           Code::kFileVersion);
}

// Arguments that older files give an op, and that are keys of it now, move to the values of keys.
void move_arguments(OpRecord& op) {
  if (op.op == nullptr) return;
  for (const ir::InputDef& input : op.op->inputs) {
    const HostValue* given = input.is_key ? op.attrs.find(input.name) : nullptr;
    if (given == nullptr) continue;
    op.values.emplace_back(input.name, *given);
    op.attrs.erase(input.name);
    op.former.emplace_back(input.name);
  }
}

ModelRecord RecordReader::model() {
  ModelRecord out;
  object("a model", [&](Name key) {
    if (key == "name") {
      out.name = in_.read_string();
    } else if (key == "class") {
      out.class_name = in_.read_string();
    } else if (key == "frozen") {
      out.frozen = in_.read_bool();
    } else if (key == "wires") {
      out.wires = names();
    } else if (key == "numbered") {
      out.numbered = in_.read_integer(0, kMostItems * 64);
    } else if (key == "outputs") {
      out.outputs = names();
    } else if (key == "cins") {
      out.cins = names();
    } else if (key == "couts") {
      out.couts = names();
    } else if (key == "latent") {
      out.latent = names();
    } else if (key == "differentiable") {
      out.differentiable = map<bool>([&] { return in_.read_bool(); });
    } else if (key == "initial") {
      out.initial = map<HostValue>([&] { return values_.read(); });
    } else if (key == "labels") {
      out.labels = map<Name>([&] { return in_.read_string(); });
    } else if (key == "origins") {
      out.origins = map<Name>([&] { return in_.read_string(); });
    } else if (key == "readers") {
      out.readers = map<std::pair<int64_t, Name>>([&] { return reader(); });
    } else if (key == "states") {
      array([&] { out.states.push_back(state()); });
    } else if (key == "parts") {
      array([&] { out.parts.push_back(part()); });
    } else {
      return op_field(key, out.op);
    }
    return true;
  });
  move_arguments(out.op);
  out.wires.insert(out.wires.end(), out.op.former.begin(), out.op.former.end());
  return out;
}

bool RecordReader::op_field(Name key, OpRecord& op) {
  if (key == "op") {
    op_name(op);
  } else if (key == "attrs") {
    for (auto& [name, value] : map<HostValue>([&] { return values_.read(); })) {
      if (op.attrs.find(name) != nullptr) in_.fail("an argument stands twice");
      op.attrs.set(name, std::move(value));
    }
  } else if (key == "items") {
    op.items = static_cast<int32_t>(in_.read_integer(0, kMostItems));
  } else if (key == "values") {
    op.values = map<HostValue>([&] { return values_.read(); });
  } else if (key == "initializers") {
    op.initializers = map<HostValue>([&] { return values_.read(); });
  } else if (key == "facts") {
    array([&] { op.facts.push_back(said()); });
  } else {
    return false;
  }
  return true;
}

void RecordReader::op_name(OpRecord& op) {
  const Name name = in_.read_string();
  if (!in_.ok()) return;
  auto found = ir::Registry::global().lookup(name.substr(0, 200));
  if (found.ok()) {
    op.op = *found;
    return;
  }
  in_.fail(found.error().message, Code::kOpUnknown, core::ErrorKind::kKey);
}

PartRecord RecordReader::part() {
  PartRecord out;
  object("a part", [&](Name key) {
    if (key == "name") {
      out.name = in_.read_string();
    } else if (key == "class") {
      out.class_name = in_.read_string();
    } else if (key == "model") {
      out.model = in_.read_string();
    } else if (key == "wires") {
      out.wires = map<std::optional<Name>>([&]() -> std::optional<Name> {
        if (in_.peek() != JsonReader::Type::kNull) return in_.read_string();
        in_.read_null();
        return std::nullopt;
      });
    } else if (key == "cins") {
      out.cins = names();
    } else if (key == "couts") {
      out.couts = names();
    } else {
      return op_field(key, out.op);
    }
    return true;
  });
  move_arguments(out.op);
  for (const Name key : out.op.former) out.wires.emplace_back(key, std::nullopt);
  if ((out.op.op != nullptr) == !out.model.empty()) in_.fail("a part has either 'op' or 'model'");
  if (out.op.op == nullptr && !out.op.initializers.empty()) {
    in_.fail("the initializers of a part that is a model stand in the model");
  }
  return out;
}

Said RecordReader::said() {
  Said out;
  const auto is = [&](Said::Type type) {
    if (out.type != Said::Type::kNothing) in_.fail("one fact says one thing");
    out.type = type;
  };
  object("a fact", [&](Name key) {
    if (key == "model") {
      out.model = in_.read_string();
    } else if (key == "wire") {
      out.wire = in_.read_string();
    } else if (key == "type") {
      is(Said::Type::kType);
      out.content.kinds = values_.read_kinds();
    } else if (key == "containers") {
      out.content.containers = read_containers(in_);
    } else if (key == "interval") {
      out.interval = read_interval(in_);
    } else if (key == "shape") {
      is(Said::Type::kShape);
      out.shape = values_.read_shape();
    } else if (key == "scope") {
      out.scope = in_.read_integer();
    } else if (key == "value") {
      is(Said::Type::kValue);
      out.value = values_.read();
    } else if (key == "next") {
      is(Said::Type::kNext);
      out.next = in_.read_string();
    } else if (key == "next_model") {
      out.next_model = in_.read_string();
    } else {
      out.is_newer = true;
      return false;
    }
    return true;
  });
  const bool needs_type = out.interval || !out.content.is_plain();
  if (needs_type && (out.type != Said::Type::kType || !fits(out.content))) {
    in_.fail("what containers hold and intervals belong to a type that has them");
  }
  return out;
}

StateRecord RecordReader::state() {
  StateRecord out;
  object("a state", [&](Name key) {
    if (key == "input") {
      out.input = in_.read_string();
    } else if (key == "output") {
      out.output = in_.read_string();
    } else if (key == "initial") {
      out.initial = values_.read();
    } else {
      return false;
    }
    return true;
  });
  return out;
}

StatementRecord RecordReader::statement() {
  StatementRecord out;
  object("a statement", [&](Name key) {
    if (key == "by") {
      out.by = in_.read_string();
    } else if (key == "says") {
      array([&] { out.says.push_back(said()); });
    } else if (key == "constraint") {
      out.constraint = constraint();
    } else {
      return false;
    }
    return true;
  });
  return out;
}

ConstraintRecord RecordReader::constraint() {
  ConstraintRecord out;
  object("a constraint", [&](Name key) {
    if (key == "name") {
      out.name = in_.read_string();
    } else if (key == "model") {
      out.model = in_.read_string();
    } else if (key == "part") {
      out.part = in_.read_integer(0, std::numeric_limits<int32_t>::max());
    } else if (key == "keys") {
      out.keys = names();
    } else if (key == "after") {
      array([&] { out.after.push_back(in_.read_integer(0, kMostItems)); });
    } else {
      return false;
    }
    return true;
  });
  if (out.name.empty() || out.keys.empty()) in_.fail("a constraint has a name and keys");
  if (std::max(out.keys.size(), out.after.size()) > kMostConstraintKeys) {
    in_.fail("a constraint of too many keys", Code::kFileLimit);
  }
  return out;
}

// [part, key]
std::pair<int64_t, Name> RecordReader::reader() {
  std::pair<int64_t, Name> out;
  in_.begin_array();
  bool is_pair = in_.next_item();
  if (is_pair) out.first = in_.read_integer(0, std::numeric_limits<int32_t>::max());
  is_pair = is_pair && in_.next_item();
  if (is_pair) out.second = in_.read_string();
  if (!is_pair || in_.next_item()) in_.fail("requires a part and its key");
  return out;
}

HistoryRecord RecordReader::history() {
  HistoryRecord out;
  object("the history", [&](Name key) {
    if (key == "order") {
      out.order = order();
    } else if (key == "stops") {
      out.stops = places();
    } else if (key == "models") {
      out.models = places();
    } else if (key == "ops") {
      out.ops = places();
    } else if (key == "facts") {
      out.facts = places();
    } else if (key == "merges") {
      array([&] { out.merges.push_back(merge()); });
    } else if (key == "files") {
      out.files = names();
    } else {
      return false;
    }
    return true;
  });
  return out;
}

MergeRecord RecordReader::merge() {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  MergeRecord out;
  object("a merge", [&](Name key) {
    if (key == "by") {
      out.by = in_.read_string();
    } else if (key == "model") {
      out.model = in_.read_string();
    } else if (key == "wire") {
      out.wire = in_.read_string();
    } else if (key == "into") {
      out.into = in_.read_integer(0, kMost);
    } else if (key == "at") {
      out.at = in_.read_integer(0, kMost);
    } else if (key == "keys") {
      array([&] {
        const int64_t op = in_.read_integer(0, kMost);
        if (!in_.next_item()) return in_.fail("requires ops and their keys");
        out.keys.emplace_back(op, in_.read_string());
      });
    } else if (key == "facts") {
      array([&] {
        const int64_t call = in_.read_integer(0, kMost);
        if (!in_.next_item()) return in_.fail("requires facts and wires of theirs");
        out.facts.emplace_back(call, in_.read_integer(0, kMost));
      });
    } else if (key == "place") {
      out.place = places();
    } else {
      return false;
    }
    return true;
  });
  return out;
}

// "ops" | "facts", first, count, and again.
std::vector<Run> RecordReader::order() {
  std::vector<Run> out;
  const auto number = [&] {
    if (!in_.next_item()) in_.fail("requires 'ops' or 'facts', a first number, a count");
    return static_cast<size_t>(in_.read_integer(0, std::numeric_limits<int32_t>::max()));
  };
  array([&] {
    Run run;
    const Name of = in_.read_string();
    if (of != "ops" && of != "facts") in_.fail("requires 'ops' or 'facts'");
    run.ops = of == "ops";
    run.first = number();
    run.count = number();
    out.push_back(run);
  });
  return out;
}

std::vector<int64_t> RecordReader::places() {
  std::vector<int64_t> out;
  array([&] { out.push_back(in_.read_integer(0, std::numeric_limits<int32_t>::max())); });
  return out;
}

}  // namespace

FileRecord read_file(JsonReader& in, std::vector<std::string>& notes) {
  return RecordReader(in, notes).file();
}

}  // namespace mithril::model

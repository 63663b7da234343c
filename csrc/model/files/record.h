// A model file as it was read, before anything was built from it. Internal to model/.
#pragma once
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "infer/solver.h"
#include "ir/graph.h"
#include "ir/op_def.h"

namespace mithril::model {

using core::HostValue;
/// Text of the file; lives as long as file text and reader.
using Name = std::string_view;
template <class T>
using Map = std::vector<std::pair<Name, T>>;

/// One thing said of a wire.
struct Said {
  enum class Type : uint8_t { kNothing, kType, kShape, kValue, kNext };
  Type type = Type::kNothing;
  Name model, wire;       // model "": the outermost one
  bool is_newer = false;  // says what only a later release knows
  infer::Type content;
  std::optional<infer::Interval> interval;  // besides, of kType
  infer::ShapeTemplate shape;
  std::optional<int64_t> scope;
  HostValue value;
  Name next_model, next;
};

struct OpRecord {
  const ir::OpDef* op = nullptr;
  ir::Attrs attrs;
  std::vector<Name> former;  // keys that were arguments when the file was written
  int32_t items = -1;
  Map<HostValue> values;
  std::vector<Said> facts;
  Map<HostValue> initializers;  // of a model of parts, too
};

/// A submodel in its model: an op, or the id of a model.
struct PartRecord {
  Name name, class_name, model;
  OpRecord op;
  Map<std::optional<Name>> wires;  // its keys -> wires of the model
  std::optional<std::vector<Name>> cins, couts;
};

struct StateRecord {
  Name input, output;
  std::optional<HostValue> initial;
};

struct ModelRecord {
  Name name, class_name;
  bool frozen = false;
  OpRecord op;  // of an outermost model that is one op
  std::vector<Name> wires, outputs, cins, couts, latent;
  std::optional<int64_t> numbered;
  Map<bool> differentiable;
  Map<HostValue> initial;
  Map<Name> labels, origins;
  Map<std::pair<int64_t, Name>> readers;
  std::vector<StateRecord> states;
  std::vector<PartRecord> parts;
};

/// Records one add_constraint.
struct ConstraintRecord {
  Name name, model;             // model "": the outermost one
  std::optional<int64_t> part;  // an op of the model, if the keys are its own
  std::vector<Name> keys;
  std::vector<int64_t> after;  // constraints of the same model, in their order
};

struct StatementRecord {
  Name by;
  std::vector<Said> says;
  std::optional<ConstraintRecord> constraint;
};

struct Run {
  bool ops = false;
  size_t first = 0, count = 0;
};

/// A part of a wire that was a wire of its own until the solver had met `at` entries of the order.
struct MergeRecord {
  Name by, model, wire;         // model "": the outermost one
  std::optional<int64_t> into;  // a later merge, whose part it becomes
  int64_t at = 0;
  std::vector<std::pair<int64_t, Name>> keys;      // (op, its key)
  std::vector<std::pair<int64_t, int64_t>> facts;  // (call, which of the wires that it names)
  std::vector<int64_t> place;                      // file, line
};

struct HistoryRecord {
  std::vector<Run> order;
  std::vector<int64_t> stops;               // (distance, times) after (distance, times)
  std::vector<int64_t> models, ops, facts;  // (file, line) after (file, line)
  std::vector<MergeRecord> merges;
  std::vector<Name> files;
};

struct FileRecord {
  ModelRecord model;
  Map<ModelRecord> submodels;
  std::vector<StatementRecord> facts;
  Name training;  // JSON text
  std::optional<HistoryRecord> history;
};

/// Reads a file; look at the reader's status. `notes` gets what was ignored.
FileRecord read_file(core::JsonReader& in, std::vector<std::string>& notes);

}  // namespace mithril::model

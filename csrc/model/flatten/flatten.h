// From a nested model to a flat typed graph, and what compile needs to know of the keys.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/op_def.h"
#include "model/model.h"

namespace mithril::model {

enum class Mode : uint8_t { kEval, kTrain };

struct FlattenOptions {
  std::vector<KeyRef> data_keys, trainable_keys, discard_keys;
  Config<HostValue> constants;   // constant_keys with their values
  Config<HostValue> values;      // what a call gave for numbers that decide shapes
  Config<ShapeTemplate> shapes;  // symbols are shared
  /// The same for the tensors of a list: key, place in it, shape.
  std::vector<std::tuple<KeyRef, size_t, ShapeTemplate>> item_shapes;
  Config<infer::Type> types;
  Config<core::DType> dtypes;  // of inputs; the target's default elsewhere
  /// Says what the arrays of a call hold, by key and place in a list (0 of other keys). It counts
  /// where nothing in the model decides it; a wire that is tied to wider ones has their kind.
  std::vector<std::tuple<KeyRef, size_t, core::Kind>> element_kinds;
  /// Further outputs: names with wires of any level.
  std::vector<std::pair<std::string, Connection>> fetch;
  Mode mode = Mode::kEval;
  bool inference = false;        // no gradients will be asked for
  bool strict = false;           // unknown data_keys are an error instead of a warning
  bool safe_shapes = true;       // losses: input and target of one shape, rank at least 1
  bool safe_names = true;        // unnamed run-time data keys are an error
  bool short_names = true;       // weight_0; else linear_0_weight
  bool drops_discarded = false;  // also what is needed by discarded outputs that ops read
  bool await_values = false;     // numbers that calls give may decide shapes: say which, no graph
  bool path_names = false;       // encoder.attn.w_q, in the place of both
  /// The model's first part is the one that was given, and its keys are named as it names them: of
  /// a training model.
  bool names_of_part = false;
  Location where;
};

struct Warning {
  /// "UnusedKeyWarning", "EmptyModelWarning" …: names of Python classes.
  std::string category;
  std::string text;
};

/// A key that evaluate takes.
struct FlatKey {
  std::string name;
  ir::Role role = ir::Role::kData;
  bool trainable = false;  // params: gradients exist for these
  KindSet kinds;
  KindSet open_kinds;                // element kinds that data may bring; none: the model decides
  std::optional<core::DType> dtype;  // as the options say
  ir::ValueId value = ir::kNoValue;  // in the graph; none when the graph is deferred
  std::optional<infer::Dim> fan_in;  // product of the dims that the initialiser counts
  ir::Init init;
  /// set_values(initial=True): a value or literal. Running statistics: the number that fills them
  /// at first. The state `rng_key`: "key".
  std::optional<HostValue> initial;
  bool rank_known = false;
  int least_rank = 0;      // of a tensor
  ir::Shape shape;         // when rank_known; dims of `FlatGraph::graph.dims`
  std::string shape_text;  // "[N, (V1, ...), 3]", for messages
  std::string path;        // dotted path of the leaf key: seeds of initial values
  std::string key;         // of the model: "w", "$3"; "" of a state bound further inside
  std::string list;        // "xs" of "xs.0": the key that is a list of tensors; "" for others
};

/// An output that is a list or tuple of tensors, or of lists again: the tensors are outputs of
/// their own ("y.0", "y.1.0").
struct OutputList {
  std::string name;
  bool is_list = false;           // else a tuple
  std::vector<OutputList> items;  // none: a tensor

  bool is_tensor() const { return items.empty(); }
};

struct FlatGraph {
  ir::Graph graph;
  std::vector<FlatKey> keys;  // inputs of the graph, in the model's input order
  std::vector<std::string> outputs;
  std::vector<bool> output_differentiable;
  std::vector<OutputList> output_lists;
  std::vector<std::string> ignored_keys;  // data_keys that the model lacks: passed through (K11)
  std::vector<Warning> warnings;
  /// Keys whose rank, all sizes, or value must be known before the graph can be made. Not empty:
  /// `graph` holds no nodes; flatten again with `shapes` or `values` of the data.
  std::vector<std::string> unknown_ranks, unknown_sizes, unknown_values;
  bool deferred() const {
    return !unknown_ranks.empty() || !unknown_sizes.empty() || !unknown_values.empty();
  }
};

/// A model with state (running statistics, `rng_key`, bind_state) has state inputs in train mode;
/// in eval mode running statistics are params that are not trainable and draws use a fixed key.
/// Never changes the model. The order of nodes is that of dependence, then of insertion; only what
/// outputs and states need is in the graph. Outputs: the exposed wires, else the canonical outputs
/// under their names or key origins. Undecided wires become tensors of floats, in input order,
/// unless `element_kinds` says what they are.
core::Result<FlatGraph> flatten(const Model& model, const FlattenOptions& options = {});

}  // namespace mithril::model

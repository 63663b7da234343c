// The flat program: SSA nodes over typed values. Labels are for people; ids are the structure.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/host_value.h"
#include "core/location.h"
#include "ir/type.h"

namespace mithril::ir {

using ValueId = int32_t;
using NodeId = int32_t;
using OpId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

/// Attributes of a node by name, in the order in which the op declares them.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, HostValue>> items) : items_(items) {}
  const HostValue* find(std::string_view name) const;
  void set(std::string_view name, HostValue value);
  void erase(std::string_view name);
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<std::pair<std::string, HostValue>> items_;
};

class Graph;

/// Tells how deep graphs may own graphs (a loop in a loop).
inline constexpr int kMaxRegionDepth = 16;

/// One application of an op. `operands` has an entry for each declared input (kNoValue where the
/// input is absent or given as an attribute), then the further items of a variadic last input.
struct Node {
  OpId op = -1;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Attrs attrs;
  int32_t location = 0;  // index in Graph::locations
  /// Holds what the op runs by itself (scan: the body of the loop). Shared, never changed. A region
  /// has sizes of its own: symbols of one name are one size.
  std::vector<std::shared_ptr<const Graph>> regions;
};

/// Says what an input of a graph is to the caller.
enum class Role : uint8_t { kData, kParam, kState, kCotangent };

struct ValueInfo {
  Type type;
  NodeId node = kNoNode;    // the producer; kNoNode for graph inputs
  int32_t result = 0;       // which of its results
  std::string name;         // inputs: the key; else a label or ""
  Role role = Role::kData;  // inputs only
  /// Host values that are known, with sizes as expressions: {b, 4} for shape of f32[b, 4].
  std::optional<HostValue> host;
};

struct Output {
  std::string name;
  ValueId value = kNoValue;
};

/// A value that one call returns and the next one takes.
struct StateBinding {
  ValueId input = kNoValue;
  ValueId output = kNoValue;
  HostValue initial;  // number (fill), tensor literal, or "key" for random state
};

/// Nodes stand in topological order: operands of a node are defined before it.
class Graph {
 public:
  std::string name;
  std::vector<Node> nodes;
  std::vector<ValueInfo> values;
  std::vector<ValueId> inputs;
  std::vector<Output> outputs;
  std::vector<StateBinding> states;
  std::vector<core::Location> locations{core::Location{}};  // [0] is unknown
  DimTable dims;
  /// Abstract until assign_dtypes chooses; from then on every type in the graph is concrete.
  DType default_float = DType::kAnyFloat;
  DType default_int = DType::kAnyInt;
  bool is_concrete() const { return !core::is_abstract(default_float); }

  /// Its name, sizes, locations and dtypes around no nodes: what a graph made of it starts from.
  Graph frame() const;
  ValueId add_input(std::string name, Type type, Role role);
  /// Appends a node whose result types are given. Builder infers them; passes use Builder.
  NodeId add_node(OpId op, std::vector<ValueId> operands, Attrs attrs, std::vector<Type> results,
                  int32_t location);
  int32_t add_location(core::Location location);

  const Type& type(ValueId value) const { return values[static_cast<size_t>(value)].type; }
  ValueInfo& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const ValueInfo& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  /// The node that makes `value`, or null for an input.
  const Node* producer(ValueId value) const;
  const core::Location& location_of(const Node& node) const {
    return locations[static_cast<size_t>(node.location)];
  }
  ValueId find_input(std::string_view name) const;  // kNoValue if absent
  ValueId find_output(std::string_view name) const;
};

/// By value: whether a node or an output reads it that matters to the outputs.
std::vector<bool> live_values(const Graph& graph);
/// The same with what matters given: values that somebody outside reads.
std::vector<bool> live_values(const Graph& graph, std::vector<bool> read);

/// Tells how often each value is read by nodes and outputs.
std::vector<int32_t> use_counts(const Graph& graph);

}  // namespace mithril::ir

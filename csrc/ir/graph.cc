#include "ir/graph.h"

#include <algorithm>

namespace mithril::ir {

const HostValue* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attrs::set(std::string_view name, HostValue value) {
  for (auto& [key, old] : items_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  items_.emplace_back(name, std::move(value));
}

void Attrs::erase(std::string_view name) {
  std::erase_if(items_, [&](const auto& item) { return item.first == name; });
}

Graph Graph::frame() const {
  Graph out;
  out.name = name;
  out.dims = dims;
  out.locations = locations;
  out.default_float = default_float;
  out.default_int = default_int;
  return out;
}

ValueId Graph::add_input(std::string input_name, Type type, Role role) {
  const auto id = static_cast<ValueId>(values.size());
  ValueInfo info;
  info.type = std::move(type);
  info.name = std::move(input_name);
  info.role = role;
  values.push_back(std::move(info));
  inputs.push_back(id);
  return id;
}

NodeId Graph::add_node(OpId op, std::vector<ValueId> operands, Attrs attrs,
                       std::vector<Type> results, int32_t location) {
  const auto id = static_cast<NodeId>(nodes.size());
  Node node;
  node.op = op;
  node.operands = std::move(operands);
  node.attrs = std::move(attrs);
  node.location = location;
  for (size_t i = 0; i < results.size(); ++i) {
    node.results.push_back(static_cast<ValueId>(values.size()));
    ValueInfo info;
    info.type = std::move(results[i]);
    info.node = id;
    info.result = static_cast<int32_t>(i);
    values.push_back(std::move(info));
  }
  nodes.push_back(std::move(node));
  return id;
}

int32_t Graph::add_location(core::Location location) {
  if (!locations.empty() && locations.back() == location) {
    return static_cast<int32_t>(locations.size()) - 1;
  }
  locations.push_back(std::move(location));
  return static_cast<int32_t>(locations.size()) - 1;
}

const Node* Graph::producer(ValueId id) const {
  const NodeId at = value(id).node;
  return at == kNoNode ? nullptr : &node(at);
}

ValueId Graph::find_input(std::string_view key) const {
  for (const ValueId id : inputs) {
    if (value(id).name == key) return id;
  }
  return kNoValue;
}

ValueId Graph::find_output(std::string_view key) const {
  for (const Output& output : outputs) {
    if (output.name == key) return output.value;
  }
  return kNoValue;
}

std::vector<bool> live_values(const Graph& graph) {
  std::vector<bool> read(graph.values.size(), false);
  for (const Output& output : graph.outputs) read[static_cast<size_t>(output.value)] = true;
  for (const StateBinding& state : graph.states) read[static_cast<size_t>(state.output)] = true;
  return live_values(graph, std::move(read));
}

std::vector<bool> live_values(const Graph& graph, std::vector<bool> read) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool is_live = std::any_of(node->results.begin(), node->results.end(),
                                     [&](ValueId id) { return read[static_cast<size_t>(id)]; });
    for (const ValueId id : node->operands) {
      if (is_live && id != kNoValue) read[static_cast<size_t>(id)] = true;
    }
  }
  return read;
}

std::vector<int32_t> use_counts(const Graph& graph) {
  std::vector<int32_t> counts(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.operands) {
      if (id != kNoValue) ++counts[static_cast<size_t>(id)];
    }
  }
  for (const Output& output : graph.outputs) ++counts[static_cast<size_t>(output.value)];
  for (const StateBinding& state : graph.states) ++counts[static_cast<size_t>(state.output)];
  return counts;
}

}  // namespace mithril::ir

#include "model/outline/outline_parts.h"

#include <algorithm>

#include "ir/registry.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;
using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

const std::string& op_name(const Node& node) { return ir::Registry::global().get(node.op).name; }

int64_t number(const Node& node, std::string_view attr) { return node.attrs.find(attr)->as_int(); }

bool is_mark(std::string_view op) {
  static constexpr std::string_view kMarks[] = {"scan_enter", "scan_slice", "scan_stack",
                                                "scan_exit",  "while_exit", "cond_join"};
  return std::find(std::begin(kMarks), std::end(kMarks), op) != std::end(kMarks);
}

bool is_of(const Node& node, int64_t model) {
  return is_mark(op_name(node)) && number(node, "loop") == model;
}

core::Error refused(const Graph& graph, const Node& node, std::string message, std::string hint) {
  core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported, "{}", message);
  error.location = graph.location_of(node);
  error.hint = std::move(hint);
  return error;
}

void drop_dead(Graph& graph) {
  const std::vector<bool> live = ir::live_values(graph);
  const auto is_live = [&](const Node& node) {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId id) { return live[static_cast<size_t>(id)]; });
  };
  for (ir::ValueInfo& value : graph.values) {
    if (value.node != ir::kNoNode && !is_live(graph.node(value.node))) value.node = ir::kNoNode;
  }
  std::erase_if(graph.nodes, [&](const Node& node) { return !is_live(node); });
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    for (const ValueId id : graph.nodes[at].results) {
      graph.value(id).node = static_cast<ir::NodeId>(at);
    }
  }
}

namespace {

int depth_of(const Graph& graph) {
  int depth = 0;
  for (const Node& node : graph.nodes) {
    for (const auto& region : node.regions) depth = std::max(depth, 1 + depth_of(*region));
  }
  return depth;
}

}  // namespace

RegionWriter::RegionWriter(const Graph& from, const Node& end, std::string what)
    : from_(from), end_(end), what_(std::move(what)), region_(from.frame()) {
  region_.name = "step";
}

void RegionWriter::add_input(ValueId outside, const ir::Type& type) {
  const ValueId made = region_.add_input("", type, ir::Role::kData);
  if (outside != kNoValue) map_[outside] = made;
}

core::Result<ValueId> RegionWriter::mapped(ValueId id, std::vector<ValueId>& operands) {
  const auto found = map_.find(id);
  if (found != map_.end()) return found->second;
  const Node* node = from_.producer(id);
  if (node != nullptr && op_name(*node) == "constant") {
    const ir::NodeId made =
        region_.add_node(node->op, {}, node->attrs, {from_.type(id)}, node->location);
    return map_[id] = region_.node(made).results[0];
  }
  if (!from_.type(id).is_tensor) {
    return refused(from_, end_, what_ + ": a number that only the data tell is read inside",
                   "make it a tensor, or give it in constant_keys");
  }
  operands.push_back(id);
  add_input(id, from_.type(id));
  return map_[id];
}

core::Status RegionWriter::copy(const Node& node, std::vector<ValueId>& operands) {
  std::vector<ValueId> ids;
  for (const ValueId id : node.operands) {
    if (id == kNoValue) {
      ids.push_back(kNoValue);
      continue;
    }
    MITHRIL_ASSIGN(const ValueId inside, mapped(id, operands));
    ids.push_back(inside);
  }
  std::vector<ir::Type> types;
  for (const ValueId id : node.results) types.push_back(from_.type(id));
  const ir::NodeId made =
      region_.add_node(node.op, std::move(ids), node.attrs, std::move(types), node.location);
  region_.nodes.back().regions = node.regions;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const ValueId result = region_.node(made).results[i];
    region_.value(result).host = from_.value(node.results[i]).host;
    map_[node.results[i]] = result;
  }
  return {};
}

core::Status RegionWriter::add_output(ValueId id, std::vector<ValueId>& operands) {
  MITHRIL_ASSIGN(const ValueId inside, mapped(id, operands));
  region_.outputs.push_back({"", inside});
  return {};
}

core::Result<Graph> RegionWriter::finish() {
  if (depth_of(region_) >= ir::kMaxRegionDepth) {
    return refused(
        from_, end_,
        fmt::format("{}: loops and branches are more than {} deep", what_, ir::kMaxRegionDepth),
        "");
  }
  return std::move(region_);
}

}  // namespace mithril::model

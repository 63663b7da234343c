#include "model/outline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/registry.h"
#include "ir/scan.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;
using core::HostValue;
using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

const std::string& op_name(const Node& node) { return ir::Registry::global().get(node.op).name; }
bool is_enter(const Node& node) { return op_name(node) == "scan_enter"; }
bool is_slice(const Node& node) { return op_name(node) == "scan_slice"; }
bool is_stack(const Node& node) { return op_name(node) == "scan_stack"; }
bool is_exit(const Node& node) { return op_name(node) == "scan_exit"; }
bool is_entry(const Node& node) { return is_enter(node) || is_slice(node); }

int64_t number(const Node& node, std::string_view attr) { return node.attrs.find(attr)->as_int(); }
bool is_of(const Node& node, int64_t loop) {
  return is_mark(op_name(node)) && number(node, "loop") == loop;
}

/// The nodes of one loop: by place in the graph.
struct Loop {
  std::map<int64_t, size_t> enters, slices, stacks, exits;  // by their index
  std::vector<bool> steps;                                  // by node: what a step does
  bool has_inner = false;                                   // marks of another loop between
  size_t end() const { return stacks.empty() ? exits.begin()->second : stacks.begin()->second; }
};

core::Error refused(const Graph& graph, const Node& node, std::string message, std::string hint) {
  core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported, "{}", message);
  error.location = graph.location_of(node);
  error.hint = std::move(hint);
  return error;
}

class Finder {
 public:
  Finder(const Graph& graph, int64_t id) : graph_(graph), id_(id) {}

  core::Result<Loop> run() {
    find_marks();
    if (loop_.stacks.empty() && loop_.exits.empty()) {
      return refused(graph_, graph_.nodes[first_mark_], "scan: a loop has no end", "");
    }
    find_steps();
    MITHRIL_RETURN_IF_ERROR(check_escapes());
    return std::move(loop_);
  }

 private:
  void find_marks() {
    for (size_t at = graph_.nodes.size(); at-- > 0;) {
      const Node& node = graph_.nodes[at];
      if (!is_of(node, id_)) continue;
      first_mark_ = at;
      auto& group = is_enter(node)   ? loop_.enters
                    : is_slice(node) ? loop_.slices
                    : is_stack(node) ? loop_.stacks
                                     : loop_.exits;
      group[number(node, "index")] = at;
    }
  }

  bool is_own_end(const Node& node) const {
    return is_of(node, id_) && (is_stack(node) || is_exit(node));
  }

  // What depends on an entry and an end depends on.
  void find_steps() {
    std::vector<bool> reached(graph_.values.size(), false), asked(graph_.values.size(), false);
    const auto any = [](const std::vector<ValueId>& ids, const std::vector<bool>& flags) {
      return std::any_of(ids.begin(), ids.end(), [&](ValueId id) {
        return id != kNoValue && flags[static_cast<size_t>(id)];
      });
    };
    const auto set = [](const std::vector<ValueId>& ids, std::vector<bool>& flags) {
      for (const ValueId id : ids) {
        if (id != kNoValue) flags[static_cast<size_t>(id)] = true;
      }
    };
    for (const Node& node : graph_.nodes) {
      const bool entry = is_entry(node) && is_of(node, id_);
      if (entry || any(node.operands, reached)) set(node.results, reached);
    }
    loop_.steps.assign(graph_.nodes.size(), false);
    for (size_t at = graph_.nodes.size(); at-- > 0;) {
      const Node& node = graph_.nodes[at];
      if (is_own_end(node)) {
        set(node.operands, asked);
      } else if (any(node.results, asked) && any(node.results, reached)) {
        set(node.operands, asked);
        loop_.steps[at] = !is_of(node, id_);
        loop_.has_inner |= is_mark(op_name(node)) && !is_of(node, id_);
      }
    }
  }

  bool is_inside(ValueId id) const {
    const ir::NodeId at = id == kNoValue ? ir::kNoNode : graph_.value(id).node;
    if (at == ir::kNoNode) return false;
    const Node& node = graph_.node(at);
    return loop_.steps[static_cast<size_t>(at)] || (is_entry(node) && is_of(node, id_));
  }

  core::Status check_escapes() const {
    const auto refuse = [&](ValueId id) {
      return refused(graph_, *graph_.producer(id),
                     fmt::format("scan: a value of one step ({}) is read outside of the loop",
                                 op_name(*graph_.producer(id))),
                     "make it an output of the body, in ys= or carry=");
    };
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      const Node& node = graph_.nodes[at];
      if (loop_.steps[at] || is_own_end(node)) continue;
      for (const ValueId id : node.operands) {
        if (is_inside(id)) return refuse(id);
      }
    }
    for (const ir::Output& output : graph_.outputs) {
      if (is_inside(output.value)) return refuse(output.value);
    }
    for (const ir::StateBinding& state : graph_.states) {
      if (is_inside(state.output)) return refuse(state.output);
    }
    return {};
  }

  const Graph& graph_;
  const int64_t id_;
  Loop loop_;
  size_t first_mark_ = 0;
};

int depth_of(const Graph& graph) {
  int depth = 0;
  for (const Node& node : graph.nodes) {
    for (const auto& region : node.regions) depth = std::max(depth, 1 + depth_of(*region));
  }
  return depth;
}

/// The scan that a loop becomes.
class Body {
 public:
  Body(const Graph& graph, const Loop& loop) : graph_(graph), loop_(loop) {}

  core::Status make() {
    body_.name = "step";
    body_.dims = graph_.dims;
    body_.locations = graph_.locations;
    body_.default_float = graph_.default_float;
    body_.default_int = graph_.default_int;
    MITHRIL_RETURN_IF_ERROR(find_length());
    MITHRIL_RETURN_IF_ERROR(add_carries());
    for (const auto& [index, at] : loop_.slices) add_input("x", graph_.nodes[at]);
    parts_.xs = loop_.slices.size();
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      if (loop_.steps[at]) MITHRIL_RETURN_IF_ERROR(copy(graph_.nodes[at]));
    }
    MITHRIL_RETURN_IF_ERROR(add_outputs());
    parts_.constants = operands.size() - parts_.carries - parts_.xs;
    if (depth_of(body_) >= ir::kMaxRegionDepth) {
      return refused(graph_, end(),
                     fmt::format("scan: loops are more than {} deep", ir::kMaxRegionDepth), "");
    }
    return {};
  }

  ir::ScanParts parts() const { return parts_; }
  std::shared_ptr<const Graph> take() { return std::make_shared<const Graph>(std::move(body_)); }
  const std::vector<int64_t>& carries() const { return carries_; }

  std::vector<ValueId> operands;  // of the scan, in the graph

 private:
  const Node& end() const { return graph_.nodes[loop_.end()]; }

  core::Status find_length() {
    parts_.reverse = end().attrs.find("reverse")->as_bool();
    const HostValue* length = end().attrs.find("length");
    const bool known = length != nullptr && (length->is_int() || length->is_symbolic());
    if (!known) {
      return refused(graph_, end(), "scan: the length is a number that only the data tell",
                     "give it in constant_keys, or loop over a sequence");
    }
    if (length->is_int() && length->as_int() < 0) {
      return core::fail(ErrorKind::kValue, Code::kValueArgument,
                        "scan: length must not be negative, got {}", length->as_int());
    }
    parts_.length = *length;
    return {};
  }

  // What the next step starts from, of each carry: every end tells.
  std::span<const ValueId> next() const {
    const size_t before = is_exit(end()) ? 3 : 2;
    return std::span(end().operands).subspan(std::min(before, end().operands.size()));
  }

  core::Status add_carries() {
    std::set<int64_t> known;
    for (const auto& [index, at] : loop_.enters) known.insert(index);
    for (const auto& [index, at] : loop_.exits) known.insert(index);
    for (const int64_t index : known) {
      if (index < 0 || static_cast<size_t>(index) >= next().size()) {
        return refused(graph_, end(), "scan: a carry has no next value", "");
      }
      carries_.push_back(index);
      const auto enter = loop_.enters.find(index);
      if (enter != loop_.enters.end()) {
        add_input("c", graph_.nodes[enter->second]);
        continue;
      }
      const ValueId start = graph_.nodes[loop_.exits.at(index)].operands[1];
      operands.push_back(start);
      body_.add_input(fmt::format("c{}", carries_.size() - 1), graph_.type(start), ir::Role::kData);
    }
    parts_.carries = carries_.size();
    return {};
  }

  void add_input(const char* kind, const Node& entry) {
    operands.push_back(entry.operands[0]);
    const size_t before = *kind == 'x' ? parts_.carries : 0;
    map_[entry.results[0]] =
        body_.add_input(fmt::format("{}{}", kind, operands.size() - 1 - before),
                        graph_.type(entry.results[0]), ir::Role::kData);
  }

  // Numbers stay numbers; other values from outside are constants of the loop.
  core::Result<ValueId> mapped(ValueId id) {
    const auto found = map_.find(id);
    if (found != map_.end()) return found->second;
    const Node* node = graph_.producer(id);
    if (node != nullptr && op_name(*node) == "constant") {
      const ir::NodeId made =
          body_.add_node(node->op, {}, node->attrs, {graph_.type(id)}, node->location);
      return map_[id] = body_.node(made).results[0];
    }
    if (!graph_.type(id).is_tensor) {
      return refused(graph_, end(), "scan: a number that only the data tell is read in a loop",
                     "make it a tensor, or give it in constant_keys");
    }
    operands.push_back(id);
    return map_[id] =
               body_.add_input(fmt::format("k{}", constants_++), graph_.type(id), ir::Role::kData);
  }

  core::Status copy(const Node& node) {
    std::vector<ValueId> ids;
    for (const ValueId id : node.operands) {
      if (id == kNoValue) {
        ids.push_back(kNoValue);
        continue;
      }
      MITHRIL_ASSIGN(const ValueId inside, mapped(id));
      ids.push_back(inside);
    }
    std::vector<ir::Type> types;
    for (const ValueId id : node.results) types.push_back(graph_.type(id));
    const ir::NodeId made =
        body_.add_node(node.op, std::move(ids), node.attrs, std::move(types), node.location);
    body_.nodes.back().regions = node.regions;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId result = body_.node(made).results[i];
      body_.value(result).host = graph_.value(node.results[i]).host;
      map_[node.results[i]] = result;
    }
    return {};
  }

  core::Status add_outputs() {
    for (size_t i = 0; i < carries_.size(); ++i) {
      MITHRIL_ASSIGN(const ValueId id, mapped(next()[static_cast<size_t>(carries_[i])]));
      body_.outputs.push_back({fmt::format("c{}", i), id});
    }
    for (const auto& [index, at] : loop_.stacks) {
      MITHRIL_ASSIGN(const ValueId id, mapped(graph_.nodes[at].operands[0]));
      body_.outputs.push_back({fmt::format("y{}", parts_.ys++), id});
    }
    return {};
  }

  const Graph& graph_;
  const Loop& loop_;
  Graph body_;
  ir::ScanParts parts_;
  std::vector<int64_t> carries_;    // their indices
  std::map<ValueId, ValueId> map_;  // of the graph -> of the body
  size_t constants_ = 0;
};

/// The graph with one loop as a node. Nodes keep their order, but for what a scan must wait for.
class Replacement {
 public:
  Replacement(const Graph& graph, const Loop& loop)
      : graph_(graph), loop_(loop), body_(graph, loop), done_(graph.nodes.size(), false) {}

  core::Result<Graph> run() {
    MITHRIL_RETURN_IF_ERROR(body_.make());
    copy_frame();
    for (size_t at = 0; at < graph_.nodes.size(); ++at) emit(at);
    for (const ir::Output& output : graph_.outputs) {
      out_.outputs.push_back({output.name, map_.at(output.value)});
    }
    for (const ir::StateBinding& state : graph_.states) {
      out_.states.push_back({map_.at(state.input), map_.at(state.output), state.initial});
    }
    return std::move(out_);
  }

 private:
  void copy_frame() {
    out_.name = graph_.name;
    out_.dims = graph_.dims;
    out_.locations = graph_.locations;
    out_.default_float = graph_.default_float;
    out_.default_int = graph_.default_int;
    for (const ValueId id : graph_.inputs) {
      const ir::ValueInfo& info = graph_.value(id);
      map_[id] = out_.add_input(info.name, info.type, info.role);
      out_.value(map_[id]).host = info.host;
    }
  }

  // Nodes of the loop stand for the scan, at the place of one of its ends.
  std::optional<size_t> unit(size_t at) const {
    const auto is_at = [&](const auto& item) { return item.second == at; };
    const auto among = [&](const auto& marks) {
      return std::any_of(marks.begin(), marks.end(), is_at);
    };
    if (among(loop_.stacks) || among(loop_.exits)) return loop_.end();
    if (loop_.steps[at] || among(loop_.enters) || among(loop_.slices)) return std::nullopt;
    return at;
  }

  const std::vector<ValueId>& operands_of(size_t unit) const {
    return unit == loop_.end() ? body_.operands : graph_.nodes[unit].operands;
  }

  // What it reads first, without recursion: chains are long.
  void emit(size_t start) {
    const auto first = unit(start);
    if (!first || done_[*first]) return;
    std::vector<std::pair<size_t, size_t>> stack{{*first, 0}};
    while (!stack.empty()) {
      auto& [at, next] = stack.back();
      const std::vector<ValueId>& operands = operands_of(at);
      if (next < operands.size()) {
        const ValueId id = operands[next++];
        const ir::NodeId maker = id == kNoValue ? ir::kNoNode : graph_.value(id).node;
        if (maker == ir::kNoNode) continue;
        const auto before = unit(static_cast<size_t>(maker));
        if (before && !done_[*before]) stack.emplace_back(*before, 0);
        continue;
      }
      const size_t ready = at;
      stack.pop_back();
      if (done_[ready]) continue;
      done_[ready] = true;
      ready == loop_.end() ? emit_scan() : copy(graph_.nodes[ready]);
    }
  }

  std::vector<ValueId> mapped(const std::vector<ValueId>& ids) const {
    std::vector<ValueId> out;
    for (const ValueId id : ids) out.push_back(id == kNoValue ? kNoValue : map_.at(id));
    return out;
  }

  void copy(const Node& node) {
    std::vector<ir::Type> types;
    for (const ValueId id : node.results) types.push_back(graph_.type(id));
    const ir::NodeId made =
        out_.add_node(node.op, mapped(node.operands), node.attrs, std::move(types), node.location);
    out_.nodes.back().regions = node.regions;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId result = out_.node(made).results[i];
      out_.value(result).host = graph_.value(node.results[i]).host;
      out_.value(result).name = graph_.value(node.results[i]).name;
      map_[node.results[i]] = result;
    }
  }

  void emit_scan() {
    ir::Builder builder(out_, graph_.nodes[loop_.end()].location);
    std::vector<ir::Value> operands;
    for (const ValueId id : mapped(body_.operands)) operands.push_back(builder.value(id));
    std::vector<ir::Type> y_types;
    for (const auto& [index, at] : loop_.stacks) {
      y_types.push_back(graph_.type(graph_.nodes[at].results[0]));
    }
    const ir::ScanParts parts = body_.parts();
    const auto results = ir::call_scan(builder, parts, operands, body_.take(), std::move(y_types));
    for (const auto& [index, at] : loop_.exits) {
      const auto& carries = body_.carries();
      const auto place = std::find(carries.begin(), carries.end(), index) - carries.begin();
      map_[graph_.nodes[at].results[0]] = results[static_cast<size_t>(place)].id;
    }
    size_t y = 0;
    for (const auto& [index, at] : loop_.stacks) {
      map_[graph_.nodes[at].results[0]] = results[parts.y(y++)].id;
    }
  }

  const Graph& graph_;
  const Loop& loop_;
  Body body_;
  Graph out_;
  std::vector<bool> done_;
  std::map<ValueId, ValueId> map_;
};

// Sizes in bodies are known by their names.
void name_symbols(infer::DimTable& dims) {
  int next = 1;
  for (uint32_t i = 0; i < dims.symbol_count(); ++i) {
    const infer::Dim symbol = dims.symbol_at(i);
    if (dims.is_named(symbol)) continue;
    while (!dims.set_name(symbol, fmt::format("u{}", next))) ++next;
    ++next;
  }
}

// What nobody reads may read the values of steps: the length of a sequence that is known.
void drop_dead(Graph& graph) {
  std::vector<bool> live(graph.values.size(), false);
  const auto keep = [&](ValueId id) {
    if (id != kNoValue) live[static_cast<size_t>(id)] = true;
  };
  for (const ir::Output& output : graph.outputs) keep(output.value);
  for (const ir::StateBinding& state : graph.states) keep(state.output);
  const auto is_live = [&](const Node& node) {
    return std::any_of(node.results.begin(), node.results.end(),
                       [&](ValueId id) { return live[static_cast<size_t>(id)]; });
  };
  for (size_t at = graph.nodes.size(); at-- > 0;) {
    if (!is_live(graph.nodes[at])) continue;
    for (const ValueId id : graph.nodes[at].operands) keep(id);
  }
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

std::set<int64_t> loops_in(const Graph& graph) {
  std::set<int64_t> out;
  for (const Node& node : graph.nodes) {
    if (is_mark(op_name(node))) out.insert(number(node, "loop"));
  }
  return out;
}

}  // namespace

bool is_mark(std::string_view op) {
  return op == "scan_enter" || op == "scan_slice" || op == "scan_stack" || op == "scan_exit";
}

core::Result<Graph> outline_loops(Graph graph) {
  std::set<int64_t> open = loops_in(graph);
  if (open.empty()) return graph;
  name_symbols(graph.dims);
  drop_dead(graph);
  open = loops_in(graph);
  while (!open.empty()) {
    bool any = false;
    for (const int64_t id : std::vector<int64_t>(open.begin(), open.end())) {
      MITHRIL_ASSIGN(const Loop loop, Finder(graph, id).run());
      if (loop.has_inner) continue;
      MITHRIL_ASSIGN(graph, Replacement(graph, loop).run());
      open.erase(id);
      any = true;
    }
    if (!any) {
      return core::fail(ErrorKind::kValue, Code::kValueArgument,
                        "scan: the steps of two loops read each other");
    }
  }
  return graph;
}

}  // namespace mithril::model

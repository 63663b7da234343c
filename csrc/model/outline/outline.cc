#include "model/outline/outline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "model/outline/outline_parts.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;
using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

/// The graph with one cut as a node. Nodes keep their order, but for what that node must wait for.
class Replacement {
 public:
  Replacement(const Graph& graph, const Owners& owners, const Cutout& cut)
      : graph_(graph), owners_(owners), cut_(cut), done_(graph.nodes.size(), false) {}

  core::Status run() {
    MITHRIL_ASSIGN(made_, cut_.make());
    copy_frame();
    for (size_t at = 0; at < graph_.nodes.size(); ++at) emit(at);
    for (const ir::Output& output : graph_.outputs) {
      out_.outputs.push_back({output.name, map_.at(output.value)});
    }
    for (const ir::StateBinding& state : graph_.states) {
      out_.states.push_back({map_.at(state.input), map_.at(state.output), state.initial});
    }
    return {};
  }

  Graph take() { return std::move(out_); }
  std::vector<int64_t> take_owners() { return std::move(leaf_); }

 private:
  void copy_frame() {
    out_ = graph_.frame();
    for (const ValueId id : graph_.inputs) {
      const ir::ValueInfo& info = graph_.value(id);
      map_[id] = out_.add_input(info.name, info.type, info.role);
      out_.value(map_[id]).host = info.host;
    }
  }

  // What is cut stands for the new node, at the place of its first end.
  std::optional<size_t> unit(size_t at) const {
    const bool is_end = std::find(cut_.ends.begin(), cut_.ends.end(), at) != cut_.ends.end();
    if (is_end) return cut_.ends.front();
    return cut_.inside[at] ? std::nullopt : std::optional(at);
  }

  bool is_cut(size_t unit) const { return unit == cut_.ends.front(); }
  const std::vector<ValueId>& operands_of(size_t unit) const {
    return is_cut(unit) ? made_.operands : graph_.nodes[unit].operands;
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
      leaf_.push_back(owners_.leaf[ready]);
      is_cut(ready) ? emit_cut() : copy(graph_.nodes[ready]);
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

  void emit_cut() {
    ir::Builder builder(out_, graph_.nodes[cut_.ends.front()].location);
    std::vector<ir::Value> operands;
    for (const ValueId id : mapped(made_.operands)) operands.push_back(builder.value(id));
    const std::vector<ir::Value> results = made_.append(builder, operands);
    for (size_t i = 0; i < cut_.ends.size(); ++i) {
      map_[graph_.nodes[cut_.ends[i]].results[0]] = results[made_.results[i]].id;
    }
  }

  const Graph& graph_;
  const Owners& owners_;
  const Cutout& cut_;
  Made made_;
  Graph out_;
  std::vector<int64_t> leaf_;  // of `out_`
  std::vector<bool> done_;
  std::map<ValueId, ValueId> map_;
};

// Sizes in regions are known by their names.
void name_symbols(infer::DimTable& dims) {
  int next = 1;
  for (uint32_t i = 0; i < dims.symbol_count(); ++i) {
    const infer::Dim symbol = dims.symbol_at(i);
    if (dims.is_named(symbol)) continue;
    while (!dims.set_name(symbol, fmt::format("u{}", next))) ++next;
    ++next;
  }
}

/// Models with marks in the graph -> whether they choose between branches.
std::map<int64_t, bool> marked(const Graph& graph) {
  std::map<int64_t, bool> out;
  for (const Node& node : graph.nodes) {
    if (is_mark(op_name(node))) out[number(node, "loop")] |= op_name(node) == "cond_join";
  }
  return out;
}

// What nobody reads may read the values of steps: the length of a sequence that is known.
void drop_unread(Graph& graph, Owners& owners) {
  std::map<ValueId, int64_t> leaf_of;  // by first result: ids stay
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    leaf_of[graph.nodes[at].results[0]] = owners.leaf[at];
  }
  drop_dead(graph);
  owners.leaf.clear();
  for (const Node& node : graph.nodes) owners.leaf.push_back(leaf_of.at(node.results[0]));
}

}  // namespace

core::Result<Graph> outline(Graph graph, Owners owners) {
  if (marked(graph).empty()) return graph;
  name_symbols(graph.dims);
  drop_unread(graph, owners);
  std::map<int64_t, bool> open = marked(graph);
  while (!open.empty()) {
    bool any = false;
    for (const auto& [model, chooses] : std::map(open)) {
      MITHRIL_ASSIGN(const Cutout cut,
                     chooses ? cut_branches(graph, owners, model) : cut_loop(graph, model));
      if (cut.has_inner) continue;
      Replacement replacement(graph, owners, cut);
      MITHRIL_RETURN_IF_ERROR(replacement.run());
      owners.leaf = replacement.take_owners();
      graph = replacement.take();
      open.erase(model);
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

// Branches before marks: `cond`.
#include <algorithm>
#include <array>
#include <memory>

#include "model/outline/outline_parts.h"

namespace mithril::model {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

constexpr size_t kPredicate = 2;  // operand of cond_join; before it what each branch makes

/// Tells who reads a value: nobody yet, one branch, or somebody outside of it.
enum class Reader : uint8_t { kNone, kTaken, kOther, kOutside };

/// The choice at the marks of one model.
struct Choice {
  std::vector<size_t> joins;                // places in the graph
  std::array<std::vector<bool>, 2> branch;  // by node
  bool has_inner = false;                   // marks of something else inside
};

Choice find(const Graph& graph, const Owners& owners, int64_t model) {
  Choice out;
  for (std::vector<bool>& nodes : out.branch) nodes.assign(graph.nodes.size(), false);
  std::vector<Reader> readers(graph.values.size(), Reader::kNone);
  const auto add = [&](ValueId id, Reader reader) {
    if (id == kNoValue) return;
    Reader& now = readers[static_cast<size_t>(id)];
    now = now == Reader::kNone || now == reader ? reader : Reader::kOutside;
  };
  for (const ir::Output& output : graph.outputs) add(output.value, Reader::kOutside);
  for (const ir::StateBinding& state : graph.states) add(state.output, Reader::kOutside);
  for (size_t at = graph.nodes.size(); at-- > 0;) {
    const Node& node = graph.nodes[at];
    if (is_of(node, model)) {
      out.joins.push_back(at);
      add(node.operands[0], Reader::kTaken);
      add(node.operands[1], Reader::kOther);
      add(node.operands[kPredicate], Reader::kOutside);
      continue;
    }
    Reader all = Reader::kNone;
    for (const ValueId id : node.results) {
      const Reader one = readers[static_cast<size_t>(id)];
      all = all == Reader::kNone || one == Reader::kNone || all == one ? std::max(all, one)
                                                                       : Reader::kOutside;
    }
    const bool can_move = owners.is_inside(owners.leaf[at], model) && op_name(node) != "constant";
    if (!can_move) all = Reader::kOutside;
    if (all == Reader::kTaken || all == Reader::kOther) {
      out.branch[all == Reader::kTaken ? 0 : 1][at] = true;
      out.has_inner |= is_mark(op_name(node));
    }
    for (const ValueId id : node.operands) add(id, all);
  }
  std::reverse(out.joins.begin(), out.joins.end());
  return out;
}

core::Result<Made> make(const Graph& graph, const Choice& choice) {
  const Node& first = graph.nodes[choice.joins.front()];
  Made out;
  std::vector<ir::Type> types;
  for (const size_t at : choice.joins) {
    const Node& join = graph.nodes[at];
    out.results.push_back(types.size());
    types.push_back(graph.type(join.results[0]));
  }
  std::vector<RegionWriter> writers;
  std::vector<size_t> known;  // how many operands each has
  for (size_t side = 0; side < 2; ++side) {
    RegionWriter& writer = writers.emplace_back(graph, first, "cond");
    for (const ValueId id : out.operands) writer.add_input(id, graph.type(id));
    for (size_t at = 0; at < graph.nodes.size(); ++at) {
      if (!choice.branch[side][at]) continue;
      MITHRIL_RETURN_IF_ERROR(writer.copy(graph.nodes[at], out.operands));
    }
    for (const size_t at : choice.joins) {
      MITHRIL_RETURN_IF_ERROR(writer.add_output(graph.nodes[at].operands[side], out.operands));
    }
    known.push_back(out.operands.size());
  }
  for (size_t i = known[0]; i < known[1]; ++i) {
    writers[0].add_input(out.operands[i], graph.type(out.operands[i]));
  }
  ir::RegionParts parts;
  parts.constants = out.operands.size();
  ir::Regions regions;
  for (RegionWriter& writer : writers) {
    MITHRIL_ASSIGN(Graph region, writer.finish());
    region.name = regions.empty() ? "taken" : "other";
    ir::name_parts(region, parts);
    regions.push_back(std::make_shared<const Graph>(std::move(region)));
  }
  out.operands.push_back(first.operands[kPredicate]);
  out.append = [regions = std::move(regions), types = std::move(types)](
                   ir::Builder& builder, std::span<const ir::Value> operands) {
    return ir::call_cond(builder, operands.first(operands.size() - 1), operands.back(), regions,
                         types);
  };
  return out;
}

}  // namespace

core::Result<Cutout> cut_branches(const Graph& graph, const Owners& owners, int64_t model) {
  const auto choice = std::make_shared<const Choice>(find(graph, owners, model));
  Cutout out;
  out.inside = choice->branch[0];
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    if (choice->branch[1][at]) out.inside[at] = true;
  }
  out.ends = choice->joins;
  out.has_inner = choice->has_inner;
  out.make = [&graph, choice] { return make(graph, *choice); };
  return out;
}

}  // namespace mithril::model

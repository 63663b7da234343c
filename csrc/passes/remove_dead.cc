#include "passes/remove_dead.h"

#include <algorithm>

#include "ir/scan.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ScanParts;
using ir::ValueId;

namespace {

using Flags = std::vector<bool>;

bool is_set(const Flags& flags, ValueId id) { return flags[static_cast<size_t>(id)]; }

/// What stays of a scan.
struct Kept {
  Flags operands, results;
};

// `live` are the values that somebody outside reads. Of a loop in there all operands count: what it
// does not need goes when its own body is looked at.
Flags live_values(const Graph& graph, Flags live) {
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool is_live = std::any_of(node->results.begin(), node->results.end(),
                                     [&](ValueId id) { return is_set(live, id); });
    for (const ValueId id : node->operands) {
      if (is_live && id != kNoValue) live[static_cast<size_t>(id)] = true;
    }
  }
  return live;
}

// A carry stays for its result, or for what a later step makes of it: asked until nothing is new.
Kept kept_of(const Node& node, const Flags& live) {
  const Graph& body = *node.regions[0];
  const ScanParts parts = ir::scan_parts(node);
  Kept out;
  for (const ValueId id : node.results) out.results.push_back(is_set(live, id));
  Flags inside;
  for (bool grown = true; grown;) {
    grown = false;
    inside.assign(body.values.size(), false);
    for (size_t i = 0; i < out.results.size(); ++i) {
      if (out.results[i]) inside[static_cast<size_t>(body.outputs[i].value)] = true;
    }
    inside = live_values(body, std::move(inside));
    for (size_t i = 0; i < parts.carries; ++i) {
      if (out.results[i] || !is_set(inside, body.inputs[i])) continue;
      out.results[i] = grown = true;
    }
  }
  for (size_t i = 0; i < node.operands.size(); ++i) {
    out.operands.push_back(i < parts.carries ? out.results[i] : is_set(inside, body.inputs[i]));
  }
  return out;
}

template <class T>
void erase_unset(std::vector<T>& items, const Flags& flags) {
  size_t next = 0;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i]) items[next++] = items[i];
  }
  items.resize(next);
}

ScanParts counts(const ScanParts& parts, const Kept& kept) {
  ScanParts out = parts;
  const auto count = [](const Flags& flags, size_t from, size_t to) {
    const auto at = [&](size_t i) { return flags.begin() + static_cast<ptrdiff_t>(i); };
    return static_cast<size_t>(std::count(at(from), at(to), true));
  };
  out.carries = count(kept.results, 0, parts.carries);
  out.xs = count(kept.operands, parts.x(0), parts.constant(0));
  out.constants = count(kept.operands, parts.constant(0), kept.operands.size());
  out.ys = count(kept.results, parts.carries, kept.results.size());
  return out;
}

core::Status copy_scan(Rewriter& rewriter, const Node& node, const Flags& live) {
  const Kept kept = kept_of(node, live);
  const ScanParts parts = counts(ir::scan_parts(node), kept);
  Graph body = *node.regions[0];
  erase_unset(body.inputs, kept.operands);
  erase_unset(body.outputs, kept.results);
  ir::name_parts(body, parts);
  MITHRIL_ASSIGN(body, remove_dead(body));
  std::vector<ir::Value> operands;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (kept.operands[i]) operands.push_back(rewriter.mapped(node.operands[i]));
  }
  std::vector<ValueId> results = node.results;
  erase_unset(results, kept.results);
  std::vector<ir::Type> y_types;
  for (size_t i = 0; i < parts.ys; ++i) {
    y_types.push_back(rewriter.from().type(results[parts.y(i)]));
  }
  rewriter.builder().set_location(node.location);
  const auto made = ir::call_scan(rewriter.builder(), parts, operands,
                                  std::make_shared<const Graph>(std::move(body)), y_types);
  for (size_t i = 0; i < results.size(); ++i) rewriter.map(results[i], made[i]);
  return {};
}

}  // namespace

core::Result<Graph> remove_dead(const Graph& graph) {
  Flags live(graph.values.size(), false);
  for (const ir::Output& output : graph.outputs) live[static_cast<size_t>(output.value)] = true;
  for (const ir::StateBinding& state : graph.states) {
    live[static_cast<size_t>(state.output)] = true;
  }
  // Backwards: what a loop does not read is dead to the nodes before it.
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool is_live = std::any_of(node->results.begin(), node->results.end(),
                                     [&](ValueId id) { return is_set(live, id); });
    if (!is_live) continue;
    const Flags read =
        ir::is_scan(*node) ? kept_of(*node, live).operands : Flags(node->operands.size(), true);
    for (size_t i = 0; i < read.size(); ++i) {
      const ValueId id = node->operands[i];
      if (read[i] && id != kNoValue) live[static_cast<size_t>(id)] = true;
    }
  }
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const bool is_live = std::any_of(node.results.begin(), node.results.end(),
                                     [&](ValueId id) { return is_set(live, id); });
    if (!is_live) continue;
    if (!ir::is_scan(node)) {
      rewriter.copy(node);
      continue;
    }
    MITHRIL_RETURN_IF_ERROR(copy_scan(rewriter, node, live));
  }
  return rewriter.finish();
}

}  // namespace mithril::passes

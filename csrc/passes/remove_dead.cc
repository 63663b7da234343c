#include "passes/remove_dead.h"

#include <algorithm>

#include "ir/region.h"
#include "ir/registry.h"
#include "passes/mentions.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::RegionParts;
using ir::ValueId;

namespace {

using Flags = std::vector<bool>;

bool is_set(const Flags& flags, ValueId id) { return flags[static_cast<size_t>(id)]; }

/// Flags what stays of a node that owns graphs.
struct Kept {
  Flags operands, results;
};

// Of a node in a region all operands count: what a loop there does not need goes with its own body.
Flags live_inside(const Node& node, size_t at, const Flags& results) {
  const Graph& region = *node.regions[at];
  Flags out(region.values.size(), false);
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    const bool is_read = !ir::gives_results(node, at) || results[i];
    if (is_read) out[static_cast<size_t>(region.outputs[i].value)] = true;
  }
  return ir::live_values(region, std::move(out));
}

// A carry stays for its result, or for what a later step makes of it: asked until nothing is new.
Kept kept_of(const Node& node, const Flags& live) {
  const RegionParts parts = ir::region_parts(node);
  Kept out;
  for (const ValueId id : node.results) out.results.push_back(is_set(live, id));
  Flags read;  // by input of the regions
  for (bool grown = true; grown;) {
    grown = false;
    read.assign(parts.inputs(), false);
    for (size_t at = 0; at < node.regions.size(); ++at) {
      const Flags inside = live_inside(node, at, out.results);
      for (size_t i = 0; i < read.size(); ++i) {
        if (is_set(inside, node.regions[at]->inputs[i])) read[i] = true;
      }
    }
    for (size_t i = 0; i < parts.carries; ++i) {
      if (out.results[i] || !read[i]) continue;
      out.results[i] = grown = true;
    }
  }
  out.operands.assign(node.operands.size(), true);  // a predicate stays
  for (size_t i = 0; i < read.size(); ++i) {
    out.operands[i] = i < parts.carries ? out.results[i] : read[i];
  }
  return out;
}

bool is_sized_by_data(const Node& node) {
  return ir::Registry::global().get(node.op).sized_by_data;
}

/// A node whose size follows from data stays for its size alone, where another one speaks of that.
class SizesInUse {
 public:
  explicit SizesInUse(const Graph& graph)
      : graph_(graph),
        mentions_(graph),
        any_(std::any_of(graph.nodes.begin(), graph.nodes.end(), is_sized_by_data)) {}

  template <class Mentioning>
  void add(const Mentioning& mentioning) {
    if (any_) mentions_.add(mentioning);
  }
  bool need(const Node& node) const {
    if (!any_ || !is_sized_by_data(node)) return false;
    const ir::Shape& shape = graph_.type(node.results[0]).shape;
    return !shape.empty() && !shape[0].known() && mentions_.has(shape[0]);
  }

 private:
  const Graph& graph_;
  Mentions mentions_;
  bool any_;
};

template <class T>
void erase_unset(std::vector<T>& items, const Flags& flags) {
  size_t next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (flags[i]) items[next++] = items[i];
  }
  items.resize(next);
}

ir::Attrs counts(const Node& node, const Kept& kept) {
  const RegionParts parts = ir::region_parts(node);
  ir::Attrs out = node.attrs;
  const auto count = [&](const char* name, size_t from, size_t to) {
    const auto at = [&](size_t i) { return kept.operands.begin() + static_cast<ptrdiff_t>(i); };
    if (out.find(name) != nullptr) {
      out.set(name, ir::HostValue(static_cast<int64_t>(std::count(at(from), at(to), true))));
    }
  };
  count("carries", 0, parts.carries);
  count("xs", parts.x(0), parts.constant(0));
  return out;
}

core::Status copy_regions(Rewriter& rewriter, const Node& node, const Flags& live) {
  const Kept kept = kept_of(node, live);
  Node pruned = node;
  erase_unset(pruned.operands, kept.operands);
  erase_unset(pruned.results, kept.results);
  pruned.attrs = counts(node, kept);
  const RegionParts parts = ir::region_parts(pruned);
  for (size_t at = 0; at < node.regions.size(); ++at) {
    Graph region = *node.regions[at];
    erase_unset(region.inputs, kept.operands);
    if (ir::gives_results(node, at)) erase_unset(region.outputs, kept.results);
    ir::name_parts(region, parts, ir::gives_results(node, at));
    MITHRIL_ASSIGN(region, remove_dead(region));
    pruned.regions[at] = std::make_shared<const Graph>(std::move(region));
  }
  rewriter.copy(pruned);
  return {};
}

}  // namespace

core::Result<Graph> remove_dead(const Graph& graph) {
  Flags live(graph.values.size(), false);
  SizesInUse sizes(graph);
  const auto use = [&](ValueId id) {
    live[static_cast<size_t>(id)] = true;
    sizes.add(id);
  };
  for (const ir::Output& output : graph.outputs) use(output.value);
  for (const ir::StateBinding& state : graph.states) use(state.output);
  // Backwards: what a loop does not read is dead to the nodes before it.
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (sizes.need(*node)) live[static_cast<size_t>(node->results[0])] = true;
    const bool is_live = std::any_of(node->results.begin(), node->results.end(),
                                     [&](ValueId id) { return is_set(live, id); });
    if (!is_live) continue;
    sizes.add(*node);
    const Flags read =
        node->regions.empty() ? Flags(node->operands.size(), true) : kept_of(*node, live).operands;
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
    if (node.regions.empty()) {
      rewriter.copy(node);
      continue;
    }
    MITHRIL_RETURN_IF_ERROR(copy_regions(rewriter, node, live));
  }
  return rewriter.finish();
}

}  // namespace mithril::passes

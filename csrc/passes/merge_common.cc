#include "passes/merge_common.h"

#include <algorithm>
#include <unordered_map>

#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using ir::Node;
using ir::ValueId;

namespace {

struct Key {
  ir::OpId op;
  std::vector<ValueId> operands;
  ir::Attrs attrs;
  std::vector<std::shared_ptr<const ir::Graph>> regions;  // the same, not alike
  std::vector<ir::Type> types;  // where these bring in sizes that other nodes speak of
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t out = static_cast<size_t>(key.op);
    const auto mix = [&](size_t value) { out = out * 0x9e3779b97f4a7c15ULL + value + 1; };
    for (const ValueId id : key.operands) mix(static_cast<size_t>(id));
    for (const auto& [name, value] : key.attrs) mix(value.hash());
    return out;
  }
};

}  // namespace

core::Result<ir::Graph> merge_common(const ir::Graph& graph) {
  Rewriter rewriter(graph);
  std::unordered_map<Key, const Node*, KeyHash> seen;  // first old node of each key
  for (const Node& node : graph.nodes) {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    if (op.random) {
      rewriter.copy(node);
      continue;
    }
    Node mapped = rewriter.mapped(node);
    if (op.commutative) std::sort(mapped.operands.begin(), mapped.operands.end());
    Key key{node.op, std::move(mapped.operands), node.attrs, node.regions, {}};
    if (op.sized_by_data) {
      for (const ValueId id : node.results) key.types.push_back(graph.type(id));
    }
    const auto [at, inserted] = seen.emplace(std::move(key), &node);
    if (inserted) {
      rewriter.copy(node);
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      rewriter.map(node.results[i], rewriter.mapped(at->second->results[i]));
    }
  }
  return rewriter.finish();
}

}  // namespace mithril::passes

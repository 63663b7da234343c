#include "select/selection_report.h"

#include <fmt/format.h>

#include "ir/registry.h"

namespace mithril::select {
namespace {

SelectionReport::Member member(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  return {ir::Registry::global().get(node.op).name, graph.location_of(node).path};
}

std::string name_of(const SelectionReport::Member& member) {
  return member.path.empty() ? member.op : fmt::format("{} ({})", member.path, member.op);
}

// A group by the last of its nodes: what stands just before the reader.
std::string name_of(const ir::Graph& graph, const Group& group) {
  return name_of(member(graph, group.nodes.back()));
}

std::string sentence(const ir::Graph& graph, const Fusion& fusion, const Boundary& boundary) {
  const std::string from = name_of(graph, fusion.groups[static_cast<size_t>(boundary.from)]);
  const std::string reader = name_of(member(graph, boundary.reader));
  return fmt::format("{} is not fused with {}: {}", reader, from, text(boundary.blocker));
}

}  // namespace

SelectionReport report_of(const ir::Graph& graph, const Fusion& fusion, int32_t at,
                          const std::vector<bool>& steps) {
  const Group& group = fusion.groups[static_cast<size_t>(at)];
  SelectionReport out;
  for (const ir::NodeId id : group.nodes) out.members.push_back(member(graph, id));
  const ir::Type& type = graph.type(graph.node(group.nodes[0]).results[0]);
  if (group.is_loop) {
    out.shape = group.shape;
  } else if (type.is_tensor) {
    out.shape = ir::static_dims(type.shape);
  }
  if (!group.is_loop) {
    out.notes.push_back(fmt::format("{} is not fused: {}", name_of(out.members[0]),
                                    text(FusionBlocker::kOwnKernel)));
    return out;
  }
  if (group.product != ir::kNoNode) {
    out.notes.push_back(fmt::format("{} is finished block by block with what follows it",
                                    name_of(member(graph, group.product))));
  }
  for (const Boundary& boundary : boundaries(graph, fusion, at)) {
    if (!steps[static_cast<size_t>(boundary.from)]) continue;  // a view, a constant
    out.notes.push_back(sentence(graph, fusion, boundary));
  }
  return out;
}

}  // namespace mithril::select

// Graphs as graphviz text. User text passes escape_comment, so it cannot leave its label.
#include "ir/registry.h"
#include "ir/text.h"

namespace mithril::ir {
namespace {

std::string node_name(const Graph& graph, ValueId id) {
  const NodeId node = graph.value(id).node;
  return node == kNoNode ? fmt::format("v{}", id) : fmt::format("n{}", node);
}

/// Names of sizes may be any text.
std::string label_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' && c >= 0 ? ' ' : c;
  }
  return out;
}

std::string type_text(const Graph& graph, ValueId id) {
  return label_text(to_string(graph.type(id), graph.dims));
}

std::string edge(const Graph& graph, ValueId from, const std::string& to) {
  return fmt::format("  {} -> {} [label=\"{}\"];\n", node_name(graph, from), to,
                     type_text(graph, from));
}

}  // namespace

std::string dot(const Graph& graph) {
  std::string out =
      "digraph mithril {\n"
      "  node [shape=box, fontname=\"sans-serif\"];\n";
  for (const ValueId id : graph.inputs) {
    out += fmt::format("  v{} [label=\"{}\\n{}\", shape=ellipse];\n", id,
                       escape_comment(graph.value(id).name), type_text(graph, id));
  }
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    const Node& node = graph.nodes[at];
    const std::string path = escape_comment(graph.location_of(node).path);
    out += fmt::format("  n{} [label=\"{}{}{}\"];\n", at, Registry::global().get(node.op).name,
                       path.empty() ? "" : "\\n", path);
    for (const ValueId id : node.operands) {
      if (id != kNoValue) out += edge(graph, id, fmt::format("n{}", at));
    }
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    out += fmt::format("  o{} [label=\"{}\", shape=ellipse];\n", i,
                       escape_comment(graph.outputs[i].name));
    out += edge(graph, graph.outputs[i].value, fmt::format("o{}", i));
  }
  return out + "}\n";
}

}  // namespace mithril::ir

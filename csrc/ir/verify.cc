// The invariants of a graph.
#include "core/checked.h"
#include "ir/infer_types.h"
#include "ir/region.h"
#include "ir/registry.h"
#include "ir/text.h"

namespace mithril::ir {
namespace {

using core::Code;
using core::ErrorKind;
using core::Status;

class Verifier {
 public:
  Verifier(const Graph& graph, int depth) : graph_(graph), scratch_(graph), depth_(depth) {}

  Status run() {
    std::vector<bool> defined(graph_.values.size(), false);
    for (const ValueId id : graph_.inputs) defined[static_cast<size_t>(id)] = true;
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      const Node& node = graph_.nodes[at];
      for (const ValueId id : node.operands) {
        if (id == kNoValue) continue;
        const bool in_range = id >= 0 && static_cast<size_t>(id) < defined.size();
        if (!in_range || !defined[static_cast<size_t>(id)]) {
          return broken(node, fmt::format("operand {} is not defined before it", id));
        }
      }
      MITHRIL_RETURN_IF_ERROR(check_node(static_cast<NodeId>(at)));
      for (const ValueId id : node.results) defined[static_cast<size_t>(id)] = true;
    }
    for (const Output& output : graph_.outputs) {
      const bool known = output.value >= 0 && static_cast<size_t>(output.value) < defined.size() &&
                         defined[static_cast<size_t>(output.value)];
      if (!known) {
        return core::fail(ErrorKind::kInternal, Code::kInternal, "output '{}' is not defined",
                          output.name);
      }
    }
    return {};
  }

 private:
  Status broken(const Node& node, const std::string& what) const {
    return core::fail(ErrorKind::kInternal, Code::kInternal, "{} in graph {}: {}",
                      Registry::global().get(node.op).name, graph_.name, what);
  }

  Status check_node(NodeId id) {
    const Node& node = graph_.node(id);
    const OpDef& op = Registry::global().get(node.op);
    if (op.regions == 0 && node.results.size() != op.outputs.size())
      return broken(node, "wrong number of results");
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueInfo& info = graph_.value(node.results[i]);
      if (info.node != id || info.result != static_cast<int32_t>(i)) {
        return broken(node, "a result does not point back");
      }
      const bool abstract = info.type.is_tensor && core::is_abstract(info.type.dtype);
      if (graph_.is_concrete() && abstract) return broken(node, "an abstract dtype is left");
    }
    if (op.regions != 0) return check_inside(node);
    auto inferred = infer_types(op, scratch_, node.operands, node.attrs);
    if (!inferred.ok()) {
      Status status = std::move(inferred).status();
      if (!status.error().location.known()) status.error().location = graph_.location_of(node);
      return status;
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Type& written = graph_.type(node.results[i]);
      if (!agrees(inferred->types[i], written)) {
        return broken(node, fmt::format("result {} is {}, the op infers {}", i,
                                        to_string(written, graph_.dims),
                                        to_string(inferred->types[i], scratch_.dims)));
      }
    }
    return {};
  }

  Status check_inside(const Node& node) const {
    MITHRIL_RETURN_IF_ERROR(check_regions(graph_, node));
    if (depth_ == kMaxRegionDepth) return broken(node, "regions are nested too deeply");
    for (const auto& region : node.regions) {
      MITHRIL_RETURN_IF_ERROR(Verifier(*region, depth_ + 1).run());
    }
    return {};
  }

  // A size that inference leaves open may have any name.
  bool agrees(const Type& inferred, const Type& written) const {
    if (inferred.is_tensor != written.is_tensor) return false;
    if (!inferred.is_tensor) return true;
    if (inferred.dtype != written.dtype || inferred.rank() != written.rank()) return false;
    for (size_t i = 0; i < written.rank(); ++i) {
      const Dim dim = inferred.shape[i];
      const bool open =
          !dim.known() && scratch_.dims.is_symbol(dim) && !scratch_.dims.is_named(dim);
      if (!open && dim != written.shape[i]) return false;
    }
    return true;
  }

  const Graph& graph_;
  Graph scratch_;  // inference may add symbols to its table
  int depth_;
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph, 0).run(); }

Status check_addresses(const Graph& graph) {
  constexpr int64_t kMostElements = int64_t{1} << 60;  // of 8 bytes: 2^63
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Type& type = graph.values[i].type;
    if (!type.is_tensor || !is_static(type.shape)) continue;
    const auto count = core::element_count(static_dims(type.shape));
    if (count && *count < kMostElements) continue;
    core::Error error =
        core::fail(ErrorKind::kMemory, Code::kOutOfMemory,
                   "a value of type {} does not fit an address space", to_string(type, graph.dims));
    if (const Node* maker = graph.producer(static_cast<ValueId>(i))) {
      error.location = graph.location_of(*maker);
    }
    return error;
  }
  for (const Node& node : graph.nodes) {
    for (const auto& region : node.regions) MITHRIL_RETURN_IF_ERROR(check_addresses(*region));
  }
  return {};
}

}  // namespace mithril::ir

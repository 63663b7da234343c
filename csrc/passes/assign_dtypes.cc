#include "passes/assign_dtypes.h"

#include "passes/rewriter.h"

namespace mithril::passes {

core::Result<ir::Graph> assign_dtypes(const ir::Graph& graph, core::DType default_float,
                                      core::DType default_int) {
  Rewriter rewriter(graph);
  rewriter.graph().default_float = default_float;
  rewriter.graph().default_int = default_int;
  for (const ir::ValueId id : rewriter.graph().inputs) {
    ir::Type& type = rewriter.graph().value(id).type;
    if (!type.is_tensor) continue;
    if (type.dtype == core::DType::kAnyFloat) type.dtype = default_float;
    if (type.dtype == core::DType::kAnyInt) type.dtype = default_int;
  }
  for (const ir::Node& node : graph.nodes) rewriter.emit_again(node);
  return rewriter.finish();
}

}  // namespace mithril::passes

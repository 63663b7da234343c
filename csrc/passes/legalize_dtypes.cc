#include "passes/legalize_dtypes.h"

#include <algorithm>

#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

namespace {

bool is_narrow(const ir::Type& type) {
  return type.is_tensor && core::widened(type.dtype) != type.dtype;
}

void emit_widened(Rewriter& rewriter, const ir::Node& node) {
  ir::Builder& builder = rewriter.builder();
  builder.set_location(node.location);
  std::vector<ir::Operand> operands;
  for (const ir::ValueId id : node.operands) {
    ir::Value operand = id == ir::kNoValue ? ir::Value{} : rewriter.mapped(id);
    if (operand && is_narrow(operand.type())) {
      operand = ir::cast(operand, core::widened(operand.dtype()));
    }
    operands.emplace_back(operand);
  }
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  const auto results = builder.call_all(op, std::move(operands), node.attrs);
  if (!builder.status().ok()) return;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const ir::Type& wanted = rewriter.from().type(node.results[i]);
    const bool same = !wanted.is_tensor || results[i].dtype() == wanted.dtype;
    rewriter.map(node.results[i], same ? results[i] : ir::cast(results[i], wanted.dtype));
  }
}

}  // namespace

bool has_narrow(const ir::Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(),
                     [](const ir::ValueInfo& value) { return is_narrow(value.type); });
}

core::Result<ir::Graph> legalize_dtypes(const ir::Graph& graph, const SupportQuery& how) {
  Rewriter rewriter(graph);
  for (const ir::Node& node : graph.nodes) {
    if (node.regions.empty() && how(graph, node) == ir::Support::kWidened) {
      emit_widened(rewriter, node);
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

}  // namespace mithril::passes

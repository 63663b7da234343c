#include "passes/cast_policy.h"

#include "ir/halves.h"
#include "ir/registry.h"
#include "passes/regions.h"
#include "passes/rewriter.h"

namespace mithril::passes {

namespace {

using core::DType;

/// Rewrites one graph, whose regions are rewritten already.
class CastPolicy {
 public:
  CastPolicy(const ir::Graph& graph, DType compute) : rewriter_(graph), compute_(compute) {}

  core::Result<ir::Graph> run() {
    for (const ir::ValueId id : rewriter_.from().inputs) widen(id);
    for (const ir::Node& node : rewriter_.from().nodes) emit(node);
    for (const ir::Output& output : rewriter_.from().outputs) restore(output.value);
    for (const ir::StateBinding& state : rewriter_.from().states) restore(state.output);
    return rewriter_.finish();
  }

 private:
  void emit(const ir::Node& node) {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    if (!node.regions.empty()) {
      for (const ir::ValueId id : node.operands) restore(id);
      rewriter_.copy(node);
    } else if (op.precision == ir::Precision::kHalf && type(node.results[0]) == DType::kFloat32) {
      emit_cast(node, compute_);
    } else if (op.precision == ir::Precision::kWide) {
      emit_cast(node, DType::kFloat32);
    } else {
      rewriter_.emit_again(node);
      if (node.operands.empty()) widen(node.results[0]);
    }
  }

  /// Halves that follow from nothing, where all is to be computed in float32.
  void widen(ir::ValueId id) {
    const ir::Type& type = rewriter_.from().type(id);
    if (compute_ == DType::kFloat32 && ir::is_half(type)) {
      rewriter_.map(id, ir::cast(rewriter_.mapped(id), compute_));
    }
  }

  DType type(ir::ValueId id) const { return rewriter_.from().type(id).dtype; }

  /// With operands in `to` that were float32 in the graph as it came.
  void emit_cast(const ir::Node& node, DType to) {
    rewriter_.builder().set_location(node.location);
    std::vector<ir::Operand> operands;
    for (const ir::ValueId id : node.operands) {
      ir::Value operand = id == ir::kNoValue ? ir::Value{} : rewriter_.mapped(id);
      const bool is_wide = operand && operand.type().is_tensor && type(id) == DType::kFloat32;
      operands.emplace_back(is_wide ? ir::cast(operand, to) : operand);
    }
    rewriter_.emit_again(node, std::move(operands));
  }

  /// Gives a value the type back that it had.
  void restore(ir::ValueId id) {
    if (id == ir::kNoValue || !rewriter_.from().type(id).is_tensor) return;
    rewriter_.map(id, ir::cast(rewriter_.mapped(id), type(id)));
  }

  Rewriter rewriter_;
  const DType compute_;
};

}  // namespace

core::Result<ir::Graph> cast_policy(const ir::Graph& graph, core::DType compute) {
  return everywhere([&](const ir::Graph& g) { return CastPolicy(g, compute).run(); })(graph);
}

}  // namespace mithril::passes

#include "passes/own_ops.h"

#include "ir/builder.h"
#include "ir/full_rule.h"
#include "ir/registry.h"
#include "ir/vjp_op.h"
#include "passes/regions.h"
#include "passes/rewriter.h"

namespace mithril::passes {
namespace {

using ir::Node;
using ir::OpDef;

/// Applies the op itself to the operands of a node that stands for it.
std::vector<ir::Value> body_of(ir::Builder& b, const OpDef& original) {
  std::vector<ir::Operand> operands;
  for (const ir::InputDef& input : original.inputs) {
    operands.emplace_back(b.has(input.name) ? b.in(input.name) : ir::Value{});
  }
  return b.call_all(original, std::move(operands), b.node().attrs);
}

core::Status check_gradient(const OpDef& op) {
  const bool takes_list = !op.inputs.empty() && op.inputs.back().variadic;
  if (!takes_list && op.outputs.size() == 1 && op.regions == 0) return {};
  core::Error error = core::fail(
      core::ErrorKind::kUnsupported, core::Code::kUnsupported,
      "backward_{}: gradients of ops that take lists or have several results are the engine's",
      op.name);
  error.hint = "leave it out, or declare an op of your own (ml.models.CustomPrimitiveModel)";
  return error;
}

std::string name_of(std::string_view op, bool has_function, bool has_gradient) {
  return fmt::format("own_{}{}_{}", has_function ? "f" : "", has_gradient ? "g" : "", op);
}

using Names = std::map<std::string, std::string, std::less<>>;

core::Result<ir::Graph> replaced(const ir::Graph& graph, const Names& names) {
  const ir::Registry& registry = ir::Registry::global();
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const auto own = names.find(registry.get(node.op).name);
    if (own == names.end()) {
      rewriter.copy(node);
      continue;
    }
    Node renamed = node;
    MITHRIL_ASSIGN(const OpDef* op, registry.lookup(own->second));
    renamed.op = op->id;
    rewriter.copy(renamed);
  }
  return rewriter.finish();
}

}  // namespace

core::Result<std::string> define_own_op(std::string_view name, bool has_function,
                                        bool has_gradient) {
  ir::Registry& registry = ir::Registry::global();
  MITHRIL_ASSIGN(const OpDef* original, registry.lookup(name));
  std::string own = name_of(original->name, has_function, has_gradient);
  if (registry.find(own) != nullptr) return own;
  if (has_gradient) MITHRIL_RETURN_IF_ERROR(check_gradient(*original));
  OpDef op = *original;
  op.name = own;
  op.family = "own";
  op.doc = fmt::format("{} as a backend's class has it.", original->name);
  op.python_name.clear();
  op.aliases.clear();
  op.python_aliases.clear();
  op.samples.clear();
  op.error_samples.clear();
  op.body = ir::BodyKind::kNone;
  op.kernel.clear();
  op.compose = {};
  op.expands = {};
  op.pointwise = {};
  if (!op.shape_rule) op.shape_rule = ir::elementwise_rule(*original);
  if (!has_function) {
    op.body = ir::BodyKind::kCompose;
    op.compose = [original](ir::Builder& b) { return body_of(b, *original); };
  }
  if (has_gradient) {
    for (size_t i = 0; i < original->inputs.size(); ++i) {
      if (!original->inputs[i].kinds.may_be_tensor()) continue;
      MITHRIL_RETURN_IF_ERROR(registry.add(ir::vjp_of(op, infer::kTensor, i)).status());
    }
    op.differentiable = true;
    op.gradient = [own, original](ir::GradBuilder& g) { ir::pull_back_by_vjps(g, own, *original); };
  }
  MITHRIL_RETURN_IF_ERROR(registry.add(std::move(op)).status());
  return own;
}

core::Result<ir::Graph> call_own_functions(ir::Graph graph, const ir::Target& target) {
  if (target.own_functions.empty()) return graph;
  return replaced(graph, target.own_functions);
}

core::Result<ir::Graph> take_own_gradients(ir::Graph graph, const ir::Target& target) {
  if (target.own_gradients.empty() && target.own_functions.empty()) return graph;
  Names names = target.own_gradients;
  names.insert(target.own_functions.begin(), target.own_functions.end());
  return everywhere([&](const ir::Graph& g) { return replaced(g, names); })(graph);
}

}  // namespace mithril::passes

#include "passes/backward.h"

#include <algorithm>

#include "ir/halves.h"
#include "ir/registry.h"
#include "ir/scan.h"
#include "passes/cond_gradient.h"
#include "passes/scan_gradient.h"

namespace mithril::passes {

using core::Code;
using core::ErrorKind;
using core::Status;
using ir::GradBuilder;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::Value;
using ir::ValueId;

namespace {

std::vector<bool> flows(const std::vector<Value>& cotangents) {
  std::vector<bool> out;
  for (const Value& cotangent : cotangents) out.push_back(static_cast<bool>(cotangent));
  return out;
}

// What two rules give a half is added before it is rounded.
Value in_type_of_sums(Value cotangent, core::DType operand) {
  const bool waits = ir::in_float32(operand) == cotangent.dtype();
  return waits ? cotangent : ir::cast(cotangent, operand);
}

}  // namespace

bool is_differentiable(const ir::Type& type) {
  return type.is_tensor && core::is_float(type.dtype);
}

Backward::Backward(ir::Builder& builder)
    : graph_(builder.graph()),
      builder_(builder),
      node_count_(graph_.nodes.size()),
      depends_(graph_.values.size(), false),
      cotangents_(graph_.values.size()) {}

bool Backward::depends(ValueId id) const {
  return id != kNoValue && static_cast<size_t>(id) < depends_.size() &&
         depends_[static_cast<size_t>(id)];
}

void Backward::want(ValueId id) { depends_[static_cast<size_t>(id)] = true; }

void Backward::find_dependents() {
  for (size_t at = 0; at < node_count_; ++at) {
    const Node& node = graph_.nodes[at];
    const OpDef& op = ir::Registry::global().get(node.op);
    const bool reached =
        op.differentiable && std::any_of(node.operands.begin(), node.operands.end(),
                                         [&](ValueId id) { return depends(id); });
    if (!reached) continue;
    for (const ValueId id : node.results) {
      depends_[static_cast<size_t>(id)] = is_differentiable(graph_.type(id));
    }
  }
}

void Backward::add(ValueId id, Value cotangent) {
  Value& sum = cotangents_[static_cast<size_t>(id)];
  if (!sum) {
    sum = cotangent;
    return;
  }
  const Value before = ir::in_float32(sum);
  sum = before + ir::in_float32(cotangent);
}

Value Backward::cotangent_of(ValueId id) {
  return ir::cast(cotangents_[static_cast<size_t>(id)], graph_.type(id).dtype);
}

Status Backward::run() {
  for (size_t at = node_count_; at-- > 0;) MITHRIL_RETURN_IF_ERROR(pull_back(at));
  return {};
}

Status Backward::pull_back(size_t at) {
  const Node node = graph_.nodes[at];  // a copy: rules append nodes
  const OpDef& op = ir::Registry::global().get(node.op);
  std::vector<Value> flowing;
  bool any = false;
  for (const ValueId id : node.results) {
    const Value cotangent = depends(id) ? cotangent_of(id) : Value{};
    any |= static_cast<bool>(cotangent);
    flowing.push_back(cotangent);
  }
  std::vector<bool> wanted;
  for (const ValueId id : node.operands) wanted.push_back(depends(id));
  // Nothing is asked beyond a wanted value, unless something else reaches its node.
  const bool asked = std::find(wanted.begin(), wanted.end(), true) != wanted.end();
  if (!any || !asked || !op.differentiable) return {};
  const bool has_rule = op.gradient || ir::is_scan(node) || ir::is_cond(node);
  if (!has_rule) return no_gradient(node);
  builder_.set_location(node.location);
  const bool is_wide = op.gradient && ir::has_halves(graph_, node) &&
                       ir::gradient_rounds_inside(graph_, op, node, flows(flowing), wanted);
  GradBuilder rule(builder_, op, node, std::move(flowing));
  rule.set_wanted(wanted);
  if (is_wide) {
    const ir::InFloat32 scope(graph_);
    rule.compute_in_float32();
    op.gradient(rule);
  } else if (op.gradient) {
    op.gradient(rule);
  } else {
    Status pulled = ir::is_scan(node) ? pull_back_scan(rule) : pull_back_cond(rule);
    MITHRIL_RETURN_IF_ERROR(located(std::move(pulled), node));
  }
  MITHRIL_RETURN_IF_ERROR(located(builder_.take_status(), node));
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Value cotangent = rule.cotangents()[i];
    if (!cotangent || !wanted[i]) continue;
    const Value operand = builder_.value(node.operands[i]);
    add(operand.id, in_type_of_sums(ir::sum_to(cotangent, operand), operand.dtype()));
  }
  return located(builder_.take_status(), node);
}

Status Backward::no_gradient(const Node& node) const {
  core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                                 "{} has no gradient, and one is asked through it",
                                 ir::Registry::global().get(node.op).name);
  if (ir::is_while(node)) {
    error.hint = "use ml.Scan, whose number of steps is known, or compile with inference=True";
  }
  return located(std::move(error), node);
}

Status Backward::located(Status status, const Node& node) const {
  if (!status.ok() && !status.error().location.known()) {
    status.error().location = graph_.location_of(node);
  }
  return status;
}

Value Backward::take(ValueId id) {
  const Value found = cotangent_of(id);
  return found ? found : ir::zeros_like(builder_.value(id));
}

}  // namespace mithril::passes

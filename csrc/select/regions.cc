// Loops and branches: steps whose regions are selected like graphs of their own.
#include <utility>

#include "ir/scan.h"
#include "select/selector.h"

namespace mithril::select {

core::Result<plan::Region> Selector::selected(const ir::Graph& region) {
  SelectOptions options = options_;
  options.overwrites.clear();
  if (options.report != nullptr) options.report = &group_report_.inner.emplace_back();
  MITHRIL_ASSIGN(plan::Steps steps, select_steps(region, backend_, options));
  return plan::Region(std::make_shared<const plan::Steps>(std::move(steps)));
}

// A step without its kernel, of contiguous operands and results in memory of their own.
core::Result<Step> Selector::step_of(const Node& node, const ir::OpDef& op) {
  Step step;
  for (const ValueId id : node.operands) {
    Operand input = operand(id);
    if (input.packed != nullptr) give_elements(input, id);
    MITHRIL_RETURN_IF_ERROR(make_contiguous(input, id));
    step.operands.push_back(input.use);
  }
  for (const ValueId id : node.results) {
    materialize(id);
    step.operands.push_back(write(id));
  }
  step.label = group_report_.kernel = op.name;
  step.location = graph_.location_of(node);
  return step;
}

Status Selector::emit_loop_of(const Node& node) {
  const ir::RegionParts parts = ir::region_parts(node);
  auto loop = std::make_shared<plan::RegionLoop>();
  const ir::Graph& body = ir::body_of(node);
  MITHRIL_ASSIGN(loop->body, selected(body));
  loop->constants = static_cast<int32_t>(parts.constants);
  if (ir::is_scan(node)) {
    loop->length = ir::length_of(ir::scan_parts(node)).value();
    loop->reverse = ir::scan_parts(node).reverse;
  } else {
    MITHRIL_ASSIGN(loop->condition, selected(*node.regions[0]));
  }
  for (size_t i = 0; i < parts.constant(0); ++i) {
    const int64_t bytes = ir::byte_size(body.type(body.inputs[i]));
    (parts.is_x(i) ? loop->x_bytes : loop->carry_bytes).push_back(bytes);
  }
  for (size_t i = parts.carries; i < node.results.size(); ++i) {
    loop->y_bytes.push_back(ir::byte_size(body.type(body.outputs[i].value)));
  }
  MITHRIL_ASSIGN(Step step, step_of(node, ir::Registry::global().get(node.op)));
  step.loop = std::move(loop);
  steps_.steps.push_back(std::move(step));
  return {};
}

Status Selector::emit_branch(const Node& node) {
  auto branch = std::make_shared<plan::Branch>();
  MITHRIL_ASSIGN(branch->taken, selected(*node.regions[0]));
  MITHRIL_ASSIGN(branch->other, selected(*node.regions[1]));
  branch->inputs = static_cast<int32_t>(ir::region_parts(node).inputs());
  MITHRIL_ASSIGN(Step step, step_of(node, ir::Registry::global().get(node.op)));
  step.branch = std::move(branch);
  steps_.steps.push_back(std::move(step));
  return {};
}

}  // namespace mithril::select

#include "specialize/execution.h"

#include <algorithm>

#include "core/checked.h"
#include "ir/registry.h"
#include "plan/cost.h"
#include "plan/memory.h"
#include "plan/plan.h"

namespace mithril {
namespace {

using passes::Execution;

/// Count an element of a loop at the end of a product, and a byte that a kernel of unknown work
/// moves.
constexpr double kElement = 4, kByte = 2;

Execution::Place place_of(plan::BufferSpec::Kind kind) {
  return kind == plan::BufferSpec::Kind::kTemporary ? Execution::Place::kTemporary
                                                    : Execution::Place::kHeld;
}

double elements(const ir::Graph& graph, const ir::Node& node) {
  const ir::Type& type = graph.type(node.results[0]);
  if (!type.is_tensor) return 0;
  return static_cast<double>(core::element_count(ir::static_dims(type.shape)).value_or(0));
}

bool is_loop(const ir::Node& node) {
  const ir::BodyKind body = ir::Registry::global().get(node.op).body;
  return body == ir::BodyKind::kPointwise || body == ir::BodyKind::kRow;
}

// Of one node of a step.
double flops_of(const ir::Graph& graph, const plan::Plan& plan, const plan::Step& step,
                const ir::Node& node) {
  if (is_loop(node)) {
    const bool all_loop = step.work.unit == plan::Work::Unit::kOps && step.work.amount > 0;
    return all_loop ? step.work.amount / static_cast<double>(step.nodes.size())
                    : kElement * elements(graph, node);
  }
  if (step.work.unit == plan::Work::Unit::kFlops && step.work.amount > 0) return step.work.amount;
  const double known = step.nanoseconds * plan::kFlopsPerNanosecond;
  return std::max(known, kByte * static_cast<double>(plan::bytes_of(plan, step)));
}

}  // namespace

Execution execution_of(const ir::Graph& graph, const plan::Plan& plan) {
  Execution out;
  out.bytes = plan::memory_use(plan).allocated();
  out.live = plan::live_bytes(plan);
  out.step_of.assign(graph.nodes.size(), -1);
  out.flops.assign(graph.nodes.size(), 0);
  out.memory.resize(graph.values.size());
  for (const plan::BufferSpec& buffer : plan.buffers) {
    if (buffer.value < 0) continue;
    out.memory[static_cast<size_t>(buffer.value)] = {place_of(buffer.kind), buffer.bytes};
  }
  for (size_t at = 0; at < plan.steps.size(); ++at) {
    const plan::Step& step = plan.steps[at].step;
    for (const int32_t node : step.nodes) {  // copies of operands come before the step itself
      out.step_of[static_cast<size_t>(node)] = static_cast<int32_t>(at);
      out.flops[static_cast<size_t>(node)] =
          flops_of(graph, plan, step, graph.node(static_cast<ir::NodeId>(node)));
    }
  }
  return out;
}

core::Result<Execution> plan_execution(const ir::Graph& graph, const select::Backend& backend,
                                       const select::SelectOptions& options) {
  select::SelectOptions quiet = options;
  quiet.on_loop = nullptr;
  quiet.report = nullptr;
  MITHRIL_ASSIGN(plan::Steps steps, select::select_steps(graph, backend, quiet));
  MITHRIL_ASSIGN(const plan::Plan plan, plan::make_plan(std::move(steps)));
  return execution_of(graph, plan);
}

}  // namespace mithril

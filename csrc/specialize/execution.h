// Estimates how a backend would run a graph: what passes::rematerialize measures.
#pragma once
#include "core/status.h"
#include "ir/graph.h"
#include "passes/rematerialize.h"
#include "plan/plan.h"
#include "select/select.h"

namespace mithril {

/// Estimates how a specialised graph runs by its plan.
passes::Execution execution_of(const ir::Graph& graph, const plan::Plan& plan);

/// Plans a specialised graph to see the steps and the memory that it would get. Nobody is told.
core::Result<passes::Execution> plan_execution(const ir::Graph& graph,
                                               const select::Backend& backend,
                                               const select::SelectOptions& options);

}  // namespace mithril

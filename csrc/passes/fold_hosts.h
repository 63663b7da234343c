// Host values that became known with the sizes move from wires into attributes.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// `%1 = power(base=24, exponent=0.5)`, `%2 = divide(%0, %1)` →
/// `%1 = constant(value=4.899, dtype=f32)`, `%2 = divide(%0, %1)`.
core::Result<ir::Graph> fold_hosts(const ir::Graph& graph);

}  // namespace mithril::passes

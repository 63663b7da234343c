// Ops of which a backend's class brings its own function or its own gradient.
#pragma once
#include <string>
#include <string_view>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"

namespace mithril::passes {

/// Registers the op that stands for `op` on a backend that brings its function, its gradient or
/// both, and returns its name; the same pair gives the same op. It has the keys, rules and
/// attributes of `op` and no body, so nothing fuses, folds or decomposes it; one that brings only
/// the gradient has `op` as its body. The gradient of each operand is an op of its own,
/// `<name>_vjp<i>`: (cotangent, result, operands …).
///
/// Fails where the gradient cannot be a function of (cotangent, operands, result): for ops that
/// take lists or have several results.
core::Result<std::string> define_own_op(std::string_view op, bool has_function, bool has_gradient);

/// Puts the ops of `target.own_functions` in the place of the originals; not in regions.
core::Result<ir::Graph> call_own_functions(ir::Graph graph, const ir::Target& target);

/// The same everywhere, and for `target.own_gradients`: before a graph is differentiated.
core::Result<ir::Graph> take_own_gradients(ir::Graph graph, const ir::Target& target);

}  // namespace mithril::passes

// Losses and what reduces them, for frameworks whose function of a loss does both.
#pragma once
#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"

namespace mithril::passes {

/// Tells whether the target's function of the squared error reduces, too.
bool wants_reduced_losses(const ir::Target& target);

/// The mean or the sum of all single values of a loss that nothing else reads is the reduced loss.
core::Result<ir::Graph> reduce_losses(const ir::Graph& graph, const ir::Target& target);

}  // namespace mithril::passes

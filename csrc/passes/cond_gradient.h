// The gradient of a cond is a cond.
#pragma once
#include "core/status.h"
#include "ir/builder.h"

namespace mithril::passes {

/// Before: %y = cond(%x, %p) { return y0=exp(%k0) } { return y0=%k0 }
/// After:  %dx = cond(%x, %dy, %p) { return y0=multiply(%k1, exp(%k0)) } { return y0=%k1 }
/// The branch that was taken is done again, then its gradient program; nothing is kept of it.
core::Status pull_back_cond(ir::GradBuilder& g);

}  // namespace mithril::passes

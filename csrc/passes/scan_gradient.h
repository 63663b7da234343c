// The gradient of a scan is a scan.
#pragma once
#include "core/status.h"
#include "ir/builder.h"

namespace mithril::passes {

/// Before: %h, %y = scan(%h0, %x, %w) { … return c0=%1, y0=%2 }
/// After:  %h, %y, %s = scan(%h0, %x, %w) { … return c0=%1, y0=%2, y1=%c0 }
/// Each scan tells what its steps started from, which is what its gradient rule needs of it.
core::Result<ir::Graph> stack_carries(const ir::Graph& graph);

/// The gradient rule of a scan that tells its carries: the loop goes the other way, and a step
/// does the body's step again, then its gradient program. Cotangents of carries are carries; those
/// of constants are carries too, which each step adds to; those of xs are ys.
core::Status pull_back_scan(ir::GradBuilder& g);

}  // namespace mithril::passes

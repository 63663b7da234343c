// Small exact rewrites: what is the identity goes, what has one plain form gets it.
#pragma once
#include <functional>
#include <string_view>

#include "core/location.h"
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Told of each rewrite: the op that was replaced, and where it comes from.
using OnRewrite = std::function<void(std::string_view op, const core::Location& where)>;

/// One row per rewrite in canonicalize.cc; each is exact for every input, NaN and -0 included.
/// Before: %0 = transpose(%x, axes=(0, 1))   %1 = sum_to(%0, %w)   (f32[8, 4] to f32[4])
/// After:  %0 = sum(%x, axis=(0,)) : f32[4]
/// A sum_to or broadcast_like whose sizes are still open stays for the specialisation.
core::Result<ir::Graph> canonicalize(const ir::Graph& graph, const OnRewrite& on_rewrite = nullptr);

}  // namespace mithril::passes

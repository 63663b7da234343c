// The passes in their order: the engine's table of contents.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"
#include "passes/canonicalize.h"
#include "passes/fold_constants.h"
#include "passes/legalize_dtypes.h"

namespace mithril::passes {

/// Passes that may be switched off; "fuse" groups the loops of native backends, "epilogues" runs
/// some of them on blocks of matrix products.
inline constexpr std::string_view kOptimizingPasses[] = {
    "canonicalize",     "layout",          "reduce_losses", "merge_common", "fold_constants",
    "push_down_slices", "multiply_halves", "fuse",          "epilogues",    "rematerialize"};

/// Records what one pass did: for MITHRIL_DEBUG, inspect and tests.
struct PassRecord {
  std::string_view name;
  double seconds;
  bool changed;
  const ir::Graph& graph;  // what it made
};

struct PipelineOptions {
  /// Reads what MITHRIL_PASSES and MITHRIL_VERIFY ask for; `off`: passes that do not run besides.
  static PipelineOptions from_env(std::vector<std::string> off = {});
  bool is_off(std::string_view pass) const;

  /// Optimising passes that do not run: "canonicalize", "merge_common" … (MITHRIL_PASSES=-fuse).
  std::vector<std::string> off;
  bool verify = false;                             // check the graph after every pass
  std::function<void(const PassRecord&)> on_pass;  // called after each pass; null: nobody looks
  OnRewrite on_rewrite;
};

/// Once per compile, after assign_dtypes and differentiate: sizes may be symbols.
core::Result<ir::Graph> optimize(const ir::Graph& graph, const ir::Target& target,
                                 const PipelineOptions& options = {});

/// Per concrete sizes: all symbols get their values, sum_to and broadcasts are resolved, and with
/// `evaluate` what depends on constants only is computed. Composites that the target kept but,
/// asked by `supports`, does not run in these sizes become their bodies; kernels that take wider
/// types get casts around them, but products of halves that run as they are.
core::Result<ir::Graph> specialize(const ir::Graph& graph, std::span<const int64_t> symbols,
                                   const Evaluate& evaluate = nullptr,
                                   const PipelineOptions& options = {},
                                   const SupportQuery& supports = nullptr);

}  // namespace mithril::passes

#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "core/env.h"
#include "core/interrupt.h"
#include "ir/op_def.h"
#include "ir/text.h"
#include "passes/bind_sizes.h"
#include "passes/decompose.h"
#include "passes/fold_hosts.h"
#include "passes/layout.h"
#include "passes/merge_common.h"
#include "passes/multiply_halves.h"
#include "passes/own_ops.h"
#include "passes/places_of_masks.h"
#include "passes/push_down_slices.h"
#include "passes/reduce_losses.h"
#include "passes/regions.h"
#include "passes/remove_dead.h"

namespace mithril::passes {
namespace {

using core::Status;

class Pipeline {
 public:
  Pipeline(const ir::Graph& graph, const PipelineOptions& options)
      : graph_(graph), options_(options) {}

  using Pass = std::function<core::Result<ir::Graph>(const ir::Graph&)>;

  /// A pass that the meaning of the program needs.
  Pipeline& run(std::string_view name, const Pass& pass) {
    if (!status_.ok()) return *this;
    core::check_interrupt();
    const auto start = std::chrono::steady_clock::now();
    auto result = pass(graph_);
    if (!result.ok()) {
      status_ = std::move(result).status();
      return *this;
    }
    record(name, start, *result);
    graph_ = std::move(*result);
    if (options_.verify) check(name);
    return *this;
  }

  /// A pass that may be switched off.
  Pipeline& optimize(std::string_view name, const Pass& pass) {
    return options_.is_off(name) ? *this : run(name, pass);
  }

  const ir::Graph& graph() const { return graph_; }

  core::Result<ir::Graph> finish() {
    if (!status_.ok()) return std::move(status_);
    return std::move(graph_);
  }

 private:
  void record(std::string_view name, std::chrono::steady_clock::time_point start,
              const ir::Graph& result) {
    if (!options_.on_pass) return;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    options_.on_pass({name, time.count(), print(result) != print(graph_), result});
  }

  void check(std::string_view name) {
    Status status = ir::verify(graph_);
    if (status.ok()) return;
    status.error().message = fmt::format("after {}: {}", name, status.error().message);
    status_ = std::move(status);
  }

  ir::Graph graph_;
  const PipelineOptions& options_;
  Status status_;
};

}  // namespace

PipelineOptions PipelineOptions::from_env(std::vector<std::string> off) {
  PipelineOptions out;
  out.off = std::move(off);
  for (const core::Env::Switch& pass : core::env().passes) {
    if (!pass.on) out.off.push_back(pass.name);
  }
  out.verify = core::env().verify;
  return out;
}

bool PipelineOptions::is_off(std::string_view pass) const {
  return std::find(off.begin(), off.end(), pass) != off.end();
}

core::Result<ir::Graph> optimize(const ir::Graph& graph, const ir::Target& target,
                                 const PipelineOptions& options) {
  const GraphPass rewrite =
      everywhere([&](const ir::Graph& g) { return canonicalize(g, options.on_rewrite); });
  Pipeline pipeline(graph, options);
  if (target.binds_sizes) pipeline.run("places_of_masks", everywhere(places_of_masks));
  pipeline
      .run("decompose", everywhere([&](const ir::Graph& g) -> core::Result<ir::Graph> {
             if (target.own_functions.empty()) return decompose(g, target);
             MITHRIL_ASSIGN(const ir::Graph named, call_own_functions(g, target));
             MITHRIL_ASSIGN(ir::Graph expanded, decompose(named, target));
             return call_own_functions(std::move(expanded), target);
           }))
      .optimize("canonicalize", rewrite);
  if (wants_channels_last(pipeline.graph(), target)) {
    pipeline.optimize("layout", everywhere([&](const ir::Graph& g) { return layout(g, target); }))
        .optimize("canonicalize", rewrite);  // reshapes of reshapes
  }
  if (wants_reduced_losses(target)) {
    pipeline.optimize("reduce_losses",
                      everywhere([&](const ir::Graph& g) { return reduce_losses(g, target); }));
  }
  return pipeline.optimize("merge_common", everywhere(merge_common))
      .run("remove_dead", remove_dead)
      .finish();
}

core::Result<ir::Graph> specialize(const ir::Graph& graph, std::span<const int64_t> symbols,
                                   const Evaluate& evaluate, const PipelineOptions& options,
                                   const SupportQuery& supports) {
  const ExpandsNode expands = [&](const ir::Graph& g, const ir::Node& node, const ir::OpDef& op) {
    if (op.checks_sizes || !supports) return op.checks_sizes;
    return op.body != ir::BodyKind::kCompose || supports(g, node) == ir::Support::kNone;
  };
  const GraphPass rewrite =
      everywhere([&](const ir::Graph& g) { return canonicalize(g, options.on_rewrite); });
  // canonicalize resolves sum_to and broadcast_like here, so it cannot be switched off; it runs
  // once more because resolving makes casts and reshapes that may be the identity.
  Pipeline pipeline(graph, options);
  pipeline.run("bind_sizes", [&](const ir::Graph& g) { return bind_sizes(g, symbols); })
      .run("fold_hosts", everywhere(fold_hosts))
      .optimize("push_down_slices",
                everywhere(push_down_slices))  // before kernels are asked whether sizes suit them
      .run("decompose", everywhere([&](const ir::Graph& g) -> core::Result<ir::Graph> {
             MITHRIL_ASSIGN(const ir::Graph expanded, decompose_nodes(g, expands));
             return fold_hosts(expanded);  // sizes that bodies speak of
           }))
      .run("resolve", rewrite);
  if (supports && anywhere(pipeline.graph(), has_narrow)) {
    pipeline
        .run("legalize_dtypes",
             everywhere([&](const ir::Graph& g) { return legalize_dtypes(g, supports); }))
        .optimize("multiply_halves",  // before casts of constants are computed
                  everywhere([&](const ir::Graph& g) { return multiply_halves(g, supports); }));
  }
  return pipeline
      .optimize("fold_constants", everywhere([&](const ir::Graph& g) -> core::Result<ir::Graph> {
                  if (!evaluate) return g;
                  return fold_constants(g, evaluate);
                }))
      .optimize("canonicalize", rewrite)
      .optimize("merge_common", everywhere(merge_common))
      .run("remove_dead", remove_dead)
      .finish();
}

}  // namespace mithril::passes

// From a model to programs: the engine in one short function.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"
#include "model/flatten/flatten.h"
#include "passes/append_optimizer.h"
#include "passes/autodiff.h"
#include "passes/pipeline.h"
#include "specialize/trace.h"

namespace mithril {

struct CompileOptions {
  model::FlattenOptions flatten;
  ir::Target target;
  passes::PipelineOptions passes;
  std::shared_ptr<Trace> trace = std::make_shared<Trace>();
  bool promote_mixed = true;  // operands of several dtypes are cast to one; else an error
  bool report = false;        // keep what the passes did
};

/// Records what one pass did.
struct PassTime {
  std::string name;
  double seconds = 0.0;
  bool changed = false;
};

/// Holds what the once-per-compile phase gives. Immutable. When `interface.deferred()` (a rank is
/// not known yet) the graphs are empty: compile again with `flatten.shapes` of the data.
struct Compiled {
  model::FlatGraph interface;  // keys, outputs, warnings; graph as flattened
  ir::Graph typed;             // concrete dtypes, not optimised: what is differentiated
  ir::Graph forward;           // optimised for the target
  CompileOptions options;
  std::vector<PassTime> records;  // of the forward graph, when options.report

  /// A graph with concrete dtypes, optimised as the model's own are.
  core::Result<ir::Graph> optimize(const ir::Graph& graph) const;

  /// The gradient program, optimised: outputs as asked, then grad.<key> for each of `wrt`.
  core::Result<ir::Graph> gradient(const passes::DifferentiateOptions& options) const;

  /// One training step as a program (passes::append_optimizer): loss gradients and the update of
  /// every parameter in `request.wrt`.
  core::Result<ir::Graph> step(const passes::DifferentiateOptions& request,
                               const passes::Optimizer& optimizer) const;
};

/// Never changes the model.
core::Result<std::shared_ptr<const Compiled>> compile(const model::Model& model,
                                                      CompileOptions options);

}  // namespace mithril

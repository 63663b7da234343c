// A graph that the native engine runs: specialised per concrete sizes, kept in a bounded cache.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "passes/rematerialize.h"
#include "runtime/executable.h"
#include "select/select.h"
#include "specialize/trace.h"

namespace mithril {

struct SpecializationOptions {
  std::shared_ptr<const select::Backend> backend;  // never null
  std::shared_ptr<const select::Backend> host;  // never null: computes constants, in this process
  /// Makes what runs a plan of the backend; null: its steps are kernels of the host.
  std::function<core::Result<std::shared_ptr<const runtime::Executable>>(plan::Plan)>
      make_executable;
  select::SelectOptions select;
  bool canonical_constants = false;  // those that `host` computes have the bits of C texts
  passes::PipelineOptions passes;
  std::shared_ptr<Trace> trace = std::make_shared<Trace>();
  passes::RematerializeOptions
      rematerialize;                 // a limit that cannot be met is an error of `specialize`
  size_t most_specializations = 64;  // the least recently used one goes
};

/// Holds what is executed for one set of input sizes.
struct Specialization {
  std::shared_ptr<const runtime::Executable> executable;
  std::vector<std::vector<int64_t>> output_shapes;  // by output; empty for host outputs
};

/// `graph` is what passes::optimize gives for the target of the backend. Thread-safe.
class SpecializationCache {
 public:
  SpecializationCache(ir::Graph graph, SpecializationOptions options);
  const ir::Graph& graph() const { return graph_; }
  const SpecializationOptions& options() const { return options_; }

  /// `sizes[i]`: the shape of input i (empty for host inputs). Compiles at the first call for
  /// these sizes; later calls look up. Errors name the input, its shape and the compiled one.
  core::Result<std::shared_ptr<const Specialization>> specialize(
      std::span<const std::vector<int64_t>> sizes);

  /// Makes the plan that `specialize` would for these sizes, even if memory is too small; nothing
  /// is kept, traced or refused. `report` gets what became of each node; null: nobody asks.
  core::Result<plan::Plan> preview(std::span<const std::vector<int64_t>> sizes,
                                   std::vector<select::SelectionReport>* report = nullptr) const;

 private:
  using Key = std::vector<int64_t>;
  struct Entry {
    std::shared_ptr<const Specialization> value;
    std::list<Key>::iterator age;
  };
  core::Result<std::shared_ptr<const Specialization>> make(
      std::span<const std::vector<int64_t>> sizes) const;
  core::Result<ir::Graph> make_static(std::span<const std::vector<int64_t>> sizes,
                                      const passes::PipelineOptions& options) const;
  /// The graph with values that are computed again, where the options want that of it and its plan.
  core::Result<std::optional<ir::Graph>> fitted(const ir::Graph& graph, const plan::Plan& plan,
                                                Trace* trace) const;
  core::Result<plan::Plan> make_plan(const ir::Graph& graph) const;
  core::Result<std::shared_ptr<const runtime::Executable>> make_executable(plan::Plan plan) const;
  core::Status check_memory(const plan::Plan& plan) const;
  std::shared_ptr<const Specialization> find(const Key& key);

  const ir::Graph graph_;
  SpecializationOptions options_;
  std::mutex mutex_;
  std::map<Key, Entry> cache_;
  std::list<Key> ages_;  // most recent first
};

}  // namespace mithril

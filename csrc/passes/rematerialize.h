// Less memory for more time: what lies idle while the most of it is in use is computed again later.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Tells how a graph would run, and what lies in memory meanwhile.
struct Execution {
  enum class Place : uint8_t {
    kNone,       // no memory of its own: a view, or it stays inside of one step
    kHeld,       // in memory to the end whatever is done: inputs, constants, outputs
    kTemporary,  // from the step that makes it to the last one that reads it
  };
  struct Memory {
    Place place = Place::kNone;
    int64_t bytes = 0;
  };
  int64_t bytes = 0;             // what a run allocates
  std::vector<int64_t> live;     // by step: bytes in use
  std::vector<int32_t> step_of;  // by node; -1: no step of its own (views, constants)
  std::vector<Memory> memory;    // by value
  std::vector<double> flops;     // by node, roughly
};

/// Tells whether memory is worth a search that nobody asked for: RematerializeOptions::unasked.
bool allocates_much(const Execution& execution);

/// Steps must run in the order of their numbers where the graph is the same; `after` must hold.
using Measure = std::function<core::Result<Execution>(const ir::Graph& graph)>;

struct RematerializeOptions {
  /// Limits what a run may allocate: beyond it values are computed again at any price.
  std::optional<int64_t> limit;
  /// As little memory as can be while what is computed again stays below a third of the graph's
  /// FLOPs: so much is the forward part of a gradient program, whose backward part takes twice it.
  bool rematerializes = false;
  /// Without `rematerializes`: what costs next to nothing is computed again where a run allocates
  /// much.
  bool unasked = false;
};

struct Recomputed {
  ir::Graph graph;
  int32_t nodes = 0;              // that are computed again
  double flops = 0;               // of them
  int64_t before = 0, after = 0;  // Execution::bytes
};

/// Returns, where it helps, nodes in the order of their steps with some of them twice. The copies
/// read what is in memory anyhow and wait, by `after`, for what is made late: no pass, no loop and
/// no order of steps brings them together with the originals. Ops that own graphs are never copied.
/// The result is bit for bit the same: the same ops run on the same operands. (Chen et al. 2016,
/// "Training Deep Nets with Sublinear Memory Cost"; the search is that of XLA's
/// HloRematerialization.)
///
/// Before:  %0 = exp(%x) … the peak … %8 = multiply(%7, %0)
/// After:   %0 = exp(%x) … the peak … %8 = after(%x, %7) %9 = exp(%8) %10 = multiply(%7, %9)
core::Result<Recomputed> rematerialize(const ir::Graph& graph, const Measure& measure,
                                       const RematerializeOptions& options);
/// The same, where `execution` is what `measure` would tell of the graph.
core::Result<Recomputed> rematerialize(const ir::Graph& graph, Execution execution,
                                       const Measure& measure, const RematerializeOptions& options);

}  // namespace mithril::passes

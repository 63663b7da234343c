// From a specialised graph to the steps of a backend: fused loops, structured kernels, copies.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"
#include "plan/steps.h"
#include "select/backend.h"
#include "select/selection_report.h"
#include "tile/program.h"

namespace mithril::select {

struct SelectOptions {
  bool fuse = true;
  bool epilogues = true;                   // loops on blocks of products; needs `fuse`
  bool exact_conv = false;                 // convolutions in the reference's order only
  bool canonical = false;                  // and everything else
  int threads = 0;                         // of a run, for which kernels are cut; 0: the backend's
  std::vector<plan::Donation> overwrites;  // of inputs, once all else has read them
  /// Told of every fused loop: the step's label and its program. Null: nobody looks.
  std::function<void(std::string_view label, const tile::Program&)> on_loop;
  /// Gets what became of each group, in order of execution. Null: nobody asks.
  std::vector<SelectionReport>* report = nullptr;
};

/// Tells whether the options want canonical kernels of an op.
bool wants_canonical(const SelectOptions& options, const ir::OpDef& op);

/// Tells whether a kernel takes the node, its sizes known, and in what types. A composite that none
/// takes is decomposed.
ir::Support supports(const KernelTable& kernels, const ir::Graph& graph, const ir::Node& node,
                     const SelectOptions& options = {});

/// `graph` is what passes::specialize gives: static sizes, no composites. Inputs are contiguous in
/// row-major order, one buffer per tensor input (host inputs have none but keep their index);
/// outputs likewise, and none shares memory with another output, nor with an input but for those
/// that `overwrites` names. Steps are in the order that takes little memory (plan/schedule.h).
core::Result<plan::Steps> select_steps(const ir::Graph& graph, const Backend& backend,
                                       const SelectOptions& options = {});

}  // namespace mithril::select

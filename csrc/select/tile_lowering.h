// From a fused group of nodes to one tile program and the operands that it reads and writes.
#pragma once
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "select/fuse.h"
#include "tile/program.h"

namespace mithril::select {

/// Program inputs are `loads` in order, program outputs are the group's outputs in order.
struct LoopProgram {
  struct Load {
    ir::ValueId value;
    bool is_row;  // read once per kept index
  };
  tile::Program program;
  std::vector<Load> loads;
  std::vector<int64_t> kept, reduced;  // sizes of the domain
  // Its axes that rows run along, ascending: the reduced ones; without any, the last ones, if
  // operands that are broadcast along them make long rows.
  std::vector<int64_t> inner;
};

/// The order of reductions follows from the domain's axes (architecture 7): lanes when the last
/// axis is reduced, else rows. Constants of rank 0 become immediates. An epilogue's program is its
/// loop: it loads the product's result, and its inner axes are the columns.
core::Result<LoopProgram> lower_group(const ir::Graph& graph, const Fusion& fusion,
                                      const Group& group);

/// Splits per-axis numbers of a domain into those of inner axes and of all others.
void split_axes(const std::vector<int64_t>& inner, const std::vector<int64_t>& per_axis,
                std::vector<int64_t>& kept, std::vector<int64_t>& reduced);

/// The number of a constant node without shape; null for any other value.
const core::HostValue* scalar_constant(const ir::Graph& graph, ir::ValueId value);

}  // namespace mithril::select

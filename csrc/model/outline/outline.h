// From marks in a flat graph to ops that own graphs: what lies between the entries and the ends of
// a loop, and what only one branch of a choice needs, becomes a region. Internal to model/.
#pragma once
#include <functional>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::model {

/// Tells whether the op stands at the border of a loop or of branches.
bool is_mark(std::string_view op);

/// Tells which model made each node of the graph, and which models that one is in.
struct Owners {
  std::vector<int64_t> leaf;  // by node
  std::function<bool(int64_t leaf, int64_t model)> is_inside;
};

/// Before: %0 = scan_enter(%h0)   %1 = scan_slice(%seq, length='T')   %2 = add(%0, %1)
///         %3 = scan_exit(%2, %h0, %2, length='T')
/// After:  %0 = scan(%h0, %seq, carries=1, xs=1, length='T') { %0 = add(%c0, %x0)  return c0=%0 }
/// Values that a step reads and no step makes are constants of the loop; what does not depend on
/// the step is computed once, before it. Likewise while_exit becomes a while_loop.
///
/// Before: %0 = exp(%x)   %1 = negative(%x)   %2 = cond_join(%0, %1, %p)
/// After:  %0 = cond(%x, %p) { %0 = exp(%k0)  return y0=%0 } { %0 = negative(%k0)  return y0=%0 }
/// A node goes into a branch where the model of the choice made it and nothing else reads it.
/// Inputs keep their ids.
core::Result<ir::Graph> outline(ir::Graph graph, Owners owners);

}  // namespace mithril::model

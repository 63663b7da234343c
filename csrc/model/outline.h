// From marks in a flat graph to scans: what lies between the entries and the ends of a loop becomes
// the body of one node. Internal to model/.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::model {

/// Whether the op stands at the border of a loop.
bool is_mark(std::string_view op);

/// Before: %0 = scan_enter(%h0)   %1 = scan_slice(%seq, length='T')   %2 = add(%0, %1)
///         %3 = scan_exit(%2, %h0, %2, length='T')
/// After:  %0 = scan(%h0, %seq, carries=1, xs=1, length='T') { %0 = add(%c0, %x0)  return c0=%0 }
/// What a step reads and no step makes is a constant of the loop; what does not depend on the
/// step is computed once, before it. Inputs keep their ids.
core::Result<ir::Graph> outline_loops(ir::Graph graph);

}  // namespace mithril::model

// Which nodes become one loop: groups of pointwise and reducing nodes over one domain.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace mithril::select {

/// Nodes that run together, in graph order. A loop group has a domain: `shape`, of which the axes
/// in `reduced` are summed over (or maximised …). Its values are lane values (one element per
/// point) or row values (one per kept index). A group that is no loop holds one node.
struct Group {
  bool is_loop = false;
  std::vector<ir::NodeId> nodes;
  std::vector<int64_t> shape;        // loops: the domain
  std::vector<int64_t> reduced;      // loops: axes, ascending; empty = pointwise
  std::vector<ir::ValueId> outputs;  // values that others read, in order of definition
};

/// How a value of a group relates to its domain.
enum class Spread : uint8_t { kOutside, kLane, kRow };

struct Fusion {
  std::vector<Group> groups;      // in an order of execution
  std::vector<int32_t> group_of;  // by node
  std::vector<Spread> spread;     // by value: inside its own group
};

/// `graph` has static shapes. Legal by construction: a node only ever joins the last of the
/// groups that make its operands, so groups in order of creation are in order of dependence; the
/// other groups that make them move there where nothing in between reads them.
/// With `enabled` false every node is a group of its own (MITHRIL_PASSES=-fuse).
///
/// Before:  %0 = max(%x) %1 = subtract(%x, %0) %2 = exp(%1) %3 = sum(%2) %4 = divide(%2, %3)
/// After:   one loop over [rows, n] with axis 1 reduced (softmax in three sections)
Fusion fuse(const ir::Graph& graph, bool enabled = true);

/// Axes of a reduction node as sorted non-negative numbers.
std::vector<int64_t> reduced_axes(const ir::Node& node, size_t rank);

}  // namespace mithril::select

// Which nodes become one loop: groups of pointwise and reducing nodes over one domain.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace mithril::select {

/// Tells why a node did not join the group that makes its last operand, why an earlier loop did not
/// move to it, or why a loop is not an epilogue.
enum class FusionBlocker : uint8_t {
  kNone,          // it did, or the graph makes none of its operands
  kOff,           // fusion is switched off
  kOwnKernel,     // the node is no pointwise op and no reduction
  kAfterKernel,   // the group is no loop
  kFull,          // the group has as many nodes as a loop may have
  kOtherShape,    // its elements are not those of the loop
  kReducedTwice,  // it reduces what the loop has reduced
  kOtherAxes,     // it reduces other axes
  kNoAxes,        // it reduces no axis at all
  kLongRow,       // rows are so long that a loop of its own reads them faster again
  kLostAxes,      // it reads reduced values that have lost their axes
  kPositions,     // it counts places, and the loop does not visit them in row-major order
  kSingleRows,    // it reduces axes of size 1: lanes and rows would have one shape
  kReduces,       // the earlier loop reduces, and only pointwise loops move
  kReadBetween,   // what the earlier loop makes is read by a step that runs between them
  kNoEpilogues,   // the kernel before it hands its results out as a whole
  kNotPointwise,  // it reduces, and a kernel has blocks of its results only
  kRearranged,    // it does not read the kernel's result element by element
  kNotAtOnce,     // it counts places, or is a single number
  kReadEarlier,   // a step between them reads the kernel's result
  kManyMatrices,  // it reads and writes so much that memory wants it in one sweep
  kManyOperands,  // together they have more operands than a kernel takes
  kNotOfKernels,  // the device's kernels cannot compute it: Backend::takes
};
/// For people: "it reduces other axes than that loop".
std::string_view text(FusionBlocker blocker);

/// Nodes that run together, in graph order. A loop group has a domain: `shape`, of which the axes
/// in `reduced` are summed over (or maximised …). Its values are lane values (one element per
/// point) or row values (one per kept index). A group that is no loop holds one node. A pointwise
/// loop may be the *epilogue* of a kernel, which then belongs to its nodes: it runs on each block
/// of the kernel's result, `product`, when that is finished.
struct Group {
  bool is_loop = false;
  std::vector<ir::NodeId> nodes;
  std::vector<int64_t> shape;        // loops: the domain
  std::vector<int64_t> reduced;      // loops: axes, ascending; empty = pointwise
  std::vector<ir::ValueId> outputs;  // values that others read, in order of definition
  ir::NodeId product = ir::kNoNode;  // an epilogue: the node whose result it finishes
  bool keeps_product = false;        // others read that, too; it is not among the outputs
  bool by_rows = false;              // the product has no memory: EpilogueSupport::kRows
  bool is_crowded = false;           // an earlier loop did not move here: kManyOperands
  // The node that began it may have been refused by the last group to make an operand of it.
  ir::NodeId began = ir::kNoNode;
  FusionBlocker blocker = FusionBlocker::kNone;
  int32_t before = -1;  // that group
};

/// Tells how a value of a group relates to its domain.
enum class Spread : uint8_t { kOutside, kLane, kRow };

struct Fusion {
  std::vector<Group> groups;      // in an order of execution
  std::vector<int32_t> group_of;  // by node
  std::vector<Spread> spread;     // by value: inside its own group
};

/// No limit on operands.
inline constexpr size_t kAnyOperands = std::numeric_limits<size_t>::max();

/// `graph` has static shapes. Legal by construction: a node only ever joins the last of the
/// groups that make its operands, so groups in order of creation are in order of dependence; the
/// other groups that make them move there where nothing in between reads them. Constants are the
/// first groups.
/// With `enabled` false every node is a group of its own (MITHRIL_PASSES=-fuse). A loop of several
/// nodes has at most `most_operands` operands, its outputs among them.
///
/// Before:  %0 = max(%x) %1 = subtract(%x, %0) %2 = exp(%1) %3 = sum(%2) %4 = divide(%2, %3)
/// After:   one loop over [rows, n] with axis 1 reduced (softmax in three sections)
Fusion fuse(const ir::Graph& graph, bool enabled = true, size_t most_operands = kAnyOperands);

/// Counts the values that nodes read from others or that others read from them, but for numbers
/// that become part of a program. `nodes` ascend.
class OperandCounter {
 public:
  explicit OperandCounter(const ir::Graph& graph);
  size_t count(const std::vector<ir::NodeId>& nodes) const;

 private:
  bool is_read_elsewhere(ir::ValueId id, const std::vector<ir::NodeId>& nodes) const;

  const ir::Graph& graph_;
  std::vector<std::vector<ir::NodeId>> readers_;  // by value
  std::vector<bool> is_result_;                   // by value: of the graph
};

/// Takes groups without nodes out.
void drop_empty(Fusion& fusion);

/// A value that one group makes and another one reads from memory, and why they are not one loop.
struct Boundary {
  int32_t from = -1;
  ir::NodeId reader = ir::kNoNode;
  FusionBlocker blocker = FusionBlocker::kNone;
};
/// Those of a group, one for each group that it reads from.
std::vector<Boundary> boundaries(const ir::Graph& graph, const Fusion& fusion, int32_t group);

/// Tells whether what a group computes depends on places, counted in row-major order: random
/// numbers, ranges.
bool counts_positions(const ir::Graph& graph, const Group& group);

/// Axes of a reduction node as sorted non-negative numbers.
std::vector<int64_t> reduced_axes(const ir::Node& node, size_t rank);

}  // namespace mithril::select

// NumPy indexing in terms of views, rows by index, and paddings: what a backend without a kernel
// for all of it runs.
#pragma once
#include <optional>
#include <vector>

#include "ops/block.h"

namespace mithril::ops {

/// An index taken apart: `basic` first, then integer arrays along some axes of what that gives.
struct IndexPlan {
  HostValue::Tuple basic;     // ints, slices and none; arrays stand as whole slices
  std::vector<Value> arrays;  // integer tensors
  std::vector<size_t> axes;   // which axes they index, after `basic`
  size_t place = 0;           // where their dims go among the axes that stay
};

/// Tells whether a node's index has arrays, and nothing that no plan can have (masks that are data,
/// unknown host values).
bool has_arrays(const ir::Graph& graph, const ir::Node& node, size_t first_operand);

/// The index of the node whose body or gradient is being written. Fails the builder where there is
/// no plan.
std::optional<IndexPlan> plan_index(Builder& b, const Value& x, size_t first_operand);

/// x[index].
Value select(Value x, const IndexPlan& plan);
/// Zeros of the shape of x, to which v (of the selection's shape, or broadcast to it) is added at
/// the index.
Value spread(Value v, Value x, const IndexPlan& plan);

/// Numbers nested in lists and tuples as a literal; null where they have no regular shape.
std::shared_ptr<const core::TensorData> literal_of(const HostValue& nested, DType dtype);

}  // namespace mithril::ops

// Values that need no memory of their own: strided windows on another value's buffer.
#pragma once
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace mithril::select {

/// Tells where a value's elements are: `base` has a buffer; strides and offset in elements.
struct View {
  ir::ValueId base = ir::kNoValue;
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

/// Row-major strides without gaps.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);
/// Tells whether the elements lie in row-major order without gaps (dims of size 1 may have any
/// stride).
bool is_contiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides);

/// The view that `node` (transpose, broadcast_to, reshape, basic index …) gives of its operand's
/// view, where one exists; nullopt for other ops and for reshapes that need a copy.
/// `graph` has static shapes.
std::optional<View> view_of(const ir::Graph& graph, const ir::Node& node, const View& operand);

/// Strides of an operand along the axes of a domain that it broadcasts to.
std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& shape,
                                       const std::vector<int64_t>& strides,
                                       const std::vector<int64_t>& domain);

}  // namespace mithril::select

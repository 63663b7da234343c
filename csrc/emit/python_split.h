// Slices that are the pieces of one value: what frameworks have one function for.
#pragma once
#include <vector>

#include "ir/graph.h"

namespace mithril::emit {

/// `index` nodes of one model part whose slices follow each other along an axis and cover it.
struct Split {
  ir::ValueId whole = ir::kNoValue;
  size_t axis = 0;
  std::vector<size_t> nodes;   // one a piece, in the order of pieces
  std::vector<int64_t> sizes;  // of the pieces along the axis
  size_t first_node() const;
};

/// All splits of a graph, each of two pieces or more; sizes along their axes are known.
std::vector<Split> find_splits(const ir::Graph& graph);

}  // namespace mithril::emit

// Which loops run on the blocks of a kernel's result, each while it is in cache.
#pragma once
#include <functional>

#include "select/fuse.h"

namespace mithril::select {

/// Whether the node's kernel can run a tile program on blocks of its result as it finishes them.
using TakesEpilogue = std::function<bool(const ir::Node&)>;

/// Makes each pointwise loop that reads such a result element by element its epilogue. The kernel
/// then runs where the loop did, so nothing in between may read its result; of several kernels that
/// a loop reads from, the last one takes it. Loops that are none keep the reason as their refusal.
///
/// Before:  [%0 = matmul(%x, %w)] [%1 = add(%0, %b) %2 = relu(%1)]
/// After:   [%0 = matmul(%x, %w) %1 = add(%0, %b) %2 = relu(%1)], product = %0
void attach_epilogues(const ir::Graph& graph, Fusion& fusion, const TakesEpilogue& takes);

}  // namespace mithril::select

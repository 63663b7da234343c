// Which loops run on the blocks of a kernel's result, each while it is in cache.
#pragma once
#include <functional>

#include "select/fuse.h"
#include "select/kernel_def.h"

namespace mithril::select {

/// Tells where the node's kernel can run a tile program on its result as it finishes it.
using EpilogueSupportOf = std::function<EpilogueSupport(const ir::Node&)>;

/// Makes each pointwise loop that reads such a result element by element its epilogue. The kernel
/// then runs where the loop did, so nothing in between may read its result; of several kernels that
/// a loop reads from, the last one takes it; one that finishes rows does if nobody else reads them.
/// The two have at most `most_operands` operands, and kernels may run what `takes` accepts. Loops
/// that are none keep the reason as their blocker.
///
/// Before:  [%0 = matmul(%x, %w)] [%1 = add(%0, %b) %2 = relu(%1)]
/// After:   [%0 = matmul(%x, %w) %1 = add(%0, %b) %2 = relu(%1)], product = %0
void attach_epilogues(const ir::Graph& graph, Fusion& fusion,
                      const EpilogueSupportOf& epilogue_support,
                      size_t most_operands = kAnyOperands,
                      const std::function<bool(const Group&)>& takes = {});

}  // namespace mithril::select

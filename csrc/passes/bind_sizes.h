// Puts numbers in the place of symbols: the first step of a specialisation.
#pragma once
#include <span>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Solves the symbols of the inputs' shapes from concrete sizes (`sizes[i]` belongs to
/// graph.inputs[i]; empty for host inputs). By symbol index; -1 where no input tells. A clash is
/// an error that names the input, the size, and what it must be.
core::Result<std::vector<int64_t>> solve_symbols(const ir::Graph& graph,
                                                 std::span<const std::vector<int64_t>> sizes);

/// Before: %0 = reshape(%x, shape=('2*N', 3)) : f32['2*N', 3]     After, N = 4: (8, 3) : f32[8, 3]
/// Every symbol that a type or an attribute mentions must have a value, and every node must take
/// these sizes: a reshape may not divide, an index not be there, a window not fit.
core::Result<ir::Graph> bind_sizes(const ir::Graph& graph, std::span<const int64_t> symbols);

/// Checks that every node takes the sizes that are known and every value has an address, for who
/// runs the graph with its symbols.
core::Status check_sizes(const ir::Graph& graph, std::span<const int64_t> symbols);

}  // namespace mithril::passes

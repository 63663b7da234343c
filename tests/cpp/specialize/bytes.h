// Operands of graphs as bytes, and what graphs make of them.
#pragma once
#include <cstddef>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "runtime/executable.h"
#include "specialize/specialization_cache.h"

namespace mithril::test {

using Bytes = std::vector<std::byte>;
using Sizes = std::vector<std::vector<int64_t>>;

size_t bytes_of(const ir::Type& type, const std::vector<int64_t>& shape);

/// Draws floats of [-2, 2), and integers and bools that are 0 or 1.
Bytes random_bytes(const ir::Type& type, const std::vector<int64_t>& shape, unsigned seed);

/// Tells whether bits are equal; which NaN it is, is not defined.
bool is_same(core::DType dtype, const Bytes& a, const Bytes& b);

/// The shapes of a graph whose sizes are static.
Sizes sizes_of(const ir::Graph& graph);

/// The inputs of a graph, drawn by their places.
std::vector<Bytes> random_inputs(const ir::Graph& graph, const Sizes& sizes);

/// Runs what was made of a graph; the outputs.
core::Result<std::vector<Bytes>> run(const ir::Graph& graph, const Specialization& made,
                                     const std::vector<Bytes>& inputs,
                                     const runtime::RunControl& control = {});

}  // namespace mithril::test

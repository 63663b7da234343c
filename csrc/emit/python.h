// Graphs as Python source for NumPy, PyTorch, JAX and their like: straight lines that call `ops`.
#pragma once
#include <string>
#include <vector>

#include "core/host_value.h"
#include "core/status.h"
#include "ir/graph.h"
#include "ir/target.h"

namespace mithril::emit {

/// The text defines `evaluate(v0, v1, …)`: a parameter for each input of the graph, in order; it
/// returns a tuple of the outputs and then of the new states, in order. It refers to `ops` (the
/// backend's table of functions), `host` (the same for host values), `C` (`constants`), `inf`,
/// `nan` and `broadcast`, which the loader provides. No name and no string of a model occurs in
/// it but model paths, escaped, in comments.
struct PythonSource {
  std::string text;
  std::vector<core::HostValue> constants;  // tensors and strings
};

/// `graph` has concrete dtypes; sizes may be symbols. `target.keeps_whole` holds the names of all
/// functions in the backend's `ops`. An op is printed as the function of its name if there is
/// one, else from its tile expression, else as a host computation; else it is unsupported.
core::Result<PythonSource> python(const ir::Graph& graph, const ir::Target& target);

}  // namespace mithril::emit

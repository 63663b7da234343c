// Nodes of the samples that op blocks state, and graphs run on numbers.
#pragma once
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/registry.h"

namespace mithril::ir::test {

/// One node of an op on a sample, in a graph of concrete types.
struct Built {
  Graph graph;
  std::vector<std::string> float_inputs;
  core::Status status;
  std::vector<Type> results;
};

bool contains(const std::vector<std::string>& list, const std::string& item);
Built build(const OpDef& op, const Sample& sample, DType floats = DType::kFloat32);
std::string describe(const OpDef& op, size_t sample);

using Numbers = std::vector<double>;

/// The outputs of a graph of static sizes on the CPU engine, for its inputs in their order; any
/// dtype is converted to and from double.
core::Result<std::vector<Numbers>> evaluate(const Graph& graph, const std::vector<Numbers>& inputs);

}  // namespace mithril::ir::test

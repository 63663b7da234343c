// From a specialised graph to steps of the CPU: fused loops, structured kernels, copies.
#pragma once
#include <vector>

#include "backends/cpu/cpuid.h"
#include "core/status.h"
#include "ir/graph.h"
#include "plan/steps.h"

namespace mithril::cpu {

struct SelectOptions {
  Isa isa = default_isa();
  bool fuse = true;
};

/// `graph` is what passes::specialize gives: static sizes, no composites. Inputs are contiguous in
/// row-major order, one buffer per tensor input (host inputs have none but keep their index);
/// outputs likewise, and none shares memory with an input or another output.
core::Result<plan::Steps> select_steps(const ir::Graph& graph, const SelectOptions& options = {});

}  // namespace mithril::cpu

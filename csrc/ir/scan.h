// The op `scan`: a loop over the places of an axis, as one node.
//
//   results = scan(carries…, xs…, constants…, length=n) { body }
//   body: inputs carries…, one place of each xs…, constants…; outputs next carries…, ys…
//   results: the last carries…, ys with a leading axis of n places…
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace mithril::ir {

/// How the operands and results of a scan are divided.
struct ScanParts {
  size_t carries = 0, xs = 0, constants = 0, ys = 0;
  bool reverse = false;  // from the last place to the first one
  HostValue length;      // an int or a size

  size_t x(size_t i) const { return carries + i; }
  size_t constant(size_t i) const { return carries + xs + i; }
  size_t y(size_t i) const { return carries + i; }  // among results and outputs of the body
};

bool is_scan(const Node& node);
/// Of a node that is one, whose counts have been checked.
ScanParts scan_parts(const Node& node);
/// Appends a scan; `y_types` with their leading axis. Results have the carries' types.
std::vector<Value> call_scan(Builder& builder, const ScanParts& parts,
                             std::span<const Value> operands, std::shared_ptr<const Graph> body,
                             std::vector<Type> y_types);
/// Names the inputs of a body c0, x0 and k0 on, its outputs c0 and y0 on.
void name_parts(Graph& body, const ScanParts& parts);
/// The invariants of a scan: counts, dtypes, ranks and known sizes agree with those of its body.
core::Status check_scan(const Graph& graph, const Node& node);
/// The length as a size of the graph.
Dim length_of(const ScanParts& parts);

}  // namespace mithril::ir

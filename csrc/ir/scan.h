// The op `scan`: a loop over the places of an axis, as one node.
//
//   results = scan(carries…, xs…, constants…, length=n) { body }
//   body: inputs carries…, one place of each xs…, constants…; outputs next carries…, ys…
//   results: the last carries…, ys with a leading axis of n places…
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "ir/region.h"

namespace mithril::ir {

/// Tells how the operands and results of a scan are divided, and how its steps go.
struct ScanParts : RegionParts {
  bool reverse = false;  // from the last place to the first one
  HostValue length;      // an int or a size
};

bool is_scan(const Node& node);
/// Takes apart a node that is a scan, whose counts have been checked.
ScanParts scan_parts(const Node& node);
/// Appends a scan; `y_types` with their leading axis. Results have the carries' types.
std::vector<Value> call_scan(Builder& builder, const ScanParts& parts,
                             std::span<const Value> operands, std::shared_ptr<const Graph> body,
                             std::vector<Type> y_types);
/// The length as a size of the graph.
Dim length_of(const ScanParts& parts);

}  // namespace mithril::ir

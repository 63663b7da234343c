// Ops that own graphs. Inputs of the graphs are operands of the node, outputs its results.
//
//   results = scan(carries…, xs…, constants…) { body }              ir/scan.h
//   results = cond(constants…, predicate) { taken } { other }
//     each: inputs constants…; outputs results…
//   results = while_loop(carries…, constants…) { condition } { body }
//     condition: inputs carries…, constants…; output one bool
//     body: the same inputs; outputs next carries…
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace mithril::ir {

/// Tells how the operands and results of such a node are divided.
struct RegionParts {
  size_t carries = 0, xs = 0, constants = 0, ys = 0;

  size_t x(size_t i) const { return carries + i; }
  size_t constant(size_t i) const { return carries + xs + i; }
  size_t y(size_t i) const { return carries + i; }  // among results and outputs of a body
  size_t inputs() const { return carries + xs + constants; }
  bool is_x(size_t input) const { return input >= carries && input < carries + xs; }
};

bool is_cond(const Node& node);
bool is_while(const Node& node);
/// Takes apart a node that owns graphs and whose counts have been checked.
RegionParts region_parts(const Node& node);
/// Tells whether the outputs of a region are the node's results: of all but the condition of a
/// while.
bool gives_results(const Node& node, size_t region);
/// The region whose outputs are the carries of the next step.
const Graph& body_of(const Node& node);
/// Names the inputs of a region c0, x0 and k0 on, its outputs c0 and y0 on, or go, of a condition.
void name_parts(Graph& region, const RegionParts& parts, bool gives_results = true);

using Regions = std::vector<std::shared_ptr<const Graph>>;
/// Appends a cond; both regions have the inputs `constants` and outputs of `types`.
std::vector<Value> call_cond(Builder& builder, std::span<const Value> constants, Value predicate,
                             Regions regions, std::vector<Type> types);
/// Appends a while_loop of {condition, body}; results have the types of the first `carries`
/// operands.
std::vector<Value> call_while(Builder& builder, size_t carries, std::span<const Value> operands,
                              Regions regions);

/// Tells whether two tensors have one rank and no known size that differs.
bool agree(const Type& a, const Type& b);

/// The invariants of a node that owns graphs: counts, dtypes, ranks and known sizes agree with
/// those inside.
core::Status check_regions(const Graph& graph, const Node& node);

}  // namespace mithril::ir

// Halves (float16, bfloat16) are storage: an op, composite or not, computes inside in float32 and
// rounds once, at its end. Here is what decides that, for bodies, gradient rules and tile bodies.
#pragma once
#include <span>
#include <vector>

#include "ir/builder.h"

namespace mithril::ir {

bool is_half(const Type& type);
/// Tells whether an operand or a result of the node is a half.
bool has_halves(const Graph& graph, const Node& node);

/// While it lives, what is built computes in float32 where it follows from no operand: the
/// default float of the graph is not a half.
class InFloat32 {
 public:
  explicit InFloat32(Graph& graph);
  ~InFloat32();
  InFloat32(const InFloat32&) = delete;
  InFloat32& operator=(const InFloat32&) = delete;

 private:
  Graph& graph_;
  const DType before_;
};

/// The type that a value of `dtype` is computed in: float32 for halves.
DType in_float32(DType dtype);
/// `value` in float32 if it is a half.
Value in_float32(Value value);
/// The node with casts of its halves in their places.
Node in_float32(Builder& builder, const Node& node);

/// Builds the body of a composite for `node` (operands in the builder's graph). With halves among
/// operands or results it is built in float32 and rounded to the types of `results`, unless no
/// value of it is rounded twice anyway.
std::vector<Value> compose(Builder& builder, const OpDef& op, const Node& node,
                           std::span<const Type> results);

/// Tells whether the gradient rule of `node`, applied to halves, would round what it has rounded
/// before; `flows` says of each result whether it has a cotangent.
bool gradient_rounds_inside(const Graph& graph, const OpDef& op, const Node& node,
                            const std::vector<bool>& flows, const std::vector<bool>& wanted);

/// Writes the tile body of a pointwise or row op: in float32 between its first and its last
/// instruction, where it has more than one that rounds.
tile::Reg pointwise(tile::Builder& t, const OpDef& op, const PointwiseCall& call);

}  // namespace mithril::ir

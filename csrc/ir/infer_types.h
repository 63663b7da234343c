// Types of a node's results, forward, from one op and the types of its operands.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/op_def.h"

namespace mithril::ir {

struct Inferred {
  std::vector<Type> types;
  std::vector<std::optional<HostValue>> hosts;  // known host results
};

/// The type in which the promoted operands are combined; kBool when the op combines none.
/// Host numbers among `attrs` count as weak scalars.
DType compute_type(const OpDef& op, const Graph& graph, std::span<const ValueId> operands,
                   const Attrs& attrs);

/// Tells whether `input` is cast to the compute type.
bool is_promoted(const OpDef& op, const InputDef& input);

/// Tells whether a value is a number in place of a tensor, which is a tensor of rank 0.
bool stands_for_tensor(const InputDef& input, const HostValue& value);

/// The type of such a number where it is not promoted: that of the operands of its kinds, unless it
/// is of a wider kind than they are.
DType type_of_number(const OpDef& op, const Graph& graph, std::span<const ValueId> operands,
                     const InputDef& input, const HostValue& number);

/// New symbols are added to `graph.dims` only. Errors name the op, shapes and dtypes.
core::Result<Inferred> infer_types(const OpDef& op, Graph& graph, std::span<const ValueId> operands,
                                   const Attrs& attrs);

}  // namespace mithril::ir

// Mixed precision: products compute in halves, what needs range and digits in the wide type.
#pragma once
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// Before: graph m(%x: f32[b, 4], %w: f32[8, 4]) {   %0 = linear(%x, %w) : f32[b, 8]
///           %1 = softmax(%0, axis=-1) : f32[b, 8]
/// After:  graph m(%x: f32[b, 4], %w: f32[8, 4]) {   %0 = cast(%x, dtype=bf16)
///           %1 = cast(%w, dtype=bf16)   %2 = linear(%0, %1) : bf16[b, 8]
///           %3 = cast(%2, dtype=f32)   %4 = softmax(%3, axis=-1) : f32[b, 8]
/// OpDef::precision says what becomes of an op; those that follow their operands promote a half
/// beside a float to the float. Inputs, outputs and states keep their types, also those of regions,
/// so parameters, and their gradients, stay wide. Values of 64 bits and halves that were there
/// before are left alone. With float32 as `compute` it is the other way round: halves that come in,
/// and constants, are widened once, and all that follows from them is float32 up to the outputs.
/// For graphs with concrete dtypes, before they are differentiated.
core::Result<ir::Graph> cast_policy(const ir::Graph& graph, core::DType compute);

}  // namespace mithril::passes

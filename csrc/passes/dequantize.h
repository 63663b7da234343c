// Packed matrices as ordinary ops: for targets that have no kernel for them.
#pragma once
#include "core/packed_matrix.h"
#include "ir/builder.h"

namespace mithril::passes {

/// The elements f32[rows, columns] that a packed matrix stands for, to the bit of
/// `PackedMatrix::at`, computed from constants that take its memory: those of integers
/// are not folded (passes/fold_constants.h).
ir::Value dequantized(ir::Builder& builder, const core::PackedMatrix& matrix);

}  // namespace mithril::passes

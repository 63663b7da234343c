// Which positions of a sequence Python's slices take.
#pragma once
#include <optional>

#include "core/host_value.h"

namespace mithril::core {

/// Holds what slice.indices of Python gives, and how many positions that takes: start, start +
/// step, …
struct SliceIndices {
  int64_t start, stop, step, length;
};

/// Resolves [start:stop:step] on `size` items, nullopt where nothing is written; step must not be
/// 0.
SliceIndices slice_indices(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step,
                           int64_t size);
/// Resolves a slice without symbols.
SliceIndices slice_indices(const Slice& slice, int64_t size);

/// Tells how many of 0, step, 2 * step, … lie before `distance`; step must not be 0 and counts as
/// |step|.
int64_t steps_before(int64_t distance, int64_t step);

}  // namespace mithril::core

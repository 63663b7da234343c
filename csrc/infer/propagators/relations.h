// The relations that rule.h offers, as functions over a store: one file per family posts them.
#pragma once
#include "infer/store.h"

namespace mithril::infer {

/// dim == expression, kept up to date when symbols of the expression become known.
void post_definition(Store& s, uint32_t dim, Dim expression);
/// Two dims that are equal but cannot be united yet (x == f(x)).
void post_equal(Store& s, uint32_t a, uint32_t b);
/// out = left op right over integers, in all directions.
void post_arithmetic(Store& s, uint32_t rule, uint32_t out, uint32_t left, uint32_t right,
                     IntOp op);
/// The size that NumPy's rule gives `left` and `right`.
bool broadcast_dims(Store& s, uint32_t out, std::span<const uint32_t> operands);

/// A range of integers from `start` up (or down) to before `stop`, as Python has it; the ends are
/// dims, kNone where nothing is given.
struct Range {
  uint32_t start = kNone, stop = kNone;
  int64_t step = 1;
};
/// out = len(range(size)[start:stop:step]), and back as far as the length tells.
void post_slice_size(Store& s, uint32_t out, uint32_t size, const Range& range);
/// out = len(range(start, stop, step)), in all directions.
void post_range_size(Store& s, uint32_t out, const Range& range);

/// broadcast_dims as a relation: args are the result, then the operands.
void post_broadcast_dims(Store& s, std::span<const uint32_t> args);

/// Integers of a value: an int, or a flat tuple or list of ints. nullopt for anything else.
std::optional<SmallVector<int64_t, 8>> ints_of(const core::HostValue& value);
/// Axis in 0 … rank-1; a conflict named after `what` otherwise.
std::optional<int> normal_axis(Store& s, const Propagator& p, std::string_view what, int64_t axis,
                               int rank, uint32_t cell);

inline bool is_none(Store& s, uint32_t cell) { return s.kinds(cell) == kNoneKind; }

}  // namespace mithril::infer

// Elements of a result as weighted sums of a few places of the operand along one axis: what
// interpolation, adaptive pooling and the modes of padding have in common.
#pragma once
#include <optional>
#include <vector>

#include "ops/block.h"

namespace mithril::ops {

/// For each element of the result `count` places; their weights, or none: each counts fully.
struct Taps {
  int64_t count = 1;
  std::vector<int64_t> places;
  std::vector<double> weights;
};

/// x with its elements along the axis (from the start) taken from `places`, in their order.
Value take_along(Value x, size_t axis, const std::vector<int64_t>& places);
Value resampled(Value x, size_t axis, const Taps& taps);
/// The size of an axis; fails the body, naming the op, where it is not known.
std::optional<int64_t> known_size(Builder& b, Value x, size_t axis);

/// Tables of places are made when a model is compiled: no axis of theirs is longer.
inline constexpr int64_t kMostResampled = int64_t{1} << 24;

/// Tells whether `pad` with these attributes adds zeros; else `padded_otherwise` is its body.
bool pads_zeros(const ir::Attrs& attrs);
Value padded_otherwise(Builder& b);
/// States what the attributes `mode` and `value` ask of the operand of `pad`.
void state_padding_mode(RuleBuilder& r);

void define_padding_modes(OpFamily& ops);
void define_resize(OpFamily& ops);

}  // namespace mithril::ops

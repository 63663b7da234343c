// Arguments of windows (convolution, pooling) as users write them, and in canonical form: a number
// for each axis, padding as (low, high). Structured ops have two axes; the layers here reduce one
// and three axes to them.
#pragma once
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "ops/block.h"

namespace mithril::ops {

/// An int for every axis, or one for each.
HostValue each_axis(const HostValue& value, size_t axes);
/// Returns what "same" adds at the ends of an axis: without strides the result is as long as the
/// axis. Of an odd number of elements the larger half is at the end.
HostValue same_padding(int64_t window, int64_t dilation);
/// As (low, high) for each axis: an int, one for each axis, one (low, high) for each axis, or
/// "same" or "valid" (none); with one axis also (low, high).
HostValue window_padding(Builder& b, const HostValue& padding, const Shape& window,
                         const std::vector<int64_t>& dilation);
/// Tells whether the arguments of that names are known; a body fails where one is wired.
bool are_known(Builder& b, std::initializer_list<const char*> names);

/// Windows that slide over the last axes of a tensor.
struct Windows {
  std::vector<int64_t> size, stride, dilation;
  std::vector<std::array<int64_t, 2>> padding;
  /// The part of the padding at the end of each axis that is there for a last window that is not
  /// whole; no mean counts it. Empty: none of it.
  std::vector<int64_t> beyond;
  bool counts_padding = true;  // in means

  size_t axes() const { return size.size(); }
  /// Those of `count` axes from `first` on.
  Windows part(size_t first, size_t count) const;
  /// With an axis in front (or behind) along which the window is one element.
  Windows with_unit_axis(bool in_front) const;
  /// Attributes of the structured ops; convolutions know the size from their filters.
  Attrs attrs(bool with_size) const;
};
/// From canonical attributes.
Windows windows_of(const Attrs& attrs);
/// From the keys of a layer (`stride` none: the window's size), in canonical form; none where
/// one of them is not known, and the body has failed. The size is 0 where it is neither known nor
/// needed.
std::optional<Windows> windows_of_layer(Builder& b, const Shape& window, bool needs_size);

/// The sizes of x but for its last axes, then the sizes given.
Value with_last_axes(Value x, size_t replaced, std::initializer_list<infer::Dim> sizes);

/// Says what a pooling layer takes of each window.
enum class Pool : uint8_t { kMax, kMin, kMean };
/// Pools the last axes, one to three; integers too, but for their mean. Padding never wins.
Value pooled(Pool pool, Value x, const Windows& windows);
/// max_pool2d of integers (or the smallest of each window), tap by tap.
Value extreme_of_integers(Value x, const Windows& windows, bool largest);

/// The same for rules: a term with the padding as (low, high) for each axis.
Term resolved_padding(RuleBuilder& r, Term padding, Term kernel, Term dilation, int axes);
/// An argument that may be an int or one for each axis, when the rule is stated; none where it is
/// open or none. Fails the rule where it is neither.
std::optional<std::vector<int64_t>> known_sizes_of(RuleBuilder& r, const char* op,
                                                   const char* argument, size_t axes);

/// The other files of the families conv, pool and host.
void define_conv_layers(OpFamily& ops);
void define_conv_transpose(OpFamily& ops);
void define_channels_last(OpFamily& ops);
void define_pool_layers(OpFamily& ops);
void define_adaptive_pools(OpFamily& ops);
void define_window_arguments(OpFamily& ops);

}  // namespace mithril::ops

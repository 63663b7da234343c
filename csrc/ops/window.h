// Arguments of windows (convolution, pooling) in one form: pairs for rows and columns, padding as
// ((top, bottom), (left, right)).
#pragma once
#include "ops/block.h"

namespace mithril::ops {

/// An int, or one for rows and one for columns.
HostValue window_pair(const HostValue& value);
/// An int, a pair, a pair of pairs, or "same" (half the window on each side) or "valid" (none).
/// Fails the body where "same" meets an even window.
HostValue window_padding(Builder& b, const HostValue& padding, const Shape& window);
/// Whether the arguments of that names are known; a body fails where one is wired.
bool are_known(Builder& b, std::initializer_list<const char*> names);

/// The same for rules: a term with the padding as pairs.
Term resolved_padding(RuleBuilder& r, Term padding, Term kernel);

}  // namespace mithril::ops

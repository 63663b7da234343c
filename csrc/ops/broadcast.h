// A tensor that is repeated to the shape of another one, whose sizes may be open.
#pragma once
#include "ops/block.h"

namespace mithril::ops {

/// `from` broadcasts to the shape of `to`, which stays as it is: what is open is checked when sizes
/// are bound.
void state_broadcasts_to(RuleBuilder& r, Term from, Term to);

}  // namespace mithril::ops

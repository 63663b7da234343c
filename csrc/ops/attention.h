// What the files of the family attention share: an offset, the place of the first query or token.
#pragma once
#include <optional>

#include "ops/block.h"

namespace mithril::ops {

/// An int, or an integer tensor of rank 0, not negative: the key "offset".
OpDefBuilder& with_offset(OpDefBuilder& block);
void state_offset(RuleBuilder& r);
/// Where it is known when the model is compiled.
std::optional<int64_t> known_offset(const Builder& b);
/// The places offset, offset + 1 …, `count` of them.
Value places_from_offset(Builder& b, infer::Dim count);

/// The other files of the family.
void define_positions(OpFamily& ops);
void define_heads(OpFamily& ops);

}  // namespace mithril::ops

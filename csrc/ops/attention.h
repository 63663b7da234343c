// What the files of the family attention share: an offset, the place of the first query or token.
#pragma once
#include <optional>

#include "ops/attention_formula.h"
#include "ops/block.h"

namespace mithril::ops {

/// An int, or an integer tensor of rank 0, not negative: the key "offset".
OpDefBuilder& with_offset(OpDefBuilder& block);
void state_offset(RuleBuilder& r);
/// Returns the offset where it is known when the model is compiled.
std::optional<int64_t> known_offset(const Builder& b);
/// The places offset, offset + 1 …, `count` of them.
Value places_from_offset(Builder& b, infer::Dim count);

/// Attention by the op that tells the sum of each row of weights, too, and its gradients by the op
/// that reads these. `of_scores`: the gradient of the scores is asked for, which takes as much
/// memory as they would. Where attention is given by equal wires the nodes are equal, whoever asks.
struct Attended {
  Value output, logsumexp;
};
Attended with_logsumexp(Builder& b);
AttentionGradients gradients_by_blocks(Builder& b, Value output_gradient, bool of_scores);

/// The other files of the family.
void define_attention_gradients(OpFamily& ops);
void define_positions(OpFamily& ops);
void define_heads(OpFamily& ops);

}  // namespace mithril::ops

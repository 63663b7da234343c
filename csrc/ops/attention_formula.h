// The formula of attention in graph ops: what the blocks of the family and their gradients share.
#pragma once
#include <string_view>

#include "ops/block.h"

namespace mithril::ops {

/// Tells whether the op has such an input and the node a wire for it.
bool has_operand(const Builder& b, std::string_view name);

/// The weights with which each query reads the values, the scores that they come from, and the
/// scale of these.
struct Weights {
  Value weights, scores, scale;
};
Weights weights_of(Builder& b);
Value mean_of_values(Builder& b, Value weights);

/// Cotangents of the operands; `scores`: of what a mask or a bias is added to.
struct AttentionGradients {
  Value query, key, value, scores;
};
AttentionGradients gradients_by_weights(Builder& b, Value output_gradient);

/// While it lives a body or a gradient rule sees query, key and value with the batch axes that they
/// broadcast to, where the op has the attribute `broadcast` and they differ.
class OneBatch {
 public:
  explicit OneBatch(Builder& b);
  ~OneBatch();
  OneBatch(const OneBatch&) = delete;
  OneBatch& operator=(const OneBatch&) = delete;

 private:
  Builder& b_;
  const ir::Node* original_;
  ir::Node spread_;
};

/// Tells whether key and value have heads of their own number, the axis k for the axis h of the
/// others.
bool has_shared_heads(RuleBuilder& r);
/// Sizes of all that the general form has but the offset. Batch axes are the same ones;
/// where an op may broadcast them and its attribute `broadcast` says so, they do.
void attention_rule(RuleBuilder& r, Term output, bool may_broadcast = false);
/// The options that every form has.
ir::Attrs common_attrs(const Builder& b);

}  // namespace mithril::ops

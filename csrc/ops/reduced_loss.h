// Losses with the attribute `reduction`: single values, as they are, or their mean or sum.
#pragma once
#include <functional>

#include "ops/block.h"

namespace mithril::ops {

/// Declares how a loss computes its single values, one for each element or sample.
struct Loss {
  /// Relates `each`, the single values, with the operands; empty: input and target broadcast.
  std::function<void(RuleBuilder&, Term each)> shapes = {};
  /// The single values; empty: the block states a loop over elements after `reducible`.
  std::function<Value(Builder&)> body = {};
  /// From cotangents of the single values; empty: that of the body.
  ir::GradientFn gradient = {};
  /// Tells how much each counts in the mean; empty, or none: all the same.
  std::function<Value(Builder&)> weights = {};
};

/// States the rule, body and gradient of a loss, and its last attribute: `reduction`.
OpDefBuilder& reducible(OpDefBuilder& block, Loss loss);
/// Test cases of both reductions, of operands that broadcast.
OpDefBuilder& reduced_cases(OpDefBuilder& block, const std::string& left, const std::string& right);

}  // namespace mithril::ops

// What normalisations share: mean 0 and variance 1 along some axes, then a scale and a shift.
#pragma once
#include "ops/block.h"

namespace mithril::ops {

/// A normalised operand, and one over the standard deviation that it was divided by.
struct Normalized {
  Value value, scale;
};

Normalized normalize(Value x, Value mean, Value variance, Operand eps);
Value variance(Value x, const HostValue& axis, bool keepdim);
Normalized normalize_along(Value x, const HostValue& axis, Operand eps);
/// The cotangent of what was normalised along `axis` with statistics of its own.
Value through_statistics(Value dy, const Normalized& y, const HostValue& axis);
/// y times weight, plus bias, where they are.
Value scaled(Value y, Value weight, Value bias);
/// `name`, where it is, has the shape [1, c, 1, 1 …], which broadcasts against [n, c, h, w …].
void state_per_channel(RuleBuilder& r, const char* name, int rank);

/// The other file of the family norm.
void define_batch_norms(OpFamily& ops);

}  // namespace mithril::ops

// Functions that are continued below a threshold, so that values and slopes stay finite there.
#pragma once
#include "ops/block.h"

namespace mithril::ops {

/// A key that says where a function is continued: a number, a scalar tensor, or the name of a
/// constant that follows the precision. No gradient flows to it.
inline constexpr infer::KindSet kThreshold = kNum | infer::kConstantKind;

/// The key `threshold` of a body, in the type of `like`.
Value threshold(Builder& b, Value like);
/// Refuses a threshold with axes.
void threshold_rule(RuleBuilder& r);

/// A function and its slope.
struct Continued {
  Value value, slope;
};
/// ln |x|; nearer to 0 than the limit the tangent there. The slope at 0 is that of positive
/// numbers.
Continued robust_log(Value x, Value limit);

}  // namespace mithril::ops

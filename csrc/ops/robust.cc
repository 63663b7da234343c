// Logarithm, root, power and reciprocal, each continued by a line near 0, where its slope explodes.
#include "ops/robust.h"

#include "core/tensor_data.h"
#include "infer/relation.h"

namespace mithril::ops {

Value threshold(Builder& b, Value like) {
  if (!like) return {};
  const DType dtype = like.dtype();
  if (b.has("threshold")) {
    return ir::apply("stop_gradient", {cast(b.in("threshold"), dtype)});
  }
  const HostValue& value = b.attr("threshold");
  if (!value.is_string()) return b.scalar(value.as_number(), dtype);
  // bfloat16 has the range of float32.
  const DType range = dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
  if (const auto number = core::constant_value(value.as_string(), range)) {
    return b.scalar(*number, dtype);
  }
  b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "{}: 'threshold' must be a number or the name of a constant, got '{}'",
                    b.op().name, value.as_string()));
  return {};
}

namespace {

core::Status has_no_axes(infer::Relation& relation) {
  const auto rank = relation.kinds(0).is_tensor() ? relation.rank(0) : std::nullopt;
  if (!rank || *rank == 0) return {};
  return core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                    "'threshold' must be a number or a tensor of rank 0, got rank {}", *rank);
}

}  // namespace

void threshold_rule(RuleBuilder& r) { r.custom({r.in("threshold")}, has_no_axes); }

Continued robust_log(Value x, Value limit) {
  const Value negative = less(x, 0.0);
  const Value size = where(negative, -x, x);  // frameworks differentiate it, too: 1 at 0
  const Value small = less(size, limit);
  const Value safe = where(small, limit, size);
  const Value slope = where(small, 1.0 / limit, 1.0 / safe);
  return {where(small, log(limit) + size / limit - 1.0, log(safe)), where(negative, -slope, slope)};
}

namespace {

Continued robust_sqrt(Value x, Value limit) {
  const Value size = abs(x);
  const Value small = less(size, limit);
  const Value root = sqrt(where(small, limit, size));
  return {where(small, size / root, root), sign(x) * where(small, 1.0 / root, 0.5 / root)};
}

// 1 / x; nearer to 0 than the limit the tangent there, on either side.
Continued stable_reciprocal(Value x, Value limit) {
  const Value small = less(abs(x), limit);
  const Value inverse = 1.0 / where(small, limit, x);
  const Value side = where(less(x, 0.0), -inverse, inverse);
  return {where(small, side * 2.0 - x * inverse * inverse, inverse), -(inverse * inverse)};
}

using Function = Continued (*)(Value, Value);

OpDefBuilder& continued(OpDefBuilder& block, Function function, const char* constant) {
  return unary_cases(block.input("input", kTensor)
                         .input("threshold", kThreshold, HostValue(constant))
                         .connect({"input", "output", "threshold"})
                         .output("output", computed())
                         .promote_float({"input"})
                         .rule([](RuleBuilder& r) {
                           r.kind(r.out(), kFloating);
                           r.same_shape(r.out(), r.in("input"));
                           threshold_rule(r);
                         })
                         .compose([function](Builder& b) {
                           const Value x = b.in("input");
                           return x ? function(x, threshold(b, x)).value : Value();
                         })
                         .gradient([function](GradBuilder& g) {
                           const Value x = g.in("input");
                           g.d("input") = g.dout() * function(x, threshold(g.builder(), x)).slope;
                         })
                         .rejects(at({{"input", {2}}, {"threshold", {2}}}), "rank 0"));
}

void define_functions(OpFamily& ops) {
  continued(ops.def("robust_log")
                .python("RobustLog")
                .doc("Natural logarithm of |x|; below the threshold its tangent there. The "
                     "gradient has the sign of x, at 0 that of positive numbers.")
                .formula("\\ln|x|, \\quad |x| < \\tau: \\ln\\tau + |x| / \\tau - 1"),
            robust_log, "MIN_POSITIVE_NORMAL")
      .with(at({{"input", {2, 9}}}, {{"threshold", 0.5}}))
      .kinks();

  continued(ops.def("robust_sqrt")
                .python("RobustSqrt")
                .doc("Square root of |x|; below the threshold the line from 0 to it. The "
                     "gradient has the sign of x, and is 0 at 0.")
                .formula("\\sqrt{|x|}, \\quad |x| < \\tau: |x| / \\sqrt\\tau"),
            robust_sqrt, "MIN_POSITIVE_NORMAL")
      .with(at({{"input", {2, 9}}}, {{"threshold", 0.5}}))
      .kink(0.0, 0.0)
      .points({0.0, -0.0});

  continued(ops.def("stable_reciprocal")
                .python("StableReciprocal")
                .arguments({"input", "threshold"})
                .doc("One over x; nearer to 0 than the threshold the tangent there, at 0 that "
                     "of positive numbers.")
                .formula("1 / x, \\quad |x| < \\tau: \\pm 2 / \\tau - x / \\tau^2"),
            stable_reciprocal, "STABLE_RECIPROCAL_THRESHOLD")
      .with(at({{"input", {2, 9}}}, {{"threshold", 0.5}}))
      .connect({"input", "threshold", "output"})
      .kinks();
}

// --- power ---------------------------------------------------------------------------------

/// |base| ^ exponent, where the gradient explodes the line |base| / limit: there the power would
/// be above the line.
struct Power {
  Value line, size, safe;  // whether the line is taken, |base|, and a base for the power

  Power(Value base, Value exponent, Value limit) {
    size = abs(base);
    // Nothing flows through a comparison, but some frameworks multiply by that nothing: 0 * inf.
    const Value bound = 1.0 - log(limit) / log(ir::apply("stop_gradient", {size}));
    line = logical_and(less(size, limit), less(exponent, bound));
    safe = where(line, 1.0, size);
  }
};

void robust_power_gradient(GradBuilder& g) {
  const Value base = g.in("base");
  const Value exponent = g.in("exponent");
  const Value limit = threshold(g.builder(), base);
  const Power p(base, exponent, limit);
  if (g.wants("base")) {
    // With exponent 0 the base is replaced by 1: 0 * 1 ** -1, and no 0 * inf.
    const Value apart = where(equal(exponent, 0.0), 1.0, p.safe);
    const Value slope = where(p.line, 1.0 / limit, exponent * power(apart, exponent - 1.0));
    g.d("base") = g.dout() * sign(base) * slope;
  }
  if (g.wants("exponent")) {
    const Value still = logical_or(p.line, equal(p.size, 0.0));
    const Value logarithm = log(where(still, 1.0, p.size));
    g.d("exponent") = where(still, 0.0, g.dout() * g.out() * logarithm);
  }
}

void define_robust_power(OpFamily& ops) {
  binary_cases(
      ops.def("robust_power")
          .python("RobustPower")
          .doc("|base| raised to the exponent; the line |base| / threshold where |base| is "
               "below the threshold and the power above the line. The gradient of the base has "
               "its sign, and is 0 at 0.")
          .formula("|base|^{exponent}, \\quad |base| < \\tau: \\min(|base|^{exponent}, "
                   "|base| / \\tau)")
          .input("base", kNum)
          .input("exponent", kNum)
          .input("threshold", kThreshold, HostValue("MIN_POSITIVE_NORMAL"))
          .connect({"base", "exponent", "output", "threshold"})
          .output("output", computed())
          .promote_float({"base", "exponent"})
          .rule([](RuleBuilder& r) {
            r.kind(r.in("base"), kTensor);
            r.kind(r.out(), kFloating);
            r.broadcast(r.out(), {r.in("base"), r.in("exponent")});
            threshold_rule(r);
          })
          .compose([](Builder& b) {
            const Value base = b.in("base");
            const Value exponent = b.in("exponent");
            if (!base || !exponent) return Value();
            const Value limit = threshold(b, base);
            const Power p(base, exponent, limit);
            return where(p.line, p.size / limit, power(p.safe, exponent));
          })
          .gradient(robust_power_gradient)
          .kinks()
          .sample("base", 0.2, 3.0)
          .sample("exponent", -2.0, 3.0),
      "base", "exponent")
      .with(at({{"base", {3, 4}}, {"exponent", {}}}, {{"threshold", 0.9}}))
      .with(at({{"base", {3, 4}}}, {{"exponent", 0.5}, {"threshold", 0.9}}));
}

}  // namespace

void define_robust(OpFamily& ops) {
  define_functions(ops);
  define_robust_power(ops);
}

}  // namespace mithril::ops

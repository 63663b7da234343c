// Arithmetic, comparisons, logic and plain functions of each element.
#include <limits>

#include "infer/relation.h"
#include "ops/block.h"
#include "ops/host_arithmetic.h"

namespace mithril::ops {
namespace {

using infer::ArithTable;
using tile::Reg;

infer::Rule arithmetic(const char* left, const char* right, const ArithTable& (*table)(),
                       infer::FoldFn fold, std::optional<IntOp> int_op = std::nullopt) {
  return [=](RuleBuilder& r) {
    r.elementwise(r.out(), r.in(left), r.in(right), table(), fold, int_op);
  };
}

bool is_bool(Reg x) { return x.dtype() == DType::kBool; }

void define_sums_and_products(OpFamily& ops) {
  binary_cases(
      ops.def("add")
          .python("Add")
          .doc("Sum of two operands, left + right.")
          .formula("left + right")
          .input("left", kNum)
          .input("right", kNum)
          .output("output", computed())
          .promote()
          .cin({"left", "right"})
          .commutative()
          .rule(arithmetic("left", "right", infer::add_table, fold<HostOp::kAdd>, IntOp::kAdd))
          .host(host<HostOp::kAdd>)
          .pointwise([](tile::Builder&, Reg x, Reg y) { return is_bool(x) ? (x | y) : x + y; })
          .gradient([](GradBuilder& g) {
            g.d("left") = g.dout();
            g.d("right") = g.dout();
          }),
      "left", "right");

  binary_cases(
      ops.def("subtract")
          .python("Subtract")
          .doc("Difference of two operands, left - right.")
          .formula("left - right")
          .input("left", kNum)
          .input("right", kNum)
          .output("output", computed())
          .promote()
          .rule(arithmetic("left", "right", infer::add_table, fold<HostOp::kSubtract>, IntOp::kSub))
          .host(host<HostOp::kSubtract>)
          .pointwise([](tile::Builder&, Reg x, Reg y) { return is_bool(x) ? (x ^ y) : x - y; })
          .gradient([](GradBuilder& g) {
            g.d("left") = g.dout();
            if (g.wants("right")) g.d("right") = -g.dout();
          }),
      "left", "right");

  binary_cases(
      ops.def("multiply")
          .python("Multiply")
          .alias({"multiplication"})
          .doc("Product of two operands, element by element, left * right.")
          .formula("left \\cdot right")
          .input("left", kNum)
          .input("right", kNum)
          .output("output", computed())
          .promote()
          .cin({"left", "right"})
          .commutative()
          .rule(arithmetic("left", "right", infer::add_table, fold<HostOp::kMultiply>, IntOp::kMul))
          .host(host<HostOp::kMultiply>)
          .pointwise([](tile::Builder&, Reg x, Reg y) { return is_bool(x) ? (x & y) : x * y; })
          .gradient([](GradBuilder& g) {
            if (g.wants("left")) g.d("left") = g.dout() * g.in("right");
            if (g.wants("right")) g.d("right") = g.dout() * g.in("left");
          }),
      "left", "right");
}

void define_quotients(OpFamily& ops) {
  binary_cases(
      ops.def("divide")
          .python("Divide")
          .doc("Quotient of two operands; integers give floats: numerator / denominator.")
          .formula("\\frac{numerator}{denominator}")
          .input("numerator", kNum)
          .input("denominator", kNum)
          .output("output", computed())
          .promote_float()
          .rule(arithmetic("numerator", "denominator", infer::divide_table, fold<HostOp::kDivide>))
          .host(host<HostOp::kDivide>)
          .pointwise([](tile::Builder&, Reg x, Reg y) { return x / y; })
          .gradient([](GradBuilder& g) {
            if (g.wants("numerator")) g.d("numerator") = g.dout() / g.in("denominator");
            if (g.wants("denominator")) {
              g.d("denominator") = -(g.dout() * g.out() / g.in("denominator"));
            }
          })
          .sample("denominator", 0.5, 3.0),
      "numerator", "denominator");

  binary_cases(ops.def("floor_divide")
                   .python("FloorDivide")
                   .doc("Quotient rounded down, as Python's //; an integer divided by 0 gives 0.")
                   .formula("\\lfloor numerator / denominator \\rfloor")
                   .input("numerator", kNum)
                   .input("denominator", kNum)
                   .output("output", computed())
                   .promote_number()
                   .rule(arithmetic("numerator", "denominator", infer::floor_table,
                                    fold<HostOp::kFloorDivide>, IntOp::kFloorDiv))
                   .host(host<HostOp::kFloorDivide>)
                   .pointwise([](tile::Builder& t, Reg x, Reg y) { return t.floordiv(x, y); })
                   .not_differentiable()
                   .sample("denominator", 0.5, 3.0),
               "numerator", "denominator");

  binary_cases(
      ops.def("mod")
          .python("Remainder")
          .alias({"remainder"})
          .doc("Remainder with the sign of the divisor, as Python's %; of an integer by 0: 0.")
          .formula("numerator - denominator \\lfloor numerator / denominator \\rfloor")
          .input("numerator", kNum)
          .input("denominator", kNum)
          .output("output", computed())
          .promote_number()
          .rule(arithmetic("numerator", "denominator", infer::floor_table, fold<HostOp::kMod>))
          .host(host<HostOp::kMod>)
          .pointwise([](tile::Builder& t, Reg x, Reg y) { return t.mod(x, y); })
          .gradient([](GradBuilder& g) {
            g.d("numerator") = g.dout();
            if (!g.wants("denominator")) return;
            const Value whole = ir::apply("floor_divide", {g.in("numerator"), g.in("denominator")});
            g.d("denominator") = -(g.dout() * whole);
          })
          .sample("denominator", 0.5, 3.0),
      "numerator", "denominator");
}

// Terms: base, exponent. Numbers say it at once; what data hold gives whole parts.
core::Status refuse_fractions(infer::Relation& relation) {
  const auto exponent = relation.value(1);
  if (!exponent) return {};
  if (!exponent->is_int() || exponent->as_int() >= 0) {
    relation.finish();
    return {};
  }
  const infer::KindSet base = relation.kinds(0);
  if (!base.is_tensor() || !base.subset_of(kIntegral)) return {};
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "integers have no integer powers with a negative exponent, got {}: cast the "
                    "base to a float",
                    exponent->as_int());
}

infer::Rule power_rule() {
  infer::Rule rule = arithmetic("base", "exponent", infer::floor_table, fold<HostOp::kPower>);
  return [rule = std::move(rule)](RuleBuilder& r) {
    rule(r);
    r.custom({r.in("base"), r.in("exponent")}, refuse_fractions);
  };
}

void define_power(OpFamily& ops) {
  binary_cases(ops.def("power")
                   .python("Power")
                   .precision(Precision::kWide)
                   .doc("The base raised to the exponent; x ** 0 is 1, also at 0, with gradient 0. "
                        "Of integers it wraps, and a negative exponent gives the whole part: 0 but "
                        "for bases 1 and -1.")
                   .formula("base^{exponent}")
                   .input("base", kNum)
                   .input("exponent", kNum)
                   .output("output", computed())
                   .promote_number()
                   .rule(power_rule())
                   .host(host<HostOp::kPower>)
                   .pointwise([](tile::Builder& t, Reg x, Reg y) {
                     return core::is_float(x.dtype()) ? t.pow(x, y) : t.ipow(x, y);
                   })
                   .gradient([](GradBuilder& g) {
                     const Value base = g.in("base");
                     const Value exponent = g.in("exponent");
                     if (g.wants("base")) {
                       // With exponent 0 the base is replaced by 1: 0 * 1 ** -1, and no 0 * inf.
                       const Value safe = where(equal(exponent, 0.0), ones_like(base), base);
                       g.d("base") = g.dout() * exponent * power(safe, exponent - 1.0);
                     }
                     if (g.wants("exponent")) {
                       const Value zero = equal(base, 0.0);
                       const Value safe = where(zero, ones_like(base), base);
                       g.d("exponent") = where(zero, 0.0, g.dout() * g.out() * log(safe));
                     }
                   })
                   .kinks()
                   .sample("base", 0.2, 3.0)
                   .sample("exponent", -2.0, 3.0),
               "base", "exponent");
}

// The larger (or smaller) operand takes the gradient; equal ones share it.
void extremum_gradient(GradBuilder& g, Value left_wins) {
  const Value half = where(equal(g.in("left"), g.in("right")), g.dout() * 0.5, 0.0);
  if (g.wants("left")) g.d("left") = where(left_wins, g.dout(), half);
  if (g.wants("right")) {
    const Value right_wins = logical_not(logical_or(left_wins, equal(g.in("left"), g.in("right"))));
    g.d("right") = where(right_wins, g.dout(), half);
  }
}

/// The limits of a clamp, tensors in the type of what is limited.
struct Limits {
  Operand low, high;

  explicit Limits(GradBuilder& g) : low(limit(g, "min_val")), high(limit(g, "max_val")) {}
  static Operand limit(GradBuilder& g, const char* name) {
    Operand out = given(g.builder(), name);
    if (out.value) out.value = cast(out.value, g.in("input").dtype());
    return out;
  }
  static bool is_given(const Operand& limit) { return limit.value || !limit.host->is_none(); }

  // Where max_val is the result.
  Value above(Value x) const {
    if (!is_given(high)) return not_equal(x, x);
    const Value larger = ir::apply("greater", {x, high});
    if (!is_given(low)) return larger;
    const Value least = ir::apply("add", {zeros_like(x), low});
    return logical_or(larger, ir::apply("greater", {least, high}));
  }
};

void clamp_gradient(GradBuilder& g) {
  const Value x = g.in("input");
  const Limits limits(g);
  if (g.wants("input")) {
    Value inside = equal(x, x);
    const auto keep = [&](const Operand& limit, const char* compare) {
      if (!Limits::is_given(limit)) return;
      inside = logical_and(inside, ir::apply(compare, {x, limit}));
    };
    keep(limits.low, "greater_equal");
    keep(limits.high, "less_equal");
    g.d("input") = where(inside, g.dout(), 0.0);
  }
  if (g.wants("max_val")) g.d("max_val") = where(limits.above(x), g.dout(), 0.0);
  if (!g.wants("min_val")) return;
  const Value below = logical_and(ir::apply("less", {x, limits.low}), logical_not(limits.above(x)));
  g.d("min_val") = where(below, g.dout(), 0.0);
}

// Terms: input, a limit. Integers have no limits that are tensors of floats.
core::Status limits_its_kind(infer::Relation& relation) {
  const infer::KindSet kinds = relation.kinds(0), limit = relation.kinds(1);
  const bool is_whole = kinds.is_tensor() && !kinds.meets(kFloating);
  if (!is_whole || !limit.is_tensor() || limit.meets(infer::kTensorInt | infer::kTensorBool)) {
    return {};
  }
  return core::fail(core::ErrorKind::kDType, core::Code::kDTypeOperand,
                    "limits of integers must be integers, got a float tensor");
}

void define_extrema(OpFamily& ops) {
  binary_cases(
      ops.def("maximum")
          .python("Maximum")
          .doc("The larger of two operands; NaN wins, -0 is below +0, ties share the gradient.")
          .formula("\\max(left, right)")
          .input("left", kTensor)
          .input("right", kTensor)
          .output("output", computed())
          .promote()
          .cin({"left", "right"})
          .commutative()
          .pointwise([](tile::Builder& t, Reg x, Reg y) {
            return is_bool(x) ? t.bit_or(x, y) : t.max(x, y);
          })
          .gradient(
              [](GradBuilder& g) { extremum_gradient(g, greater(g.in("left"), g.in("right"))); })
          .kinks(),
      "left", "right");

  binary_cases(
      ops.def("minimum")
          .python("Minimum")
          .doc("The smaller of two operands; NaN wins, -0 is below +0, ties share the gradient.")
          .formula("\\min(left, right)")
          .input("left", kTensor)
          .input("right", kTensor)
          .output("output", computed())
          .promote()
          .cin({"left", "right"})
          .commutative()
          .pointwise([](tile::Builder& t, Reg x, Reg y) {
            return is_bool(x) ? t.bit_and(x, y) : t.min(x, y);
          })
          .gradient([](GradBuilder& g) { extremum_gradient(g, less(g.in("left"), g.in("right"))); })
          .kinks(),
      "left", "right");

  unary_cases(
      ops.def("clamp")
          .python("Clamp")
          .arguments({"input", "min_val", "max_val"})
          .alias({"clip"})
          .doc("x limited to the interval from min_val to max_val (none: no limit; max_val where "
               "they cross), numbers or tensors that broadcast; the gradient on a limit is 1, a "
               "tensor that limits gets what x does not.")
          .formula("\\min(\\max(x, min\\_val), max\\_val)")
          .input("input", kNumeric)
          .input("min_val", kNum | infer::kNoneKind, HostValue())
          .input("max_val", kNum | infer::kNoneKind, HostValue())
          .output("output", same_as("input"))
          .rule([](RuleBuilder& r) {
            r.same_kind(r.out(), r.in("input"));
            r.broadcast(r.out(), {r.in("input"), r.in("min_val"), r.in("max_val")});
            for (const char* name : {"min_val", "max_val"}) {
              r.custom({r.in("input"), r.in(name)}, limits_its_kind);
            }
          })
          .pointwise([](tile::Builder& t, const PointwiseCall& c) {
            Reg x = c.in[0];
            // Of operands those that are numbers may be left out.
            const auto tensor = [&](const char* name, size_t at) {
              const bool has = c.attrs.find(name) == nullptr && at > 0 && at < c.in.size();
              return has ? t.cast(c.in[at], c.in[0].dtype()) : Reg();
            };
            const auto number = [&](const char* name) {
              const HostValue* limit = c.attrs.find(name);
              if (limit == nullptr || limit->is_none()) return Reg();
              return literal(t, c.in[0].dtype(), *limit);
            };
            if (const Reg low = tensor("min_val", 1); low.valid()) {
              x = t.max(x, low);
            } else if (const Reg least = number("min_val"); least.valid()) {
              x = t.at_least(x, least);
            }
            if (const Reg high = tensor("max_val", c.in.size() - 1); high.valid()) {
              x = t.min(x, high);
            } else if (const Reg most = number("max_val"); most.valid()) {
              x = t.at_most(x, most);
            }
            return x;
          })
          .gradient(clamp_gradient)
          .kink(-1.0, 1.0)
          .kink(1.0, 1.0)
          .points({-1.0, 1.0, -0.0, 0.0})
          .with(at({{"input", {2, 3}}}, {{"min_val", -1.0}, {"max_val", 1.0}}))
          .with(at({{"input", {4}}}, {{"min_val", -1.0}}))
          .with(at({{"input", {4}}}, {{"max_val", 1.0}}))
          .with(at({{"input", {2, 9}}, {"min_val", {9}}, {"max_val", {2, 1}}}))
          .with(at({{"input", {9}}, {"max_val", {}}}, {{"min_val", -0.5}})));
}

void define_comparison(OpFamily& ops, const char* name, const char* python, const char* doc,
                       const char* formula, infer::FoldFn fold, ir::HostFn host,
                       Reg (tile::Builder::*compare)(Reg, Reg), bool symmetric) {
  OpDefBuilder block = ops.def(name);
  block.python(python)
      .doc(doc)
      .formula(formula)
      .input("left", kNum)
      .input("right", kNum)
      .output("output", boolean())
      .promote()
      .rule(arithmetic("left", "right", infer::compare_table, fold))
      .host(std::move(host))
      .pointwise([compare](tile::Builder& t, Reg x, Reg y) { return (t.*compare)(x, y); })
      .not_differentiable();
  if (symmetric) block.cin({"left", "right"}).commutative();
  binary_cases(block, "left", "right");
}

void define_comparisons(OpFamily& ops) {
  using B = tile::Builder;
  define_comparison(ops, "equal", "Equal", "Whether left equals right; NaN equals nothing.",
                    "left = right", fold<HostOp::kEqual>, host<HostOp::kEqual>, &B::equal, true);
  define_comparison(ops, "not_equal", "NotEqual", "Whether left differs from right.",
                    "left \\ne right", fold<HostOp::kNotEqual>, host<HostOp::kNotEqual>,
                    &B::not_equal, true);
  define_comparison(ops, "less", "Less", "Whether left is smaller than right.", "left < right",
                    fold<HostOp::kLess>, host<HostOp::kLess>, &B::less, false);
  define_comparison(ops, "less_equal", "LessEqual", "Whether left is at most right.",
                    "left \\le right", fold<HostOp::kLessEqual>, host<HostOp::kLessEqual>,
                    &B::less_equal, false);
  define_comparison(ops, "greater", "Greater", "Whether left is larger than right.", "left > right",
                    fold<HostOp::kGreater>, host<HostOp::kGreater>, &B::greater, false);
  define_comparison(ops, "greater_equal", "GreaterEqual", "Whether left is at least right.",
                    "left \\ge right", fold<HostOp::kGreaterEqual>, host<HostOp::kGreaterEqual>,
                    &B::greater_equal, false);
}

void define_logic(OpFamily& ops, const char* name, const char* python, const char* doc,
                  const char* left, const char* right, const ArithTable& (*table)(),
                  infer::FoldFn fold, ir::HostFn host, Reg (tile::Builder::*combine)(Reg, Reg)) {
  const bool shift = table == infer::shift_table;
  OpDefBuilder block = ops.def(name);
  block.python(python)
      .doc(doc)
      .input(left, kIntegralNum)
      .input(right, kIntegralNum)
      .output("output", computed())
      .rule(arithmetic(left, right, table, fold))
      .host(std::move(host))
      .pointwise([combine](tile::Builder& t, Reg x, Reg y) { return (t.*combine)(x, y); })
      .not_differentiable();
  if (shift) {
    block.promote_number().sample(right, 0.0, 5.0);
  } else {
    block.promote().cin({left, right}).commutative();
  }
  binary_cases(block, left, right);
}

void define_logical(OpFamily& ops) {
  using B = tile::Builder;
  define_logic(ops, "logical_and", "LogicalAnd", "Bitwise and of integers, logical and of bools.",
               "left", "right", infer::bitwise_table, fold<HostOp::kAnd>, host<HostOp::kAnd>,
               &B::bit_and);
  define_logic(ops, "logical_or", "LogicalOr", "Bitwise or of integers, logical or of bools.",
               "left", "right", infer::bitwise_table, fold<HostOp::kOr>, host<HostOp::kOr>,
               &B::bit_or);
  define_logic(ops, "logical_xor", "LogicalXOr",
               "Bitwise exclusive or of integers, inequality of bools.", "left", "right",
               infer::bitwise_table, fold<HostOp::kXor>, host<HostOp::kXor>, &B::bit_xor);
  define_logic(ops, "shift_left", "ShiftLeft",
               "Bits moved left; a count of the width or more, or a negative one, gives 0.",
               "input", "shift", infer::shift_table, fold<HostOp::kShiftLeft>,
               host<HostOp::kShiftLeft>, &B::shift_left);
  define_logic(ops, "shift_right", "ShiftRight",
               "Bits moved right, keeping the sign; a count of the width or more gives the sign.",
               "input", "shift", infer::shift_table, fold<HostOp::kShiftRight>,
               host<HostOp::kShiftRight>, &B::shift_right);

  unary_cases(ops.def("logical_not")
                  .python("LogicalNot")
                  .doc("Logical not of bools, all bits inverted of integers.")
                  .input("input", kIntegral)
                  .output("output", same_as("input"))
                  .pointwise([](tile::Builder& t, Reg x) { return t.bit_not(x); })
                  .not_differentiable());

  ops.def("where")
      .python("Where")
      .doc("input1 where the condition holds, else input2; the branch not taken gets gradient 0.")
      .input("cond", kTensorBool)
      .input("input1", kTensor)
      .input("input2", kTensor)
      .output("output", computed())
      .promote({"input1", "input2"})
      .cin({"input1"})
      .pointwise([](tile::Builder& t, Reg c, Reg x, Reg y) { return t.select(c, x, y); })
      .moves()
      .gradient([](GradBuilder& g) {
        if (g.wants("input1")) g.d("input1") = where(g.in("cond"), g.dout(), 0.0);
        if (g.wants("input2")) g.d("input2") = where(g.in("cond"), 0.0, g.dout());
      })
      .kinks()
      .with(at({{"cond", {2, 3}}, {"input1", {2, 3}}, {"input2", {2, 3}}}))
      .with(at({{"cond", {3, 1}}, {"input1", {4}}, {"input2", {}}}))
      .with(at({{"cond", {0, 3}}, {"input1", {3}}, {"input2", {1, 1}}}))
      .rejects(at({{"cond", {2, 3}}, {"input1", {4}}, {"input2", {}}}), "must broadcast");

  unary_cases(ops.def("isnan")
                  .python("IsNan")
                  .alias({"is_nan"})
                  .doc("Whether an element is not a number.")
                  .input("input", kTensor)
                  .output("output", boolean())
                  .promote_float()
                  .pointwise([](tile::Builder& t, Reg x) { return t.isnan(x); })
                  .not_differentiable());
}

// --- functions of one operand --------------------------------------------------------------

OpDefBuilder& numeric(OpDefBuilder& block) {
  return unary_cases(block.input("input", kNumeric).output("output", same_as("input")));
}

void define_signs(OpFamily& ops) {
  numeric(ops.def("negate").python("Negate").doc("The negative of each element.").formula("-x"))
      .pointwise([](tile::Builder&, Reg x) { return -x; })
      .gradient([](GradBuilder& g) { g.d("input") = -g.dout(); });

  numeric(ops.def("abs")
              .python("Absolute")
              .alias({"absolute"})
              .doc("Absolute value; the gradient at 0 is 0.")
              .formula("|x|"))
      .pointwise([](tile::Builder& t, Reg x) { return t.abs(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * sign(g.in("input")); })
      .kink(0.0, 0.0)
      .points({0.0, -0.0});

  numeric(ops.def("sign").python("Sign").doc("-1, 0 or 1 by the sign of each element; gradient 0."))
      .pointwise([](tile::Builder& t, Reg x) { return t.sign(x); })
      .not_differentiable()
      .points({0.0, -0.0});

  unary_cases(ops.def("stop_gradient")
                  .python("StopGradient")
                  .doc("The operand, through which no gradient flows.")
                  .input("input", kTensor)
                  .output("output", same_as("input")))
      .pointwise([](tile::Builder&, Reg x) { return x; })
      .trait(Trait::kForward)
      .not_differentiable();
}

void define_powers_and_logarithms(OpFamily& ops) {
  floating(ops.def("square").python("Square").doc("Each element times itself.").formula("x^2"))
      .pointwise([](tile::Builder&, Reg x) { return x * x; })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * g.in("input") * 2.0; });

  floating(ops.def("exp").python("Exponential").doc("e to the power of x.").formula("e^x"))
      .precision(Precision::kWide)
      .pointwise([](tile::Builder& t, Reg x) { return t.exp(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * g.out(); })
      .points({0.0, -0.0});

  floating(
      ops.def("expm1").python("Expm1").doc("exp(x) - 1, accurate near zero.").formula("e^x - 1"))
      .precision(Precision::kWide)
      .pointwise([](tile::Builder& t, Reg x) { return t.expm1(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * exp(g.in("input")); })
      .points({0.0, -0.0});

  floating(ops.def("log")
               .python("Log")
               .doc("Natural logarithm; of 0 -inf, of negative numbers NaN.")
               .formula("\\ln x"))
      .precision(Precision::kWide)
      .pointwise([](tile::Builder& t, Reg x) { return t.log(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() / g.in("input"); })
      .sample("input", 0.1, 10.0);

  floating(ops.def("log1p")
               .python("Log1p")
               .doc("Natural logarithm of 1 + x, accurate near zero.")
               .formula("\\ln(1 + x)"))
      .precision(Precision::kWide)
      .pointwise([](tile::Builder& t, Reg x) { return t.log1p(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() / (g.in("input") + 1.0); })
      .sample("input", -0.9, 10.0)
      .points({0.0, -0.0});

  floating(ops.def("sqrt")
               .python("Sqrt")
               .doc("Square root; of negative numbers NaN; the gradient at 0 is inf.")
               .formula("\\sqrt{x}"))
      .pointwise([](tile::Builder& t, Reg x) { return t.sqrt(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() / (g.out() * 2.0); })
      .kink(0.0, std::numeric_limits<double>::infinity())
      .sample("input", 0.1, 9.0)
      .points({0.0});

  floating(
      ops.def("rsqrt").python("Rsqrt").doc("One over the square root.").formula("1 / \\sqrt{x}"))
      .precision(Precision::kWide)
      .pointwise([](tile::Builder& t, Reg x) { return t.rsqrt(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * g.out() / g.in("input") * -0.5; })
      .sample("input", 0.1, 9.0);
}

void define_special_functions(OpFamily& ops) {
  floating(ops.def("sin").python("Sine").doc("Sine of an angle in radians.").formula("\\sin x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.sin(x); })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout() * cos(g.in("input")); })
      .sample("input", -7.0, 7.0);

  floating(ops.def("cos").python("Cosine").doc("Cosine of an angle in radians.").formula("\\cos x"))
      .pointwise([](tile::Builder& t, Reg x) { return t.cos(x); })
      .gradient([](GradBuilder& g) { g.d("input") = -(g.dout() * sin(g.in("input"))); })
      .sample("input", -7.0, 7.0);

  floating(ops.def("erf")
               .python("Erf")
               .doc("The error function of Gauss.")
               .formula("\\frac{2}{\\sqrt\\pi} \\int_0^x e^{-t^2} dt"))
      .pointwise([](tile::Builder& t, Reg x) { return t.erf(x); })
      .gradient([](GradBuilder& g) {
        constexpr double kTwoOverRootPi = 1.1283791670955125739;
        g.d("input") = g.dout() * exp(-square(g.in("input"))) * kTwoOverRootPi;
      });
}

void define_conversions(OpFamily& ops) {
  unary_cases(ops.def("floor")
                  .python("Floor")
                  .doc("The largest integer at or below each element, in the default integer type.")
                  .formula("\\lfloor x \\rfloor")
                  .input("input", kTensor)
                  .output("output", default_int())
                  .promote_float()
                  .pointwise([](tile::Builder& t, const PointwiseCall& c) {
                    return t.cast(t.floor(c.in[0]), c.result);
                  })
                  .not_differentiable());

  unary_cases(
      ops.def("cast")
          .python("Cast")
          .alias({"astype"})
          .doc("The elements in another type; float to integer truncates and saturates.")
          .input("input", kTensor)
          .key("dtype")
          .output("output", dtype_attr("dtype", ResultType::kCompute))
          .pointwise(
              [](tile::Builder& t, const PointwiseCall& c) { return t.cast(c.in[0], c.result); })
          .gradient([](GradBuilder& g) { g.d("input") = cast(g.dout(), g.in("input").dtype()); }),
      {{"dtype", HostValue(DType::kFloat64)}});
}

}  // namespace

void define_elementwise(OpFamily& ops) {
  define_sums_and_products(ops);
  define_quotients(ops);
  define_power(ops);
  define_extrema(ops);
  define_comparisons(ops);
  define_logical(ops);
  define_signs(ops);
  define_powers_and_logarithms(ops);
  define_special_functions(ops);
  define_conversions(ops);
}

}  // namespace mithril::ops

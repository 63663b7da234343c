// Integer arithmetic on unknowns: definitions, equality, + − × //.
#include "core/checked.h"
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

Outcome run_definition(Store& s, const Propagator& p) {
  const uint32_t dim = s.arg(p, 0);
  const Dim expression = Dim::expression(static_cast<uint32_t>(p.data));
  const bool ok = s.define(dim, expression) && s.narrow_bounds(dim, s.bounds_of(expression));
  return ok ? Outcome::kWait : Outcome::kConflict;
}

Outcome run_equal(Store& s, const Propagator& p) {
  const uint32_t a = s.arg(p, 0), b = s.arg(p, 1);
  const auto ea = s.expression(a), eb = s.expression(b);
  if (ea == eb) return Outcome::kDone;
  return s.define(a, *eb) ? Outcome::kWait : Outcome::kConflict;
}

std::optional<int64_t> compute(int64_t x, int64_t y, IntOp op) {
  int64_t z = 0;
  switch (op) {
    case IntOp::kAdd: return __builtin_add_overflow(x, y, &z) ? std::nullopt : std::optional(z);
    case IntOp::kSub: return __builtin_sub_overflow(x, y, &z) ? std::nullopt : std::optional(z);
    case IntOp::kMul: return __builtin_mul_overflow(x, y, &z) ? std::nullopt : std::optional(z);
    case IntOp::kFloorDiv:
      if (y == 0 || (y == -1 && x == INT64_MIN)) return std::nullopt;
      return core::floor_quotient(x, y);
  }
  return std::nullopt;
}

constexpr const char* kSigns[] = {"+", "-", "*", "//"};

Outcome run_arithmetic(Store& s, const Propagator& p) {
  const auto op = static_cast<IntOp>(p.data);
  const uint32_t z = s.arg(p, 0), x = s.arg(p, 1), y = s.arg(p, 2);
  const auto fail = [&] {
    return s.conflict(core::Code::kShapeConflict, "sizes are in conflict, got {} {} {} for {}",
                      s.print_dim(x), kSigns[p.data], s.print_dim(y), s.print_dim(z));
  };
  const auto vx = s.size(x), vy = s.size(y);
  if (vx && vy) {
    const auto value = compute(*vx, *vy, op);
    if (!value) {
      return s.conflict(core::Code::kOverflow, "no value for {} {} {}", *vx, kSigns[p.data], *vy);
    }
    return s.assign(z, *value) && !s.failed() ? Outcome::kDone : fail();
  }
  const auto ex = s.expression(x), ey = s.expression(y);
  DimTable& t = s.table();
  if (!ex || !ey) {
    // Forward, one operand unknown: the inverse where it is unique.
    const auto ez = s.expression(z);
    if (!ez) return Outcome::kWait;
    if (op == IntOp::kAdd && ex) return s.define(y, t.sub(*ez, *ex)) ? Outcome::kDone : fail();
    if (op == IntOp::kAdd && ey) return s.define(x, t.sub(*ez, *ey)) ? Outcome::kDone : fail();
    if (op == IntOp::kSub && ey) return s.define(x, t.add(*ez, *ey)) ? Outcome::kDone : fail();
    if (op == IntOp::kSub && ex) return s.define(y, t.sub(*ex, *ez)) ? Outcome::kDone : fail();
    if (op == IntOp::kMul) {
      const auto quotient = t.divide_exact(*ez, ex ? *ex : ey ? *ey : Dim(0));
      if (quotient) return s.define(ex ? y : x, *quotient) ? Outcome::kDone : fail();
      const auto whole = t.constant_of(*ez), part = t.constant_of(ex ? *ex : ey ? *ey : Dim(0));
      if (whole && part && *part > 0 && *whole % *part != 0) return fail();
    }
    return Outcome::kWait;
  }
  Dim value;
  switch (op) {
    case IntOp::kAdd: value = t.add(*ex, *ey); break;
    case IntOp::kSub: value = t.sub(*ex, *ey); break;
    case IntOp::kMul: value = t.mul(*ex, *ey); break;
    case IntOp::kFloorDiv: value = t.floor_div(*ex, *ey); break;
  }
  if (!s.define(z, value) || !s.narrow_bounds(z, s.bounds_of(value)) || s.failed()) return fail();
  return s.forward() ? Outcome::kDone : Outcome::kWait;
}

}  // namespace

void post_definition(Store& s, uint32_t dim, Dim expression) {
  if (!s.define(dim, expression) || s.forward() || expression.known()) return;
  SmallVector<uint32_t, 8> args;
  args.push_back(dim);
  for (const Dim symbol : s.table().symbols_of(expression)) args.push_back(s.symbol_dim(symbol));
  const uint32_t rule = s.running() == kNone ? kNone : s.rule_of(s.running());
  s.post(rule, run_definition, args, true, expression.id());
}

void post_equal(Store& s, uint32_t a, uint32_t b) {
  const uint32_t rule = s.running() == kNone ? kNone : s.rule_of(s.running());
  SmallVector<uint32_t, 8> args = {a, b};
  for (const uint32_t d : {a, b}) {
    for (const Dim symbol : s.table().symbols_of(*s.expression(d))) {
      args.push_back(s.symbol_dim(symbol));
    }
  }
  s.post(rule, run_equal, args, true);
}

void post_arithmetic(Store& s, uint32_t rule, uint32_t out, uint32_t left, uint32_t right,
                     IntOp op) {
  s.post(rule, run_arithmetic, {out, left, right}, true, static_cast<int64_t>(op));
}

}  // namespace mithril::infer

#include "ops/host_arithmetic.h"

#include <cmath>
#include <limits>

namespace mithril::ops {

using core::Code;
using core::Error;
using core::ErrorKind;
using core::HostValue;
using core::Result;
using infer::Dim;

namespace {

Error too_large() {
  return core::fail(ErrorKind::kOverflow, Code::kOverflow, "the result does not fit 64 bits");
}
Error by_zero() { return core::fail(ErrorKind::kValue, Code::kValueArgument, "division by zero"); }
Error not_a_number(const HostValue& value) {
  return core::fail(ErrorKind::kDType, Code::kDTypeOperand, "expected a number, got {}",
                    core::to_string(value));
}
Error unknown_size() {
  return core::fail(ErrorKind::kShape, Code::kShapeUnknown, "the value depends on a size");
}

bool is_whole(const HostValue& value) { return value.is_bool() || value.is_int(); }
int64_t whole(const HostValue& value) {
  return value.is_bool() ? static_cast<int64_t>(value.as_bool()) : value.as_int();
}

Dim as_dim(const HostValue& value, infer::DimTable& dims) {
  if (value.is_symbolic()) return Dim::expression(value.as_symbolic().expr);
  return dims.constant(whole(value));
}

HostValue from_dim(Dim dim, const infer::DimTable& dims) {
  const auto number = dims.constant_of(dim);
  return number ? HostValue(*number) : HostValue(core::SymbolicInt{dim.id()});
}

Result<HostValue> on_sizes(HostOp op, const HostValue& left, const HostValue& right,
                           infer::DimTable* dims) {
  const bool integers =
      (left.is_symbolic() || is_whole(left)) && (right.is_symbolic() || is_whole(right));
  if (dims == nullptr || !integers) return unknown_size();
  const Dim a = as_dim(left, *dims);
  const Dim b = as_dim(right, *dims);
  switch (op) {
    case HostOp::kAdd: return from_dim(dims->add(a, b), *dims);
    case HostOp::kSubtract: return from_dim(dims->sub(a, b), *dims);
    case HostOp::kMultiply: return from_dim(dims->mul(a, b), *dims);
    case HostOp::kFloorDivide:
      if (dims->constant_of(b) == 0) return by_zero();
      return from_dim(dims->floor_div(a, b), *dims);
    case HostOp::kMod:
      if (dims->constant_of(b) == 0) return by_zero();
      return from_dim(dims->sub(a, dims->mul(b, dims->floor_div(a, b))), *dims);
    default: return unknown_size();
  }
}

Result<HostValue> floor_divide(int64_t a, int64_t b) {
  if (b == 0) return by_zero();
  if (b == -1 && a == std::numeric_limits<int64_t>::min()) return too_large();
  const int64_t q = a / b;
  return HostValue(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
}

Result<HostValue> power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return by_zero();
    return HostValue(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t square = base; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, square, &result)) return too_large();
    if (exponent > 1 && __builtin_mul_overflow(square, square, &square)) return too_large();
  }
  return HostValue(result);
}

Result<HostValue> shift_left(int64_t a, int64_t by) {
  if (by < 0) return core::fail(ErrorKind::kValue, Code::kValueArgument, "negative shift count");
  if (a == 0) return HostValue(int64_t{0});
  if (by > 62) return too_large();
  int64_t result = 0;
  if (__builtin_mul_overflow(a, int64_t{1} << by, &result)) return too_large();
  return HostValue(result);
}

Result<HostValue> shift_right(int64_t a, int64_t by) {
  if (by < 0) return core::fail(ErrorKind::kValue, Code::kValueArgument, "negative shift count");
  return HostValue(a >> std::min<int64_t>(by, 63));
}

Result<HostValue> on_integers(HostOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case HostOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return too_large();
      return HostValue(result);
    case HostOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return too_large();
      return HostValue(result);
    case HostOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return too_large();
      return HostValue(result);
    case HostOp::kDivide:
      if (b == 0) return by_zero();
      return HostValue(static_cast<double>(a) / static_cast<double>(b));
    case HostOp::kFloorDivide: return floor_divide(a, b);
    case HostOp::kMod: {
      if (b == 0) return by_zero();
      if (b == -1) return HostValue(int64_t{0});
      const int64_t r = a % b;
      return HostValue(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    case HostOp::kPower: return power(a, b);
    case HostOp::kEqual: return HostValue(a == b);
    case HostOp::kNotEqual: return HostValue(a != b);
    case HostOp::kLess: return HostValue(a < b);
    case HostOp::kLessEqual: return HostValue(a <= b);
    case HostOp::kGreater: return HostValue(a > b);
    case HostOp::kGreaterEqual: return HostValue(a >= b);
    case HostOp::kAnd: return HostValue(a & b);
    case HostOp::kOr: return HostValue(a | b);
    case HostOp::kXor: return HostValue(a ^ b);
    case HostOp::kShiftLeft: return shift_left(a, b);
    case HostOp::kShiftRight: return shift_right(a, b);
  }
  return unknown_size();
}

// Python's float remainder: the sign of the divisor.
double modulo(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0.0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double floor_quotient(double a, double b) {
  const double quotient = (a - modulo(a, b)) / b;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1.0 : down;
}

Result<HostValue> on_floats(HostOp op, double a, double b) {
  switch (op) {
    case HostOp::kAdd: return HostValue(a + b);
    case HostOp::kSubtract: return HostValue(a - b);
    case HostOp::kMultiply: return HostValue(a * b);
    case HostOp::kDivide:
      if (b == 0.0) return by_zero();
      return HostValue(a / b);
    case HostOp::kFloorDivide:
      if (b == 0.0) return by_zero();
      return HostValue(floor_quotient(a, b));
    case HostOp::kMod:
      if (b == 0.0) return by_zero();
      return HostValue(modulo(a, b));
    case HostOp::kPower:
      if (a == 0.0 && b < 0.0) return by_zero();
      if (a < 0.0 && b != std::floor(b)) {
        return core::fail(ErrorKind::kValue, Code::kValueArgument,
                          "a negative number to a fractional power is not real");
      }
      return HostValue(std::pow(a, b));
    case HostOp::kEqual: return HostValue(a == b);
    case HostOp::kNotEqual: return HostValue(a != b);
    case HostOp::kLess: return HostValue(a < b);
    case HostOp::kLessEqual: return HostValue(a <= b);
    case HostOp::kGreater: return HostValue(a > b);
    case HostOp::kGreaterEqual: return HostValue(a >= b);
    default:
      return core::fail(ErrorKind::kDType, Code::kDTypeOperand,
                        "bitwise operations take integers, got a float");
  }
}

}  // namespace

Result<HostValue> host_arithmetic(HostOp op, const HostValue& left, const HostValue& right,
                                  infer::DimTable* dims) {
  if (left.is_symbolic() || right.is_symbolic()) return on_sizes(op, left, right, dims);
  for (const HostValue* value : {&left, &right}) {
    if (!is_whole(*value) && !value->is_double()) return not_a_number(*value);
  }
  if (!is_whole(left) || !is_whole(right)) {
    return on_floats(op, left.as_number(), right.as_number());
  }
  const bool bitwise = op == HostOp::kAnd || op == HostOp::kOr || op == HostOp::kXor;
  if (bitwise && left.is_bool() && right.is_bool()) {
    MITHRIL_ASSIGN(const HostValue bits, on_integers(op, whole(left), whole(right)));
    return HostValue(bits.as_int() != 0);
  }
  return on_integers(op, whole(left), whole(right));
}

}  // namespace mithril::ops

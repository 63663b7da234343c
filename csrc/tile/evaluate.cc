// The table of meanings as code. Nothing here is fast or clever, and nothing is shared with the
// interpreter but tile/math.h (on scalars), the extern lanes and the conversions of halves.
#include "tile/evaluate.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tile/convert.h"
#include "tile/extern_lane.h"
#include "tile/scalar_lane.h"
#include "tile/threefry.h"

namespace mithril::tile {
namespace {

using core::DType;

/// Calls `f` with a zero of the type that elements of `dtype` compute in.
template <class F>
auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool: return f(bool{});
    case DType::kUInt8: return f(uint8_t{});
    case DType::kInt8: return f(int8_t{});
    case DType::kInt16: return f(int16_t{});
    case DType::kInt32: return f(int32_t{});
    case DType::kInt64: return f(int64_t{});
    case DType::kFloat64: return f(double{});
    default: return f(float{});
  }
}

template <class T>
T decode(DType dtype, uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::kFloat16) return half_to_float(static_cast<uint16_t>(bits));
    if (dtype == DType::kBFloat16) return bfloat_to_float(static_cast<uint16_t>(bits));
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits);
  }
}

template <class T>
uint64_t encode(DType dtype, T value) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::kFloat16) return float_to_half(value);
    if (dtype == DType::kBFloat16) return float_to_bfloat(value);
    return std::bit_cast<uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? 1 : 0;
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

template <class T>
T total_max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a > b ? a : b;
}

template <class T>
T total_min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

// ---- integers and bool

template <class T>
T wrap(uint64_t value) {
  return static_cast<T>(value);
}

template <class T>
T floor_quotient(T a, T b) {
  if (b == 0) return 0;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return wrap<T>(0 - static_cast<uint64_t>(a));
  const T q = static_cast<T>(a / b);
  return static_cast<T>(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
}

template <class T>
T floor_remainder(T a, T b) {
  if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
  const T r = static_cast<T>(a % b);
  return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}

template <class T>
T shift(Opcode opcode, T a, T count) {
  constexpr int width = static_cast<int>(sizeof(T) * 8);
  const bool out = count < 0 || static_cast<int64_t>(count) >= width;
  using U = std::make_unsigned_t<T>;
  if (opcode == Opcode::kShiftLeft) return out ? 0 : wrap<T>(static_cast<uint64_t>(a) << count);
  if (opcode == Opcode::kShiftRightLogical)
    return out ? 0 : static_cast<T>(static_cast<U>(a) >> count);
  return out ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> count);
}

// One product after the other, of at most `width` bits of the exponent.
template <class T>
T integer_power(T base, T exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    const bool turns = std::is_signed_v<T> && base == static_cast<T>(-1);
    return static_cast<T>(!turns ? 0 : exponent % 2 != 0 ? -1 : 1);
  }
  uint64_t power = 1, square = static_cast<uint64_t>(base);
  for (auto left = static_cast<uint64_t>(exponent); left != 0; left /= 2) {
    if (left % 2 == 1) power *= square;
    square *= square;
  }
  return wrap<T>(power);
}

template <class T>
T integer_operation(Opcode opcode, T a, T b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (opcode) {
    case Opcode::kAdd: return wrap<T>(ua + ub);
    case Opcode::kSub: return wrap<T>(ua - ub);
    case Opcode::kMul: return wrap<T>(ua * ub);
    case Opcode::kFloorDiv: return floor_quotient(a, b);
    case Opcode::kMod: return floor_remainder(a, b);
    case Opcode::kIntegerPow: return integer_power(a, b);
    case Opcode::kMin:
    case Opcode::kAtMost: return a < b ? a : b;
    case Opcode::kMax:
    case Opcode::kAtLeast: return a > b ? a : b;
    case Opcode::kNeg: return wrap<T>(0 - ua);
    case Opcode::kAbs: return a < 0 ? wrap<T>(0 - ua) : a;
    case Opcode::kSign: return static_cast<T>(a > 0 ? 1 : a < 0 ? -1 : 0);
    case Opcode::kAnd: return wrap<T>(ua & ub);
    case Opcode::kOr: return wrap<T>(ua | ub);
    case Opcode::kXor: return wrap<T>(ua ^ ub);
    case Opcode::kNot: return wrap<T>(~ua);
    case Opcode::kShiftLeft:
    case Opcode::kShiftRight:
    case Opcode::kShiftRightLogical: return shift(opcode, a, b);
    default: MITHRIL_CHECK(false, "tile: no {} of integers", info(opcode).text);
  }
}

bool bool_operation(Opcode opcode, bool a, bool b) {
  switch (opcode) {
    case Opcode::kAnd: return a && b;
    case Opcode::kOr: return a || b;
    case Opcode::kXor: return a != b;
    case Opcode::kNot: return !a;
    case Opcode::kIntegerPow: return a || !b;
    // One bit wide: shifting by one or more leaves nothing.
    case Opcode::kShiftLeft:
    case Opcode::kShiftRight:
    case Opcode::kShiftRightLogical: return a && !b;
    default: MITHRIL_CHECK(false, "tile: no {} of bool", info(opcode).text);
  }
}

// ---- floats

template <class T>
T scaled(T x, T n) {
  if (n != n) return n;
  const T limit = T{5000};
  const auto exponent = static_cast<int>(std::floor(n > limit ? limit : n < -limit ? -limit : n));
  return std::scalbn(x, exponent);
}

template <class T>
T sign_of(T x) {
  return x > 0 ? T{1} : x < 0 ? T{-1} : x;
}

template <class T>
T power(T x, T y) {
  if constexpr (std::is_same_v<T, double>) return pow_lane(x, y);
  using V = ScalarLane<double>;
  return static_cast<T>(math::pow_f32(V(static_cast<double>(x)), V(static_cast<double>(y))).v);
}

template <class T>
T float_operation(Opcode opcode, T a, T b, T c) {
  using V = ScalarLane<T>;
  switch (opcode) {
    case Opcode::kAdd: return a + b;
    case Opcode::kSub: return a - b;
    case Opcode::kMul: return a * b;
    case Opcode::kDiv: return a / b;
    case Opcode::kFloorDiv: return python_floordiv(a, b);
    case Opcode::kMod: return python_mod(a, b);
    case Opcode::kMin: return total_min(a, b);
    case Opcode::kMax: return total_max(a, b);
    case Opcode::kAtLeast: return b > a ? b : a;
    case Opcode::kAtMost: return b < a ? b : a;
    case Opcode::kNeg: return -a;
    case Opcode::kAbs: return std::fabs(a);
    case Opcode::kSign: return sign_of(a);
    case Opcode::kSqrt: return std::sqrt(a);
    case Opcode::kFma: return std::fma(a, b, c);
    case Opcode::kFms: return std::fma(a, b, -c);
    case Opcode::kFnma: return std::fma(-a, b, c);
    case Opcode::kScale: return scaled(a, b);
    case Opcode::kFloor: return std::floor(a);
    case Opcode::kCeil: return std::ceil(a);
    case Opcode::kRound: return std::nearbyint(a);
    case Opcode::kTrunc: return std::trunc(a);
#define X(opcode, text, arity, family, rule, domain, python, name) \
  case Opcode::opcode: return math::name(V(a)).v;
      MITHRIL_TILE_FORMULAS(X)
#undef X
    case Opcode::kGelu: return math::gelu(V(a)).v;
    case Opcode::kGeluTanh: return math::gelu_tanh(V(a)).v;
    case Opcode::kPow: return power(a, b);
    case Opcode::kPowLane: return static_cast<T>(pow_lane(a, b));
    case Opcode::kGeluFar: return math::gelu_far(V(a), V(b)).v;
    case Opcode::kGeluTanhFar: return math::gelu_tanh_far(V(a), V(b)).v;
    case Opcode::kTrigTurns: return reduce_turns(a).n;
    case Opcode::kTrigRest: return reduce_turns(a).r;
    case Opcode::kTrigRestLow: return reduce_turns(a).low;
    default: MITHRIL_CHECK(false, "tile: no {} of floats", info(opcode).text);
  }
}

template <class T>
bool comparison(Opcode opcode, T a, T b) {
  switch (opcode) {
    case Opcode::kEqual: return a == b;
    case Opcode::kNotEqual: return a != b;
    case Opcode::kLess: return a < b;
    case Opcode::kLessEqual: return a <= b;
    case Opcode::kGreater: return a > b;
    case Opcode::kGreaterEqual: return a >= b;
    default: return a != a;  // isnan
  }
}

template <class T>
uint64_t cast_from(T value, DType to) {
  if constexpr (std::is_floating_point_v<T>) {
    return bits_of_double(to, value);
  } else {
    return bits_of_int(to, static_cast<int64_t>(value));
  }
}

// ---- programs

using Values = std::vector<uint64_t>;

class Evaluator {
 public:
  Evaluator(const Program& program, int64_t kept, int64_t reduced)
      : program_(program), kept_(kept), reduced_(reduced), registers_(program.code.size()) {}

  std::vector<std::vector<std::byte>> run(const std::vector<std::vector<std::byte>>& inputs,
                                          std::span<const double> scalars) {
    outputs_.resize(program_.outputs.size());
    for (RegId at = 0; at < program_.code.size(); ++at) {
      const Instruction& i = program_.code[at];
      switch (info(i.opcode).family) {
        case Family::kLeaf: registers_[at] = leaf(i, inputs, scalars); break;
        case Family::kStore: store(i); break;
        case Family::kReduce: registers_[at] = reduction(i); break;
        case Family::kScan: registers_[at] = scan(i); break;
        default: registers_[at] = pointwise(i);
      }
    }
    return std::move(outputs_);
  }

 private:
  int64_t count(Level level) const {
    return level == Level::kUniform ? 1 : level == Level::kRow ? kept_ : kept_ * reduced_;
  }
  const Instruction& operand(const Instruction& i, size_t k) const {
    return program_.code[i.operands[k]];
  }
  // Operand k at element `at` of a value of level `level`.
  uint64_t read(const Instruction& i, size_t k, Level level, int64_t at) const {
    const Level own = operand(i, k).level;
    if (own == Level::kUniform) at = 0;
    if (own == Level::kRow && level == Level::kLane) at /= reduced_;
    return registers_[i.operands[k]][static_cast<size_t>(at)];
  }

  Values leaf(const Instruction& i, const std::vector<std::vector<std::byte>>& inputs,
              std::span<const double> scalars) const {
    const int64_t n = count(i.level);
    Values out(static_cast<size_t>(n));
    for (int64_t at = 0; at < n; ++at) {
      uint64_t& value = out[static_cast<size_t>(at)];
      const size_t size = core::size_of(i.dtype);
      switch (i.opcode) {
        case Opcode::kLoad:
          std::memcpy(&value, inputs[i.index].data() + static_cast<size_t>(at) * size, size);
          break;
        case Opcode::kScalar: value = bits_of_double(i.dtype, scalars[i.index]); break;
        case Opcode::kConstant: value = i.bits; break;
        case Opcode::kReducedPosition: value = static_cast<uint64_t>(at % reduced_); break;
        default: value = static_cast<uint64_t>(at);
      }
    }
    return out;
  }

  void store(const Instruction& i) {
    const size_t size = core::size_of(i.dtype);
    const int64_t n = count(i.level);
    std::vector<std::byte>& out = outputs_[i.index];
    out.resize(static_cast<size_t>(n) * size);
    for (int64_t at = 0; at < n; ++at) {
      const uint64_t value = read(i, 0, i.level, at);
      std::memcpy(out.data() + static_cast<size_t>(at) * size, &value, size);
    }
  }

  Values pointwise(const Instruction& i) const {
    const int64_t n = count(i.level);
    Values out(static_cast<size_t>(n));
    for (int64_t at = 0; at < n; ++at) {
      uint64_t operands[3] = {0, 0, 0};
      for (size_t k = 0; k < info(i.opcode).arity; ++k) operands[k] = read(i, k, i.level, at);
      out[static_cast<size_t>(at)] = one(i, operands);
    }
    return out;
  }

  uint64_t one(const Instruction& i, const uint64_t (&x)[3]) const {
    const DType from = operand(i, 0).dtype;
    switch (i.opcode) {
      case Opcode::kSelect: return x[0] != 0 ? x[1] : x[2];
      case Opcode::kBitcast: return i.dtype == DType::kBool ? (x[0] != 0 ? 1 : 0) : x[0];
      case Opcode::kCast:
        return with_type(from,
                         [&]<class T>(T) { return cast_from(decode<T>(from, x[0]), i.dtype); });
      case Opcode::kThreefry: {
        const uint64_t counter = from == operand(i, 2).dtype ? static_cast<uint32_t>(x[2]) : x[2];
        const auto words =
            threefry2x32(static_cast<uint32_t>(x[0]), static_cast<uint32_t>(x[1]),
                         static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32));
        return words[i.index];
      }
      case Opcode::kLookup:
        return std::bit_cast<uint32_t>(
            look_up(static_cast<Table>(i.index), static_cast<uint32_t>(x[0])));
      default: break;
    }
    return with_type(from, [&]<class T>(T) -> uint64_t {
      const T a = decode<T>(from, x[0]), b = decode<T>(from, x[1]), c = decode<T>(from, x[2]);
      if (info(i.opcode).rule == Rule::kCompare) return comparison(i.opcode, a, b) ? 1 : 0;
      if constexpr (std::is_same_v<T, bool>)
        return bool_operation(i.opcode, a, b) ? 1 : 0;
      else if constexpr (std::is_floating_point_v<T>)
        return encode(from, float_operation(i.opcode, a, b, c));
      else
        return encode(from, integer_operation(i.opcode, a, b));
    });
  }

  template <class T>
  static T combine(Opcode opcode, T a, T b) {
    switch (opcode) {
      case Opcode::kReduceMax: return total_max(a, b);
      case Opcode::kReduceMin: return total_min(a, b);
      case Opcode::kReduceAny: return a || b;
      case Opcode::kReduceAll: return a && b;
      default: break;
    }
    const bool sum = opcode == Opcode::kReduceSum;
    if constexpr (std::is_floating_point_v<T>)
      return sum ? a + b : a * b;
    else if constexpr (std::is_same_v<T, bool>)
      return sum ? a || b : a && b;
    else
      return integer_operation(sum ? Opcode::kAdd : Opcode::kMul, a, b);
  }

  template <class T>
  static T identity(Opcode opcode) {
    using L = std::numeric_limits<T>;
    switch (opcode) {
      case Opcode::kReduceMax: return L::has_infinity ? -L::infinity() : L::lowest();
      case Opcode::kReduceMin: return L::has_infinity ? L::infinity() : L::max();
      case Opcode::kReduceProd: return T{1};
      case Opcode::kReduceAll: return T{1};
      default: return T{0};
    }
  }

  // One block by the definition of `order`; x is not empty.
  template <class T>
  static T block(Opcode opcode, Order order, std::span<const T> x) {
    if (order == Order::kRows) {
      T sum = x[0];
      for (size_t r = 1; r < x.size(); ++r) sum = combine(opcode, sum, x[r]);
      return sum;
    }
    T lane[kLanesWidth];
    bool full[kLanesWidth] = {};
    for (size_t r = 0; r < x.size(); ++r) {
      const size_t l = r % kLanesWidth;
      lane[l] = full[l] ? combine(opcode, lane[l], x[r]) : x[r];
      full[l] = true;
    }
    for (size_t s = 8; s > 0; s /= 2) {
      for (size_t l = 0; l < s; ++l) {
        if (full[l + s]) lane[l] = combine(opcode, lane[l], lane[l + s]);
      }
    }
    return lane[0];
  }

  template <class T>
  static T reduce_row(Opcode opcode, Order order, std::span<const T> x) {
    if (x.empty()) return identity<T>(opcode);
    const auto size = static_cast<size_t>(order == Order::kLanes ? kLanesBlock : kRowsBlock);
    std::vector<Partial<T>> blocks;
    for (size_t r = 0; r < x.size(); r += size) {
      blocks.push_back({block(opcode, order, x.subspan(r, std::min(size, x.size() - r))), T{}});
    }
    while (blocks.size() > 1) {
      std::vector<Partial<T>> next;
      for (size_t k = 0; k + 1 < blocks.size(); k += 2) {
        next.push_back(joined(opcode, blocks[k], blocks[k + 1]));
      }
      if (blocks.size() % 2 == 1) next.push_back(blocks.back());
      blocks = std::move(next);
    }
    return settled(blocks[0]);
  }

  // A result of blocks, and what rounding took from it.
  template <class T>
  struct Partial {
    T value, rest;
  };

  template <class T>
  static T settled(const Partial<T>& sum) {
    if constexpr (std::is_floating_point_v<T>) {
      if (sum.rest != 0 && !std::isnan(sum.rest)) return sum.value + sum.rest;
    }
    return sum.value;
  }

  template <class T>
  static Partial<T> joined(Opcode opcode, const Partial<T>& a, const Partial<T>& b) {
    const T value = combine(opcode, T(a.value), T(b.value));
    if constexpr (std::is_floating_point_v<T>) {
      if (opcode == Opcode::kReduceSum) {
        const T taken = value - a.value;
        return {value, (a.rest + b.rest) + ((a.value - (value - taken)) + (b.value - taken))};
      }
    }
    return {value, T{}};
  }

  // The next running sum: of float64 with what rounding took, of float32 in float64.
  template <class T, class Kept>
  static Partial<Kept> added(const Partial<Kept>& sum, const Partial<Kept>& next) {
    if constexpr (std::is_same_v<T, float>) return {sum.value + next.value, Kept{}};
    return joined(Opcode::kReduceSum, sum, next);
  }

  template <class T>
  static int64_t first_extreme(Opcode opcode, std::span<const T> x) {
    size_t best = 0;
    for (size_t r = 0; r < x.size(); ++r) {
      if (x[r] != x[r]) return static_cast<int64_t>(r);
      const bool better = opcode == Opcode::kReduceArgMax ? x[r] > x[best] : x[r] < x[best];
      if (better) best = r;
    }
    return static_cast<int64_t>(best);
  }

  template <class T>
  std::unique_ptr<T[]> row(const Instruction& i, int64_t k) const {
    const DType from = operand(i, 0).dtype;
    auto x = std::make_unique<T[]>(static_cast<size_t>(reduced_));
    for (int64_t r = 0; r < reduced_; ++r) {
      x[static_cast<size_t>(r)] = decode<T>(from, read(i, 0, Level::kLane, k * reduced_ + r));
    }
    return x;
  }

  Values reduction(const Instruction& i) const {
    const DType from = operand(i, 0).dtype;
    Values out(static_cast<size_t>(kept_));
    for (int64_t k = 0; k < kept_; ++k) {
      out[static_cast<size_t>(k)] = with_type(from, [&]<class T>(T) -> uint64_t {
        const auto values = row<T>(i, k);
        const std::span<const T> x(values.get(), static_cast<size_t>(reduced_));
        if (info(i.opcode).rule == Rule::kIndex) {
          return static_cast<uint64_t>(first_extreme(i.opcode, x));
        }
        if constexpr (std::is_same_v<T, bool>) {
          bool any = false, all = true;
          for (const bool b : x) any = any || b, all = all && b;
          return (i.opcode == Opcode::kReduceAny ? any : all) ? 1 : 0;
        } else {
          return encode(from, reduce_row(i.opcode, i.order, x));
        }
      });
    }
    return out;
  }

  Values scan(const Instruction& i) const {
    Values out(static_cast<size_t>(kept_ * reduced_));
    for (int64_t k = 0; k < kept_; ++k) {
      with_type(i.dtype, [&]<class T>(T) {
        const auto x = row<T>(i, k);
        using Kept = std::conditional_t<std::is_same_v<T, float>, double, T>;
        Partial<Kept> sum{};
        for (int64_t r = 0; r < reduced_; ++r) {
          const Partial<Kept> next{static_cast<Kept>(x[static_cast<size_t>(r)]), Kept{}};
          sum = r == 0 ? next : added<T>(sum, next);
          const T value = static_cast<T>(std::is_same_v<T, double> ? settled(sum) : sum.value);
          out[static_cast<size_t>(k * reduced_ + r)] = encode(i.dtype, value);
        }
      });
    }
    return out;
  }

  const Program& program_;
  int64_t kept_, reduced_;
  std::vector<Values> registers_;
  std::vector<std::vector<std::byte>> outputs_;
};

}  // namespace

std::vector<std::vector<std::byte>> evaluate(const Program& program, int64_t kept, int64_t reduced,
                                             const std::vector<std::vector<std::byte>>& inputs,
                                             std::span<const double> scalars) {
  return Evaluator(program, kept, reduced).run(inputs, scalars);
}

}  // namespace mithril::tile

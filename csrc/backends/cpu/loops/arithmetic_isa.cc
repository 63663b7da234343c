// Basic instructions as loops that the compiler vectorises: arithmetic, bits, comparisons, select.
// Written without branches and without std:: templates (see cmake/isa.cmake). `out` may be an
// operand itself: each index is read before it is written.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "backends/cpu/loops/isa_parts.h"
#include "tile/extern_lane.h"
#include "tile/threefry.h"

// The loops' iterations never read what another one wrote, though operands may be the same buffer.
#ifdef __clang__
#define MITHRIL_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define MITHRIL_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace mithril::cpu::MITHRIL_ISA {
namespace {

using core::DType;
using tile::Opcode;

template <class T>
struct Unsigned {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Unsigned<float> {
  using type = uint32_t;
};
template <>
struct Unsigned<double> {
  using type = uint64_t;
};
// Wide enough that arithmetic neither promotes to int nor overflows it.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) < 4, uint32_t, typename Unsigned<T>::type>;
template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;

template <class To, class From>
inline To bit_copy(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

// ---- meanings

#define MITHRIL_WRAPPING(Name, op)                                                         \
  struct Name {                                                                            \
    template <class T>                                                                     \
    static T apply(T a, T b) {                                                             \
      if constexpr (kIsFloat<T>)                                                           \
        return a op b;                                                                     \
      else                                                                                 \
        return static_cast<T>(static_cast<Wrapping<T>>(a) op static_cast<Wrapping<T>>(b)); \
    }                                                                                      \
  };
MITHRIL_WRAPPING(Add, +)
MITHRIL_WRAPPING(Sub, -)
MITHRIL_WRAPPING(Mul, *)

struct Div {
  template <class T>
  static T apply(T a, T b) {
    return a / b;
  }
};

struct FloorDiv {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return tile::python_floordiv(a, b);
    } else {
      if (b == 0) return 0;
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::apply(T{0}, a);
      const T q = static_cast<T>(a / b);
      return static_cast<T>(q - (a % b != 0 && (a < 0) != (b < 0)));
    }
  }
};

struct Mod {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      return tile::python_mod(a, b);
    } else {
      if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
      const T r = static_cast<T>(a % b);
      return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
  }
};

struct IntegerPow {
  template <class T>
  static T apply(T base, T exponent) {
    if (exponent < 0) {
      if (base == 1) return 1;
      const bool turns = std::is_signed_v<T> && base == static_cast<T>(-1);
      return static_cast<T>(!turns ? 0 : (exponent & 1) != 0 ? -1 : 1);
    }
    T power = 1;
    for (T square = base; exponent != 0; exponent = static_cast<T>(exponent >> 1)) {
      if ((exponent & 1) != 0) power = Mul::apply(power, square);
      square = Mul::apply(square, square);
    }
    return power;
  }
};

struct BoolPow {
  template <class T>
  static T apply(T base, T exponent) {
    return static_cast<T>(base | (exponent ^ 1));
  }
};

// Equal numbers differ at most in the sign of a zero: `and` gives +0, `or` gives -0.
struct Max {
  template <class T>
  static T apply(T a, T b) {
    T r = a > b ? a : b;
    if constexpr (kIsFloat<T>) {
      using U = typename Unsigned<T>::type;
      const T both = bit_copy<T>(static_cast<U>(bit_copy<U>(a) & bit_copy<U>(b)));
      r = a == b ? both : r;
      r = a != a ? a : r;
    }
    return r;
  }
};

struct Min {
  template <class T>
  static T apply(T a, T b) {
    T r = a < b ? a : b;
    if constexpr (kIsFloat<T>) {
      using U = typename Unsigned<T>::type;
      const T both = bit_copy<T>(static_cast<U>(bit_copy<U>(a) | bit_copy<U>(b)));
      r = a == b ? both : r;
      r = a != a ? a : r;
    }
    return r;
  }
};

struct AtLeast {
  template <class T>
  static T apply(T x, T c) {
    return c > x ? c : x;
  }
};

struct AtMost {
  template <class T>
  static T apply(T x, T c) {
    return c < x ? c : x;
  }
};

struct Neg {
  template <class T>
  static T apply(T a) {
    if constexpr (kIsFloat<T>)
      return -a;
    else
      return Sub::apply(T{0}, a);
  }
};

struct Abs {
  template <class T>
  static T apply(T a) {
    if constexpr (kIsFloat<T>) {
      using U = typename Unsigned<T>::type;
      return bit_copy<T>(static_cast<U>(bit_copy<U>(a) & (~U{0} >> 1)));
    } else {
      return a < 0 ? Sub::apply(T{0}, a) : a;
    }
  }
};

struct Sign {
  template <class T>
  static T apply(T a) {
    return a > 0 ? T(1) : a < 0 ? T(-1) : a;
  }
};

struct Sqrt {
  template <class T>
  static T apply(T a) {
    return std::sqrt(a);
  }
};
struct Floor {
  template <class T>
  static T apply(T a) {
    return std::floor(a);
  }
};
struct Ceil {
  template <class T>
  static T apply(T a) {
    return std::ceil(a);
  }
};
struct Round {
  template <class T>
  static T apply(T a) {
    return std::nearbyint(a);
  }
};
struct Trunc {
  template <class T>
  static T apply(T a) {
    return std::trunc(a);
  }
};

struct TrigTurns {
  template <class T>
  static T apply(T a) {
    return tile::reduce_turns(a).n;
  }
};
struct TrigRest {
  template <class T>
  static T apply(T a) {
    return tile::reduce_turns(a).r;
  }
};
struct TrigRestLow {
  template <class T>
  static T apply(T a) {
    return tile::reduce_turns(a).low;
  }
};
struct PowLane {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(tile::pow_lane(a, b));
  }
};

struct Fma {
  template <class T>
  static T apply(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Fms {
  template <class T>
  static T apply(T a, T b, T c) {
    return std::fma(a, b, -c);
  }
};
struct Fnma {
  template <class T>
  static T apply(T a, T b, T c) {
    return std::fma(-a, b, c);
  }
};

// x 2^floor(n), rounded once. float32: exact in float64. float64: in steps that stay normal, or
// whose result is zero anyway.
struct Scale {
  static float apply(float x, float n) {
    const float limited = AtMost::apply(AtLeast::apply(n, -400.0f), 400.0f);
    const auto k = static_cast<int64_t>(std::floor(n != n ? 0.0f : limited));
    const double factor = bit_copy<double>(static_cast<uint64_t>(k + 1023) << 52);
    const auto y = static_cast<float>(static_cast<double>(x) * factor);
    return n != n ? n : y;
  }
  static double apply(double x, double n) {
    if (n != n) return n;
    const double limited = AtMost::apply(AtLeast::apply(n, -4000.0), 4000.0);
    auto k = static_cast<int64_t>(std::floor(limited));
    for (; k > 1023; k -= 1023) x *= 0x1p1023;
    for (; k < -1022; k += 969) x *= 0x1p-969;
    return x * bit_copy<double>(static_cast<uint64_t>(k + 1023) << 52);
  }
};

struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(~a);
  }
};
struct BoolNot {
  static uint8_t apply(uint8_t a) { return a ^ 1; }
};
struct BoolShift {
  static uint8_t apply(uint8_t a, uint8_t b) { return static_cast<uint8_t>(a & (b ^ 1)); }
};

template <class T>
inline bool is_beyond(T count) {
  return static_cast<Wrapping<T>>(count) >= sizeof(T) * 8;  // negative counts are large
}
struct ShiftLeft {
  template <class T>
  static T apply(T a, T n) {
    const int k = is_beyond(n) ? 0 : static_cast<int>(n);
    const T y = static_cast<T>(static_cast<Wrapping<T>>(a) << k);
    return is_beyond(n) ? T{0} : y;
  }
};
struct ShiftRight {
  template <class T>
  static T apply(T a, T n) {
    const int k = is_beyond(n) ? static_cast<int>(sizeof(T) * 8 - 1) : static_cast<int>(n);
    const T y = static_cast<T>(a >> k);
    return !std::is_signed_v<T> && is_beyond(n) ? T{0} : y;
  }
};
struct ShiftRightLogical {
  template <class T>
  static T apply(T a, T n) {
    const int k = is_beyond(n) ? 0 : static_cast<int>(n);
    const T y = static_cast<T>(static_cast<typename Unsigned<T>::type>(a) >> k);
    return is_beyond(n) ? T{0} : y;
  }
};

#define MITHRIL_COMPARE(Name, op)    \
  struct Name {                      \
    template <class T>               \
    static uint8_t apply(T a, T b) { \
      return a op b;                 \
    }                                \
  };
MITHRIL_COMPARE(Equal, ==)
MITHRIL_COMPARE(NotEqual, !=)
MITHRIL_COMPARE(Less, <)
MITHRIL_COMPARE(LessEqual, <=)
MITHRIL_COMPARE(Greater, >)
MITHRIL_COMPARE(GreaterEqual, >=)
struct IsNan {
  template <class T>
  static uint8_t apply(T a) {
    return a != a;
  }
};

// ---- loops

template <class Op, class T, class R>
void unary(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<R*>(out);
  const auto* x = static_cast<const T*>(a);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) y[i] = Op::apply(x[i]);
}

template <class Op, class T, class R>
void both(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* z = static_cast<R*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) z[i] = Op::apply(x[i], y[i]);
}

template <class Op, class T, class R>
void first_single(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* z = static_cast<R*>(out);
  const T x = *static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) z[i] = Op::apply(x, y[i]);
}

template <class Op, class T, class R>
void second_single(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* z = static_cast<R*>(out);
  const auto* x = static_cast<const T*>(a);
  const T y = *static_cast<const T*>(b);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) z[i] = Op::apply(x[i], y);
}

template <class Op, class T>
void ternary(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* w = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const auto* z = static_cast<const T*>(c);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) w[i] = Op::apply(x[i], y[i], z[i]);
}

template <class T>
void select(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* z = static_cast<T*>(out);
  const auto* m = static_cast<const uint8_t*>(a);
  const auto* x = static_cast<const T*>(b);
  const auto* y = static_cast<const T*>(c);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const T p = x[i], q = y[i];
    z[i] = m[i] != 0 ? p : q;
  }
}

// The keys may vary by element like everything else; usually they are filled blocks.
template <class Counter, int word>
void threefry(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* y = static_cast<uint32_t*>(out);
  const auto* key0 = static_cast<const uint32_t*>(a);
  const auto* key1 = static_cast<const uint32_t*>(b);
  const auto* counter = static_cast<const Counter*>(c);
  MITHRIL_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t block = counter[i];
    const uint32_t k0 = key0[i], k1 = key1[i], k2 = k0 ^ k1 ^ tile::kThreefryParity;
    const uint32_t keys[5] = {k1, k2, k0, k1, k2}, next[5] = {k2, k0, k1, k2, k0};
    uint32_t x0 = static_cast<uint32_t>(block) + k0, x1 = static_cast<uint32_t>(block >> 32) + k1;
#pragma GCC unroll 5
    for (uint32_t group = 0; group < 5; ++group) {
#pragma GCC unroll 4
      for (uint32_t k = 0; k < 4; ++k) {
        const int left = tile::kThreefryRotations[group % 2 * 4 + k];
        x0 += x1;
        x1 = (x1 << left | x1 >> (32 - left)) ^ x0;
      }
      x0 += keys[group];
      x1 += next[group] + group + 1;
    }
    y[i] = word == 0 ? x0 : x1;
  }
}

// ---- tables

template <class Op, class T, class R = T>
LaneFn pick(Shape shape) {
  switch (shape) {
    case Shape::kFirstSingle: return first_single<Op, T, R>;
    case Shape::kSecondSingle: return second_single<Op, T, R>;
    default: return both<Op, T, R>;
  }
}

template <class T>
LaneFn find_number(Opcode opcode, Shape shape) {
  switch (opcode) {
    case Opcode::kAdd: return pick<Add, T>(shape);
    case Opcode::kSub: return pick<Sub, T>(shape);
    case Opcode::kMul: return pick<Mul, T>(shape);
    case Opcode::kFloorDiv: return pick<FloorDiv, T>(shape);
    case Opcode::kMod: return pick<Mod, T>(shape);
    case Opcode::kMin: return pick<Min, T>(shape);
    case Opcode::kMax: return pick<Max, T>(shape);
    case Opcode::kAtLeast: return pick<AtLeast, T>(shape);
    case Opcode::kAtMost: return pick<AtMost, T>(shape);
    case Opcode::kNeg: return unary<Neg, T, T>;
    case Opcode::kAbs: return unary<Abs, T, T>;
    case Opcode::kSign: return unary<Sign, T, T>;
    default: return nullptr;
  }
}

template <class T>
LaneFn find_float(Opcode opcode, Shape shape) {
  switch (opcode) {
    case Opcode::kDiv: return pick<Div, T>(shape);
    case Opcode::kScale: return pick<Scale, T>(shape);
    case Opcode::kPowLane: return pick<PowLane, T>(shape);
    case Opcode::kSqrt: return unary<Sqrt, T, T>;
    case Opcode::kFloor: return unary<Floor, T, T>;
    case Opcode::kCeil: return unary<Ceil, T, T>;
    case Opcode::kRound: return unary<Round, T, T>;
    case Opcode::kTrunc: return unary<Trunc, T, T>;
    case Opcode::kTrigTurns: return unary<TrigTurns, T, T>;
    case Opcode::kTrigRest: return unary<TrigRest, T, T>;
    case Opcode::kTrigRestLow: return unary<TrigRestLow, T, T>;
    case Opcode::kFma: return ternary<Fma, T>;
    case Opcode::kFms: return ternary<Fms, T>;
    case Opcode::kFnma: return ternary<Fnma, T>;
    default: return find_number<T>(opcode, shape);
  }
}

template <class T>
LaneFn find_integer(Opcode opcode, Shape shape) {
  switch (opcode) {
    case Opcode::kIntegerPow: return pick<IntegerPow, T>(shape);
    case Opcode::kAnd: return pick<And, T>(shape);
    case Opcode::kOr: return pick<Or, T>(shape);
    case Opcode::kXor: return pick<Xor, T>(shape);
    case Opcode::kNot: return unary<Not, T, T>;
    case Opcode::kShiftLeft: return pick<ShiftLeft, T>(shape);
    case Opcode::kShiftRight: return pick<ShiftRight, T>(shape);
    case Opcode::kShiftRightLogical: return pick<ShiftRightLogical, T>(shape);
    default: return find_number<T>(opcode, shape);
  }
}

LaneFn find_bool(Opcode opcode, Shape shape) {
  switch (opcode) {
    case Opcode::kAnd: return pick<And, uint8_t>(shape);
    case Opcode::kOr: return pick<Or, uint8_t>(shape);
    case Opcode::kXor: return pick<Xor, uint8_t>(shape);
    case Opcode::kNot: return unary<BoolNot, uint8_t, uint8_t>;
    case Opcode::kIntegerPow: return pick<BoolPow, uint8_t>(shape);
    case Opcode::kShiftLeft:
    case Opcode::kShiftRight:
    case Opcode::kShiftRightLogical: return pick<BoolShift, uint8_t>(shape);
    default: return nullptr;
  }
}

template <class T>
LaneFn find_compare(Opcode opcode, Shape shape) {
  switch (opcode) {
    case Opcode::kEqual: return pick<Equal, T, uint8_t>(shape);
    case Opcode::kNotEqual: return pick<NotEqual, T, uint8_t>(shape);
    case Opcode::kLess: return pick<Less, T, uint8_t>(shape);
    case Opcode::kLessEqual: return pick<LessEqual, T, uint8_t>(shape);
    case Opcode::kGreater: return pick<Greater, T, uint8_t>(shape);
    case Opcode::kGreaterEqual: return pick<GreaterEqual, T, uint8_t>(shape);
    case Opcode::kIsNan: return unary<IsNan, T, uint8_t>;
    default: return nullptr;
  }
}

}  // namespace

LaneFn find_arithmetic(Opcode opcode, DType dtype, Shape shape) {
  switch (dtype) {
    case DType::kBool: return find_bool(opcode, shape);
    case DType::kUInt8: return find_integer<uint8_t>(opcode, shape);
    case DType::kInt8: return find_integer<int8_t>(opcode, shape);
    case DType::kInt16: return find_integer<int16_t>(opcode, shape);
    case DType::kInt32: return find_integer<int32_t>(opcode, shape);
    case DType::kInt64: return find_integer<int64_t>(opcode, shape);
    case DType::kFloat32: return find_float<float>(opcode, shape);
    case DType::kFloat64: return find_float<double>(opcode, shape);
    default: return nullptr;
  }
}

LaneFn find_comparison(Opcode opcode, DType from, Shape shape) {
  switch (from) {
    case DType::kBool:
    case DType::kUInt8: return find_compare<uint8_t>(opcode, shape);
    case DType::kInt8: return find_compare<int8_t>(opcode, shape);
    case DType::kInt16: return find_compare<int16_t>(opcode, shape);
    case DType::kInt32: return find_compare<int32_t>(opcode, shape);
    case DType::kInt64: return find_compare<int64_t>(opcode, shape);
    case DType::kFloat32: return find_compare<float>(opcode, shape);
    case DType::kFloat64: return find_compare<double>(opcode, shape);
    default: return nullptr;
  }
}

LaneFn find_select(DType dtype) {
  switch (core::size_of(dtype)) {
    case 1: return select<uint8_t>;
    case 2: return select<uint16_t>;
    case 4: return select<uint32_t>;
    default: return select<uint64_t>;
  }
}

LaneFn find_threefry(DType counter, uint32_t word) {
  if (counter == DType::kInt64) return word == 0 ? threefry<uint64_t, 0> : threefry<uint64_t, 1>;
  return word == 0 ? threefry<uint32_t, 0> : threefry<uint32_t, 1>;
}

}  // namespace mithril::cpu::MITHRIL_ISA

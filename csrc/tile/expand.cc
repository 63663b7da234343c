#include "tile/expand.h"

#include <array>
#include <bit>
#include <functional>
#include <type_traits>

#include "tile/builder.h"
#include "tile/convert.h"
#include "tile/math.h"

namespace mithril::tile {
namespace {

using core::DType;
using Operands = std::span<const Reg>;
using Rewrite = std::function<Reg(Builder&, const Instruction&, Operands)>;

/// The instruction as it was, over new operands.
Reg keep(Builder& t, const Instruction& i, Operands operands) {
  switch (i.opcode) {
    case Opcode::kConstant: return t.constant_bits(i.dtype, i.bits);
    case Opcode::kScalar: return t.scalar(i.dtype, i.index);
    case Opcode::kPosition: return t.position();
    case Opcode::kRowPosition: return t.row_position();
    case Opcode::kReducedPosition: return t.reduced_position();
    case Opcode::kCast: return t.cast(operands[0], i.dtype);
    case Opcode::kBitcast: return t.bitcast(operands[0], i.dtype);
    case Opcode::kThreefry: return t.threefry(operands[0], operands[1], operands[2], i.index);
    case Opcode::kLookup: return t.lookup(operands[0], static_cast<Table>(i.index));
    default: break;
  }
  if (info(i.opcode).family == Family::kReduce) return t.reduce(i.opcode, operands[0], i.order);
  return t.emit(i.opcode, operands);
}

/// Writes the program again, each instruction but loads and stores by `rewrite`.
Program rebuild(const Program& program, const Rewrite& rewrite) {
  Builder t;
  std::vector<Reg> inputs;
  for (uint32_t k = 0; k < program.inputs.size(); ++k) {
    inputs.push_back(t.load(program.inputs[k], input_level(program, k)));
  }
  std::vector<Reg> map(program.code.size());
  std::vector<const Instruction*> stores(program.outputs.size());
  for (size_t at = 0; at < program.code.size(); ++at) {
    const Instruction& i = program.code[at];
    if (i.opcode == Opcode::kStore) {
      stores[i.index] = &i;
      continue;
    }
    std::array<Reg, 3> operands;
    const size_t arity = info(i.opcode).arity;
    for (size_t k = 0; k < arity; ++k) operands[k] = map[i.operands[k]];
    map[at] = i.opcode == Opcode::kLoad ? inputs[i.index]
                                        : rewrite(t, i, Operands(operands.data(), arity));
  }
  for (const Instruction* i : stores) t.store(map[i->operands[0]], i->level);
  Program out = t.finish();
  out.scalars = program.scalars;
  return out;
}

/// A half in float32; constants at once.
Reg widened(Builder& t, Reg x) { return is_half(x.dtype()) ? t.cast(x, DType::kFloat32) : x; }

Reg widen_one(Builder& t, const Instruction& i, Operands operands) {
  const OpcodeInfo& op = info(i.opcode);
  const bool moves = op.arity == 0 || op.rule == Rule::kSelect || op.rule == Rule::kConvert ||
                     op.rule == Rule::kThreefry;
  if (moves || !is_half(operands[0].dtype())) return keep(t, i, operands);
  std::array<Reg, 3> wide;
  for (size_t k = 0; k < operands.size(); ++k) wide[k] = widened(t, operands[k]);
  Instruction w = i;
  if (op.rule == Rule::kSame) w.dtype = DType::kFloat32;
  return t.cast(keep(t, w, Operands(wide.data(), operands.size())), i.dtype);
}

// ---- symbols: the lane type that writes instructions

template <class T>
constexpr DType kFloatType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
template <class T>
constexpr DType kBitsType = sizeof(T) == 4 ? DType::kInt32 : DType::kInt64;

/// A register, or a constant that has not met a register yet.
struct Symbol {
  Reg reg;
  uint64_t bits = 0;
  bool is_constant() const { return !reg.valid(); }
  Reg in(Builder& t, DType dtype) const {
    return is_constant() ? t.constant_bits(dtype, bits) : reg;
  }
};

template <class... S>
Builder& builder_of(const S&... symbols) {
  Builder* found = nullptr;
  ((found = symbols.is_constant() ? found : &symbols.reg.builder()), ...);
  MITHRIL_CHECK(found != nullptr, "tile expand: an operation on constants only");
  return *found;
}

template <class T_, bool scales, bool extern_far>
struct SymbolicLane {
  using T = T_;
  using Bits = typename math::Format<T>::Bits;
  static constexpr DType kFloat = kFloatType<T>, kInt = kBitsType<T>;

  struct I {
    Symbol s;
    I(Bits b) : s{{}, b} {}
    explicit I(Reg r) : s{r} {}
    static I binary(Opcode opcode, const I& a, const I& b) {
      Builder& t = builder_of(a.s, b.s);
      return I(t.emit(opcode, {a.s.in(t, kInt), b.s.in(t, kInt)}));
    }
    friend I operator+(const I& a, const I& b) { return binary(Opcode::kAdd, a, b); }
    friend I operator-(const I& a, const I& b) { return binary(Opcode::kSub, a, b); }
    friend I operator&(const I& a, const I& b) { return binary(Opcode::kAnd, a, b); }
    friend I operator|(const I& a, const I& b) { return binary(Opcode::kOr, a, b); }
    friend I operator^(const I& a, const I& b) { return binary(Opcode::kXor, a, b); }
  };
  struct M {
    Reg reg;
  };
  using V = SymbolicLane;
  Symbol s;

  SymbolicLane(T x) : s{{}, std::bit_cast<Bits>(x)} {}
  explicit SymbolicLane(Reg r) : s{r} {}

  template <class... Lanes>
  static Reg write(Opcode opcode, const Lanes&... x) {
    Builder& t = builder_of(x.s...);
    return t.emit(opcode, {x.s.in(t, kFloat)...});
  }
  friend V operator+(const V& a, const V& b) { return V(write(Opcode::kAdd, a, b)); }
  friend V operator-(const V& a, const V& b) { return V(write(Opcode::kSub, a, b)); }
  friend V operator*(const V& a, const V& b) { return V(write(Opcode::kMul, a, b)); }
  friend V operator/(const V& a, const V& b) { return V(write(Opcode::kDiv, a, b)); }
  friend M operator<(const V& a, const V& b) { return {write(Opcode::kLess, a, b)}; }
  friend M operator==(const V& a, const V& b) { return {write(Opcode::kEqual, a, b)}; }
  friend V fma(const V& a, const V& b, const V& c) { return V(write(Opcode::kFma, a, b, c)); }
  friend V fms(const V& a, const V& b, const V& c) { return V(write(Opcode::kFms, a, b, c)); }
  friend V fnma(const V& a, const V& b, const V& c) { return V(write(Opcode::kFnma, a, b, c)); }
  friend V sqrt(const V& a) { return V(write(Opcode::kSqrt, a)); }
  friend V at_least(const V& a, const V& c) { return V(write(Opcode::kAtLeast, a, c)); }
  friend V at_most(const V& a, const V& c) { return V(write(Opcode::kAtMost, a, c)); }
  friend V scale(const V& a, const V& n) {
    if constexpr (scales) return V(write(Opcode::kScale, a, n));
    return math::scale<V>(a, n);
  }
  friend V select(const M& m, const V& a, const V& b) {
    Builder& t = m.reg.builder();
    return V(t.select(m.reg, a.s.in(t, kFloat), b.s.in(t, kFloat)));
  }
  friend V negate(const V& a) {
    constexpr Bits sign = math::Format<T>::sign;
    if (a.s.is_constant()) return from_constant(a.s.bits ^ sign);
    return V(write(Opcode::kNeg, a));
  }
  friend V absolute(const V& a) { return V(write(Opcode::kAbs, a)); }
  friend I bits(const V& a) {
    if (a.s.is_constant()) return I(static_cast<Bits>(a.s.bits));
    return I(a.s.reg.builder().bitcast(a.s.reg, kInt));
  }
  static V from_constant(uint64_t bits) { return V(std::bit_cast<T>(static_cast<Bits>(bits))); }
  static V from_bits(const I& i) {
    if (i.s.is_constant()) return from_constant(i.s.bits);
    return V(i.s.reg.builder().bitcast(i.s.reg, kFloat));
  }
  template <int n>
  static I shl(const I& a) {
    return I(shift_left(a.s.reg, n));
  }
  template <int n>
  static I shr(const I& a) {
    return I(shift_right_logical(a.s.reg, n));
  }
  static V lookup(Table table, const I& index) {
    return V(index.s.reg.builder().lookup(index.s.reg, table));
  }
  template <class F>
  friend V otherwise(const M& m, const V& a, F f) {
    return select(m, a, f());
  }
  friend V gelu_far(const V& x, const V& y) {
    if constexpr (extern_far) return V(write(Opcode::kGeluFar, x, y));
    return math::gelu_far<V>(x, y);
  }
  friend V gelu_tanh_far(const V& x, const V& y) {
    if constexpr (extern_far) return V(write(Opcode::kGeluTanhFar, x, y));
    return math::gelu_tanh_far<V>(x, y);
  }
  friend math::Reduced<V> replace_huge(const V& x, const math::Reduced<V>& fast) {
    const M huge = V(math::Limits<T>::trig_hi) < V(write(Opcode::kAbs, x));
    const V n = select(huge, V(write(Opcode::kTrigTurns, x)), fast.n);
    const V r = select(huge, V(write(Opcode::kTrigRest, x)), fast.r);
    const V low = select(huge, V(write(Opcode::kTrigRestLow, x)), fast.low);
    return {n, r, low};
  }
};

template <class V>
V macro(Opcode opcode, const V& x) {
  switch (opcode) {
#define X(opcode, text, arity, family, rule, domain, python, name) \
  case Opcode::opcode: return math::name(x);
    MITHRIL_TILE_FORMULAS(X)
#undef X
    case Opcode::kGelu: return math::gelu(x);
    case Opcode::kGeluTanh: return math::gelu_tanh(x);
    default: MITHRIL_CHECK(false, "tile expand: no formula for {}", info(opcode).text);
  }
}

template <bool scales>
Reg expand_pow(Builder& t, Reg x, Reg y) {
  if (x.dtype() == DType::kFloat64) return t.emit(Opcode::kPowLane, {x, y});
  using V = SymbolicLane<double, scales, false>;
  const V wide = math::pow_f32(V(t.cast(x, DType::kFloat64)), V(t.cast(y, DType::kFloat64)));
  return t.cast(wide.s.reg, DType::kFloat32);
}

template <bool scales, bool extern_far>
Reg expand_macro(Builder& t, const Instruction& i, Operands operands) {
  if (i.opcode == Opcode::kPow) return expand_pow<scales>(t, operands[0], operands[1]);
  if (i.dtype == DType::kFloat64) {
    return macro(i.opcode, SymbolicLane<double, scales, extern_far>(operands[0])).s.reg;
  }
  return macro(i.opcode, SymbolicLane<float, scales, extern_far>(operands[0])).s.reg;
}

Reg expand_one(Builder& t, const Instruction& i, Operands operands, Expansion expansion) {
  if (info(i.opcode).family != Family::kMacro) return keep(t, i, operands);
  const bool trigonometric = i.opcode == Opcode::kSin || i.opcode == Opcode::kCos;
  if (trigonometric && !expansion.trigonometric) return keep(t, i, operands);
  const auto expand_with = [&]<bool far>(std::bool_constant<far>) {
    return expansion.scale ? expand_macro<true, far>(t, i, operands)
                           : expand_macro<false, far>(t, i, operands);
  };
  return expansion.extern_far ? expand_with(std::true_type{}) : expand_with(std::false_type{});
}

}  // namespace

Program widen_halves(const Program& program) { return rebuild(program, widen_one); }

Program expand(const Program& program, Expansion expansion) {
  return rebuild(widen_halves(program),
                 [expansion](Builder& t, const Instruction& i, Operands operands) {
                   return expand_one(t, i, operands, expansion);
                 });
}

}  // namespace mithril::tile

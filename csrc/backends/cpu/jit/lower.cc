#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "backends/cpu/jit/machine.h"
#include "core/status.h"
#include "tile/convert.h"
#include "tile/math_coefficients.h"

namespace mithril::cpu::jit {

using core::DType;
using tile::is_half;
using tile::Opcode;
using Limits = tile::math::Limits<float>;

namespace {

bool is_wide_float(DType t) { return t == DType::kFloat32 || t == DType::kFloat64; }

Form form_of(DType dtype) {
  if (dtype == DType::kBool) return Form::kMask;
  if (is_half(dtype)) return Form::k16;
  return core::size_of(dtype) == 8 ? Form::k64 : Form::k32;
}

Form form_of_size(int size) { return size == 8 ? Form::k64 : size == 2 ? Form::k16 : Form::k32; }
uint8_t size_of(Form form) { return form == Form::k64 ? 8 : form == Form::k16 ? 2 : 4; }

enum Predicate : uint8_t {  // of vcmpps, without signals
  kEq = 0x00,
  kUnordered = 0x03,
  kNe = 0x04,
  kNotGt = 0x1a,
  kOrdered = 0x07,
  kLt = 0x11,
  kLe = 0x12,
  kGe = 0x1d,
  kGt = 0x1e,
};
enum IntPredicate : uint8_t {
  kIntEq = 0,
  kIntLt = 1,
  kIntLe = 2,
  kIntNe = 4,
  kIntGe = 5,
  kIntGt = 6
};

uint64_t float_bits(double x, int size) {
  return size == 8 ? std::bit_cast<uint64_t>(x) : std::bit_cast<uint32_t>(static_cast<float>(x));
}

class Lowering {
 public:
  Lowering(const LaneProgram& program, Isa isa, const IsaTable& table)
      : program_(program), table_(table) {
    out_.wide = isa == Isa::kAvx512;
    out_.lanes = lanes_of(program, isa);
    out_.widest = (out_.wide ? 64 : 32) / out_.lanes;
    out_.reductions.resize(program.reductions.size());
  }

  Machine run() {
    for (const Value& v : program_.values) {
      ids_.push_back(v.source == Source::kComputed ? computed(v) : leaf(v));
      reduce(static_cast<int32_t>(ids_.size()) - 1);
    }
    std::vector<int32_t> stores;
    for (const Output& output : program_.outputs) {
      Op op;
      op.code = Code::kStore;
      op.slot = output.slot;
      op.dtype = program_.values[static_cast<size_t>(output.value)].dtype;
      op.args[0] = ids_[static_cast<size_t>(output.value)];
      if (output.streams) op.imm = kStreamedStore;
      stores.push_back(push(op));
    }
    arrange(stores);
    return std::move(out_);
  }

 private:
  // ---- ops

  int32_t push(const Op& op) {
    out_.ops.push_back(op);
    return static_cast<int32_t>(out_.ops.size()) - 1;
  }
  static bool commutes(Code code) {
    return code == Code::kAddF || code == Code::kMulF || code == Code::kFma || code == Code::kFms ||
           code == Code::kFnma || code == Code::kAnd || code == Code::kOr || code == Code::kXor ||
           code == Code::kAddI || code == Code::kMulI;
  }
  int32_t emit(Code code, Form form, int size, int32_t a, int32_t b = -1, int32_t c = -1,
               uint8_t imm = 0) {
    // The second operand may be in memory.
    const auto is_constant = [&](int32_t x) {
      return out_.ops[static_cast<size_t>(x)].code == Code::kConstant;
    };
    if (commutes(code) && is_constant(a) && !is_constant(b)) std::swap(a, b);
    Op op;
    op.code = code;
    op.form = form;
    op.size = static_cast<uint8_t>(size);
    op.imm = imm;
    op.args = {a, b, c};
    return push(op);
  }
  /// Emits the form of a number of `size` bytes.
  int32_t number(Code code, int size, int32_t a, int32_t b = -1, int32_t c = -1, uint8_t imm = 0) {
    return emit(code, form_of_size(size), size, a, b, c, imm);
  }
  int32_t constant(uint64_t bits, int size) {
    for (size_t k = 0; k < out_.ops.size(); ++k) {
      const Op& op = out_.ops[k];
      if (op.code == Code::kConstant && op.bits == bits && op.size == size) {
        return static_cast<int32_t>(k);
      }
    }
    Op op;
    op.code = Code::kConstant;
    op.form = form_of_size(size);
    op.size = static_cast<uint8_t>(size);
    op.bits = bits;
    return push(op);
  }
  int32_t real(double x, int size) { return constant(float_bits(x, size), size); }
  int32_t integer(int64_t x, int size) {
    return constant(size == 8 ? static_cast<uint64_t>(x) : static_cast<uint32_t>(x), size);
  }

  // ---- masks

  int32_t as_mask(int32_t vector, int size) {
    Op& op = out_.ops[static_cast<size_t>(vector)];
    if (size == out_.widest) {
      op.form = Form::kMask;
      return vector;
    }
    op.form = Form::k32;
    return emit(Code::kI32ToI64, Form::kMask, 8, vector);
  }
  /// The mask for lanes of that size.
  int32_t mask_for(int32_t mask, int size) {
    if (out_.wide) return mask;
    if (size == out_.widest) return mask;
    int32_t narrow = mask;
    if (out_.widest == 8) narrow = emit(Code::kI64ToI32, Form::k32, 4, mask);
    return size == 2 ? emit(Code::kI32ToI16, Form::k16, 2, narrow, -1, -1, kSigned) : narrow;
  }
  int32_t compare_f(uint8_t predicate, int32_t a, int32_t b, int size) {
    const int32_t m = emit(Code::kCompareF, Form::kMask, size, a, b, -1, predicate);
    return out_.wide ? m : as_mask(m, size);
  }
  int32_t logic(Code code, int32_t a, int32_t b) {
    return emit(code, Form::kMask, out_.widest, a, b);
  }
  int32_t negation(int32_t mask) {
    if (!out_.wide) return logic(Code::kXor, mask, integer(-1, out_.widest));
    return emit(Code::kNot, Form::kMask, out_.widest, mask);
  }
  int32_t compare_i(IntPredicate predicate, int32_t a, int32_t b, int size) {
    if (out_.wide) return emit(Code::kCompareI, Form::kMask, size, a, b, -1, predicate);
    const auto plain = [&](Code code, int32_t x, int32_t y) {
      return as_mask(emit(code, Form::kMask, size, x, y), size);
    };
    switch (predicate) {
      case kIntEq: return plain(Code::kEqualI, a, b);
      case kIntNe: return negation(plain(Code::kEqualI, a, b));
      case kIntGt: return plain(Code::kGreaterI, a, b);
      case kIntLt: return plain(Code::kGreaterI, b, a);
      case kIntLe: return negation(plain(Code::kGreaterI, a, b));
      default: return negation(plain(Code::kGreaterI, b, a));
    }
  }
  int32_t blend(int32_t mask, int32_t t, int32_t f, int size) {
    return number(Code::kBlend, size, mask_for(mask, size), t, f);
  }

  // ---- leaves

  int32_t leaf(const Value& v) {
    if (v.source == Source::kConstant) {
      if (v.dtype == DType::kBool) {
        Op op;
        op.code = Code::kConstant;
        op.form = Form::kMask;
        op.size = 0;
        op.bits = v.bits != 0 ? 1 : 0;
        return push(op);
      }
      return constant(extended(v), size_of(form_of(v.dtype)));
    }
    Op op;
    op.code = v.source == Source::kLane  ? Code::kLoad
              : v.source == Source::kRow ? Code::kRow
                                         : Code::kUniform;
    op.form = form_of(v.dtype);
    op.size = size_of(op.form);
    op.dtype = v.dtype;
    op.slot = v.slot;
    const int32_t id = push(op);
    if (v.ahead) prefetch(op);
    return id;
  }
  void prefetch(Op load) {
    load.code = Code::kPrefetch;
    push(load);
  }
  static uint64_t extended(const Value& v) {
    switch (v.dtype) {
      case DType::kInt8: return static_cast<uint32_t>(static_cast<int8_t>(v.bits));
      case DType::kInt16: return static_cast<uint32_t>(static_cast<int16_t>(v.bits));
      case DType::kUInt8: return v.bits & 0xff;
      case DType::kInt64:
      case DType::kFloat64: return v.bits;
      case DType::kFloat16:
      case DType::kBFloat16: return v.bits & 0xffff;
      default: return v.bits & 0xffffffff;
    }
  }

  // ---- numbers

  int32_t normalise(int32_t x, DType dtype) {
    switch (dtype) {
      case DType::kUInt8: return number(Code::kAnd, 4, x, integer(0xff, 4));
      case DType::kInt8: return extend_sign(x, 24);
      case DType::kInt16: return extend_sign(x, 16);
      default: return x;
    }
  }
  int32_t extend_sign(int32_t x, uint8_t by) {
    const int32_t high = number(Code::kShiftLeftBy, 4, x, -1, -1, by);
    return number(Code::kShiftRightBy, 4, high, -1, -1, by);
  }

  // NaN stays, equal numbers differ at most in the sign of a zero.
  int32_t extreme_f(bool largest, int32_t a, int32_t b, int size) {
    const int32_t nan = compare_f(kUnordered, a, b, size);
    if (out_.wide) {
      const uint8_t which = largest ? 0b0101 : 0b0100;  // signs as compared
      const int32_t r = number(Code::kRangeF, size, a, b, -1, which);
      return blend(nan, number(Code::kAddF, size, a, b), r, size);
    }
    const Code code = largest ? Code::kMaxF : Code::kMinF;
    const int32_t one = number(code, size, a, b), other = number(code, size, b, a);
    const int32_t r = number(largest ? Code::kAnd : Code::kOr, size, one, other);
    return number(Code::kOr, size, r, mask_for(nan, size));
  }
  int32_t extreme_i(bool largest, int32_t a, int32_t b, int size) {
    if (out_.wide || size == 4) return number(largest ? Code::kMaxI : Code::kMinI, size, a, b);
    const int32_t greater = compare_i(kIntGt, a, b, size);
    return largest ? blend(greater, a, b, size) : blend(greater, b, a, size);
  }
  int32_t multiply_i(int32_t a, int32_t b, int size) {
    if (size == 4 || out_.wide) return number(Code::kMulI, size, a, b);
    const int32_t high_a = number(Code::kShiftRightLogicalBy, 8, a, -1, -1, 32);
    const int32_t high_b = number(Code::kShiftRightLogicalBy, 8, b, -1, -1, 32);
    const int32_t cross = number(Code::kAddI, 8, number(Code::kMultiplyLow32, 8, high_a, b),
                                 number(Code::kMultiplyLow32, 8, a, high_b));
    const int32_t high = number(Code::kShiftLeftBy, 8, cross, -1, -1, 32);
    return number(Code::kAddI, 8, number(Code::kMultiplyLow32, 8, a, b), high);
  }
  int32_t sign_mask_64(int32_t a) { return number(Code::kGreaterI, 8, integer(0, 8), a); }
  int32_t absolute_i(int32_t a, int size) {
    if (size == 4 || out_.wide) return number(Code::kAbsI, size, a);
    const int32_t s = sign_mask_64(a);
    return number(Code::kSubI, 8, number(Code::kXor, 8, a, s), s);
  }
  int32_t shift_right(int32_t a, int32_t n, int size) {
    if (size == 4 || out_.wide) return number(Code::kShiftRight, size, a, n);
    const int32_t s = sign_mask_64(a);
    const int32_t flipped = number(Code::kXor, 8, a, s);
    return number(Code::kXor, 8, number(Code::kShiftRightLogical, 8, flipped, n), s);
  }
  int32_t shift_right_logical(int32_t a, int32_t n, DType dtype, int size) {
    if (dtype == DType::kInt8) a = number(Code::kAnd, 4, a, integer(0xff, 4));
    if (dtype == DType::kInt16) a = number(Code::kAnd, 4, a, integer(0xffff, 4));
    return normalise(number(Code::kShiftRightLogical, size, a, n), dtype);
  }
  int32_t sign_i(int32_t a, int size) {
    const int32_t low = extreme_i(true, a, integer(-1, size), size);
    return extreme_i(false, low, integer(1, size), size);
  }
  int32_t sign_f(int32_t a, int size) {
    const int32_t zero = real(0, size);
    const int32_t r = blend(compare_f(kGt, a, zero, size), real(1, size), a, size);
    return blend(compare_f(kLt, a, zero, size), real(-1, size), r, size);
  }

  // ---- instructions

  DType type_of(int32_t value) const { return program_.values[static_cast<size_t>(value)].dtype; }

  // Casts and bitcasts may leave a leaf as it is; outputs must not be leaves (see arrange).
  int32_t computed(const Value& v) {
    const int32_t id = compute(v);
    const Op op = out_.ops[static_cast<size_t>(id)];
    return is_leaf(op) ? emit(Code::kCopy, op.form, op.size, id) : id;
  }

  int32_t compute(const Value& v) {
    int32_t x[3] = {-1, -1, -1};
    size_t arity = 0;
    for (; arity < 3 && v.operands[arity] >= 0; ++arity) {
      x[arity] = ids_[static_cast<size_t>(v.operands[arity])];
    }
    const DType from = type_of(v.operands[arity - 1]);
    if (v.opcode == Opcode::kSelect) return select(v.dtype, x);
    if (v.opcode == Opcode::kCast) return cast(x[0], from, v.dtype);
    if (v.opcode == Opcode::kBitcast) return bitcast(x[0], from, v.dtype);
    if (v.opcode == Opcode::kLookup) return lookup(x[0], v.index);
    if (tile::info(v.opcode).rule == tile::Rule::kCompare) return compare(v.opcode, from, x);
    if (v.dtype == DType::kBool) return compute_mask(v.opcode, x);
    return is_wide_float(v.dtype) ? compute_float(v, x) : compute_integer(v, x);
  }

  int32_t select(DType dtype, const int32_t* x) {
    if (dtype != DType::kBool) return blend(x[0], x[1], x[2], size_of(form_of(dtype)));
    return logic(Code::kOr, logic(Code::kAnd, x[0], x[1]), logic(Code::kAndNot, x[0], x[2]));
  }

  int32_t compare(Opcode opcode, DType from, const int32_t* x) {
    if (from == DType::kBool) return compare_masks(opcode, x[0], x[1]);
    const int size = size_of(form_of(from));
    if (is_wide_float(from)) {
      switch (opcode) {
        case Opcode::kIsNan: return compare_f(kUnordered, x[0], x[0], size);
        case Opcode::kEqual: return compare_f(kEq, x[0], x[1], size);
        case Opcode::kNotEqual: return compare_f(kNe, x[0], x[1], size);
        case Opcode::kLess: return compare_f(kLt, x[0], x[1], size);
        case Opcode::kLessEqual: return compare_f(kLe, x[0], x[1], size);
        case Opcode::kGreater: return compare_f(kGt, x[0], x[1], size);
        default: return compare_f(kGe, x[0], x[1], size);
      }
    }
    switch (opcode) {
      case Opcode::kEqual: return compare_i(kIntEq, x[0], x[1], size);
      case Opcode::kNotEqual: return compare_i(kIntNe, x[0], x[1], size);
      case Opcode::kLess: return compare_i(kIntLt, x[0], x[1], size);
      case Opcode::kLessEqual: return compare_i(kIntLe, x[0], x[1], size);
      case Opcode::kGreater: return compare_i(kIntGt, x[0], x[1], size);
      default: return compare_i(kIntGe, x[0], x[1], size);
    }
  }
  int32_t compare_masks(Opcode opcode, int32_t a, int32_t b) {
    switch (opcode) {
      case Opcode::kEqual: return negation(logic(Code::kXor, a, b));
      case Opcode::kNotEqual: return logic(Code::kXor, a, b);
      case Opcode::kLess: return logic(Code::kAndNot, a, b);
      case Opcode::kGreater: return logic(Code::kAndNot, b, a);
      case Opcode::kLessEqual: return logic(Code::kOr, negation(a), b);
      default: return logic(Code::kOr, negation(b), a);
    }
  }

  int32_t compute_mask(Opcode opcode, const int32_t* x) {
    switch (opcode) {
      case Opcode::kAnd: return logic(Code::kAnd, x[0], x[1]);
      case Opcode::kOr: return logic(Code::kOr, x[0], x[1]);
      case Opcode::kXor: return logic(Code::kXor, x[0], x[1]);
      case Opcode::kNot: return negation(x[0]);
      default: return logic(Code::kAndNot, x[1], x[0]);  // shifts
    }
  }

  int32_t compute_float(const Value& v, const int32_t* x) {
    const int size = size_of(form_of(v.dtype));
    const auto plain = [&](Code code, uint8_t imm = 0) {
      return number(code, size, x[0], x[1], x[2], imm);
    };
    const uint64_t sign = size == 8 ? uint64_t{1} << 63 : uint64_t{1} << 31;
    switch (v.opcode) {
      case Opcode::kAdd: return plain(Code::kAddF);
      case Opcode::kSub: return plain(Code::kSubF);
      case Opcode::kMul: return plain(Code::kMulF);
      case Opcode::kDiv: return plain(Code::kDivF);
      case Opcode::kMin: return extreme_f(false, x[0], x[1], size);
      case Opcode::kMax: return extreme_f(true, x[0], x[1], size);
      case Opcode::kAtLeast: return number(Code::kMaxF, size, x[1], x[0]);
      case Opcode::kAtMost: return number(Code::kMinF, size, x[1], x[0]);
      case Opcode::kNeg: return number(Code::kXor, size, x[0], constant(sign, size));
      case Opcode::kAbs: return number(Code::kAnd, size, x[0], constant(sign - 1, size));
      case Opcode::kSign: return sign_f(x[0], size);
      case Opcode::kSqrt: return plain(Code::kSqrtF);
      case Opcode::kFma: return plain(Code::kFma);
      case Opcode::kFms: return plain(Code::kFms);
      case Opcode::kFnma: return plain(Code::kFnma);
      case Opcode::kScale: return plain(Code::kScaleF);
      case Opcode::kFloor: return plain(Code::kRoundF, 9);
      case Opcode::kCeil: return plain(Code::kRoundF, 10);
      case Opcode::kRound: return plain(Code::kRoundF, 8);
      case Opcode::kTrunc: return plain(Code::kRoundF, 11);
      case Opcode::kGeluFar: return gelu_far(v.opcode, Limits::gelu_near, x[0], x[1]);
      case Opcode::kGeluTanhFar: return gelu_far(v.opcode, Limits::gelu_tanh_near, x[0], x[1]);
      default: break;
    }
    MITHRIL_CHECK(false, "jit: no {} of floats", tile::info(v.opcode).text);
  }

  int32_t compute_integer(const Value& v, const int32_t* x) {
    const DType t = v.dtype;
    const int size = size_of(form_of(t));
    const auto plain = [&](Code code) { return number(code, size, x[0], x[1]); };
    switch (v.opcode) {
      case Opcode::kAdd: return normalise(plain(Code::kAddI), t);
      case Opcode::kSub: return normalise(plain(Code::kSubI), t);
      case Opcode::kMul: return normalise(multiply_i(x[0], x[1], size), t);
      case Opcode::kMin:
      case Opcode::kAtMost: return extreme_i(false, x[0], x[1], size);
      case Opcode::kMax:
      case Opcode::kAtLeast: return extreme_i(true, x[0], x[1], size);
      case Opcode::kNeg: return normalise(number(Code::kSubI, size, integer(0, size), x[0]), t);
      case Opcode::kAbs: return normalise(absolute_i(x[0], size), t);
      case Opcode::kSign: return sign_i(x[0], size);
      case Opcode::kAnd: return plain(Code::kAnd);
      case Opcode::kOr: return plain(Code::kOr);
      case Opcode::kXor: return plain(Code::kXor);
      case Opcode::kNot: return normalise(number(Code::kXor, size, x[0], integer(-1, size)), t);
      case Opcode::kShiftLeft: return normalise(plain(Code::kShiftLeft), t);
      case Opcode::kShiftRight: return shift_right(x[0], x[1], size);
      case Opcode::kShiftRightLogical: return shift_right_logical(x[0], x[1], t, size);
      default: break;
    }
    MITHRIL_CHECK(false, "jit: no {} of integers", tile::info(v.opcode).text);
  }

  // ---- tables, rare cases

  int32_t lookup(int32_t index, uint32_t table) {
    const auto imm = static_cast<uint8_t>(table);
    if (out_.wide) return number(Code::kLookup, 4, index, -1, -1, imm);
    // Three bits of the index choose in a quarter, two more between the quarters.
    const auto quarter = [&](uint64_t k) {
      const int32_t id = number(Code::kLookup, 4, index, -1, -1, imm);
      out_.ops[static_cast<size_t>(id)].bits = k;
      return id;
    };
    const int32_t bit3 = shifted(index, 28), bit4 = shifted(index, 27);
    const auto half = [&](uint64_t k) {
      const int32_t low = quarter(k), high = quarter(k + 1);
      return number(Code::kBlend, 4, bit3, high, low);
    };
    const int32_t low = half(0), high = half(2);
    return number(Code::kBlend, 4, bit4, high, low);
  }
  /// Tables share these.
  int32_t shifted(int32_t x, uint8_t by) {
    const auto [known, is_new] = shifted_.try_emplace({x, by}, -1);
    if (is_new) known->second = number(Code::kShiftLeftBy, 4, x, -1, -1, by);
    return known->second;
  }
  int32_t gelu_far(Opcode opcode, float limit, int32_t x, int32_t y) {
    const int32_t last = real(limit, 4);
    const int32_t lowest = number(Code::kMinF, 4, x, y);
    const Form form = out_.wide ? Form::kMask : Form::k32;
    const int32_t far = emit(Code::kCompareF, form, 4, lowest, last, -1, kNotGt);
    const int32_t id = number(Code::kExtern, 4, far, x, y);
    out_.ops[static_cast<size_t>(id)].function =
        table_.lane(opcode, DType::kFloat32, DType::kFloat32, 0, Shape::kBoth);
    return id;
  }

  // ---- conversions

  int32_t cast(int32_t x, DType from, DType to) {
    if (from == to) return x;
    if (to == DType::kBool) return test(x, from);
    if (is_half(from)) return cast(half_to_float(x, from), DType::kFloat32, to);
    if (is_half(to)) return float_to_half(cast(x, from, DType::kFloat32), to);
    if (from == DType::kBool) return from_mask(x, to);
    if (is_wide_float(from)) return is_wide_float(to) ? resize(x, to) : truncate(x, from, to);
    const bool long_from = from == DType::kInt64;
    switch (to) {
      case DType::kFloat32: return number(long_from ? Code::kI64ToF32 : Code::kI32ToF32, 4, x);
      case DType::kFloat64: return number(long_from ? Code::kI64ToF64 : Code::kI32ToF64, 8, x);
      case DType::kInt64: return long_from ? x : number(Code::kI32ToI64, 8, x);
      default: break;
    }
    return normalise(long_from ? number(Code::kI64ToI32, 4, x) : x, to);
  }
  int32_t resize(int32_t x, DType to) {
    return to == DType::kFloat64 ? number(Code::kF32ToF64, 8, x) : number(Code::kF64ToF32, 4, x);
  }
  int32_t test(int32_t x, DType from) {
    if (is_half(from)) return test(half_to_float(x, from), DType::kFloat32);
    const int size = size_of(form_of(from));
    if (is_wide_float(from)) return compare_f(kNe, x, real(0, size), size);
    return compare_i(kIntNe, x, integer(0, size), size);
  }
  int32_t from_mask(int32_t mask, DType to) {
    const int size = size_of(form_of(to));
    const int32_t one = is_wide_float(to) ? real(1, size) : integer(1, size);
    if (!out_.wide) return number(Code::kAnd, size, mask_for(mask, size), one);
    return blend(mask, one, integer(0, size), size);
  }

  // Saturates; NaN gives 0.
  int32_t truncate(int32_t x, DType from, DType to) {
    const int size = size_of(form_of(from));
    const int32_t ordered = compare_f(kOrdered, x, x, size);
    if (to == DType::kInt64 || (to == DType::kInt32 && size == 4)) {
      const int to_size = to == DType::kInt64 ? 8 : 4;
      const Code code = to_size == 4 ? Code::kF32ToI32
                        : size == 4  ? Code::kF32ToI64
                                     : Code::kF64ToI64;
      // Out of range it gives the smallest integer.
      const int32_t near = number(code, to_size, x);
      const int32_t beyond = compare_f(kGe, x, real(to_size == 8 ? 0x1p63 : 0x1p31, size), size);
      const int64_t largest = to_size == 8 ? INT64_MAX : INT32_MAX;
      const int32_t r = blend(beyond, integer(largest, to_size), near, to_size);
      return blend(ordered, r, integer(0, to_size), to_size);
    }
    double low = INT32_MIN, high = INT32_MAX;
    if (to == DType::kInt16) low = INT16_MIN, high = INT16_MAX;
    if (to == DType::kInt8) low = INT8_MIN, high = INT8_MAX;
    if (to == DType::kUInt8) low = 0, high = UINT8_MAX;
    const int32_t number_x = blend(ordered, x, real(0, size), size);
    const int32_t below = number(Code::kMinF, size, number_x, real(high, size));
    const int32_t inside = number(Code::kMaxF, size, below, real(low, size));
    return number(size == 4 ? Code::kF32ToI32 : Code::kF64ToI32, 4, inside);
  }

  int32_t half_to_float(int32_t x, DType from) {
    if (from == DType::kFloat16) return number(Code::kF16ToF32, 4, x);
    return number(Code::kShiftLeftBy, 4, number(Code::kU16ToI32, 4, x), -1, -1, 16);
  }
  int32_t float_to_half(int32_t x, DType to) {
    if (to == DType::kFloat16) return number(Code::kF32ToF16, 2, x);
    const int32_t high = number(Code::kShiftRightLogicalBy, 4, x, -1, -1, 16);
    const int32_t odd = number(Code::kAnd, 4, high, integer(1, 4));
    const int32_t bias = number(Code::kAddI, 4, odd, integer(0x7fff, 4));
    const int32_t sum = number(Code::kAddI, 4, x, bias);
    const int32_t rounded = number(Code::kShiftRightLogicalBy, 4, sum, -1, -1, 16);
    const int32_t nan = number(Code::kOr, 4, high, integer(0x40, 4));
    const int32_t unordered = compare_f(kUnordered, x, x, 4);
    return number(Code::kI32ToI16, 2, blend(unordered, nan, rounded, 4));
  }

  int32_t bitcast(int32_t x, DType from, DType to) {
    if (to == DType::kBool) return cast(x, from, to);
    if (from == DType::kBool) return from_mask(x, to);
    if (form_of(from) == form_of(to)) {
      return core::size_of(to) == 1 ? normalise(x, to) : x;
    }
    if (is_half(from)) return number(Code::kI16ToI32, 4, x);
    return number(Code::kI32ToI16, 2, number(Code::kAnd, 4, x, integer(0xffff, 4)));
  }

  // ---- reductions

  void reduce(int32_t value) {
    for (size_t k = 0; k < program_.reductions.size(); ++k) {
      const LaneReduction& r = program_.reductions[k];
      if (r.value != value) continue;
      const DType t = type_of(value);
      const int size = size_of(form_of(t));
      Op leaf_op;
      leaf_op.code = Code::kAccumulator;
      leaf_op.form = form_of(t);
      leaf_op.size = static_cast<uint8_t>(size);
      leaf_op.slot = static_cast<int32_t>(k);
      const int32_t acc = push(leaf_op), x = ids_[static_cast<size_t>(value)];
      Op update = leaf_op;
      update.code = Code::kUpdate;
      update.args[0] = combine(r.opcode, t, acc, x, size);
      push(update);
      const bool sums = r.opcode == Opcode::kReduceSum || r.opcode == Opcode::kReduceProd;
      out_.reductions[k] = {r.slot, size, identity(r.opcode, t, size), sums && core::is_float(t)};
    }
  }
  int32_t combine(Opcode opcode, DType t, int32_t acc, int32_t x, int size) {
    const bool f = is_wide_float(t);
    switch (opcode) {
      case Opcode::kReduceSum: return number(f ? Code::kAddF : Code::kAddI, size, acc, x);
      case Opcode::kReduceProd:
        return f ? number(Code::kMulF, size, acc, x) : multiply_i(acc, x, size);
      default: break;
    }
    const bool largest = opcode == Opcode::kReduceMax;
    return f ? extreme_f(largest, acc, x, size) : extreme_i(largest, acc, x, size);
  }
  static uint64_t identity(Opcode opcode, DType t, int size) {
    const bool f = is_wide_float(t);
    const uint64_t sign = size == 8 ? uint64_t{1} << 63 : uint64_t{1} << 31;
    switch (opcode) {
      case Opcode::kReduceSum: return f ? sign : 0;  // -0 + x is x
      case Opcode::kReduceProd: return f ? float_bits(1, size) : 1;
      case Opcode::kReduceMax: return f ? float_bits(-INFINITY, size) : sign;
      default: return f ? float_bits(INFINITY, size) : sign - 1;
    }
  }

  // An output may lie on an input: stores come after the last load.
  void arrange(const std::vector<int32_t>& stores) {
    std::vector<bool> loaded(out_.ops.size(), false);
    int32_t last_load = -1;
    for (size_t k = 0; k + stores.size() < out_.ops.size(); ++k) {
      if (is_leaf(out_.ops[k])) continue;
      for (const int32_t a : out_.ops[k].args) {
        if (a < 0 || out_.ops[static_cast<size_t>(a)].code != Code::kLoad) continue;
        if (!loaded[static_cast<size_t>(a)]) last_load = static_cast<int32_t>(k);
        loaded[static_cast<size_t>(a)] = true;
      }
    }
    for (size_t k = 0; k + stores.size() < out_.ops.size(); ++k) {
      const auto at = static_cast<int32_t>(k);
      if (!is_leaf(out_.ops[k])) out_.order.push_back(at);
      for (const int32_t s : stores) {
        const int32_t value = out_.ops[static_cast<size_t>(s)].args[0];
        if (std::max(value, last_load) == at) out_.order.push_back(s);
      }
    }
  }

  const LaneProgram& program_;
  const IsaTable& table_;
  std::vector<int32_t> ids_;
  std::map<std::pair<int32_t, uint8_t>, int32_t> shifted_;
  Machine out_;
};

}  // namespace

Machine lower(const LaneProgram& program, Isa isa, const IsaTable& table) {
  return Lowering(program, isa, table).run();
}

}  // namespace mithril::cpu::jit

// The instructions of tile programs: one table of names, arities, type rules and functions.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace mithril::tile {

/// Says what an instruction does to the domain.
enum class Family : uint8_t {
  kLeaf,       // no operands: a load, a constant, a position
  kStore,      // defines no register
  kPointwise,  // basic: every target has it, one or a few machine instructions
  kMacro,   // pointwise, defined by the formulas of tile/math.h; expand() writes it in basic ones
  kExtern,  // pointwise, a scalar function of tile/extern_lane.h
  kReduce,  // lane value → row value
  kScan,    // lane value → lane value, in rising reduced position
};

/// Tells how the result's type follows from the operands'.
enum class Rule : uint8_t {
  kLeaf,      // given by the instruction
  kSame,      // all operands and the result have one type
  kCompare,   // operands have one type, the result is bool
  kSelect,    // (bool, T, T) → T
  kConvert,   // any type → the instruction's type
  kIndex,     // T → int64
  kThreefry,  // (int32, int32, int32 | int64) → int32
  kLookup,    // int32 → float32
};

/// Types that operands may have.
enum class Domain : uint8_t { kAny, kNumber, kFloat, kBits, kBool };

// clang-format off
// enumerator, text, arity, family, rule, operand types, function of this name in each ops.py, name of
// the builder's method
//
// Every instruction is total. Integers wrap; x // 0 and x % 0 are 0; // and % are Python's (the
// remainder has the divisor's sign; of floats x // ±0 is x / ±0, x % ±0 is NaN); shifts by the
// width or more, or by a negative count, give 0, or the sign for shift_right. ipow wraps; with a
// negative exponent it is the whole part of the power, 0 but for bases 1 and -1. min and max propagate
// NaN and order −0 below +0; at_least(x, c) is c > x ? c : x, at_most(x, c) is c < x ? c : x.
// sign(NaN) is NaN, sign(±0) is ±0. round goes to the nearest even integer. Comparisons with NaN
// are false but not_equal. Casts from float to integer truncate and saturate, NaN gives 0; casts to
// bool are x != 0; float to narrower float rounds to nearest even. float16 and bfloat16 compute in
// float32 and round after every instruction. Which NaN a result is, is not defined. lookup(x) is
// element x mod 32 of a table (tile/tables.h). gelu_far(x, y) is y where x > -5 and y is a number,
// and gelu_pairs(x) of tile/math.h elsewhere; gelu_tanh_far the same for x > -4.25.

// Loads, places and the store.
#define MITHRIL_TILE_LEAVES(X)                                                        \
  X(kLoad,            "load",             0, kLeaf,  kLeaf, kAny, "")                 \
  X(kScalar,          "scalar",           0, kLeaf,  kLeaf, kAny, "")                 \
  X(kConstant,        "constant",         0, kLeaf,  kLeaf, kAny, "")                 \
  X(kPosition,        "position",         0, kLeaf,  kLeaf, kAny, "position")         \
  X(kRowPosition,     "row_position",     0, kLeaf,  kLeaf, kAny, "row_position")     \
  X(kReducedPosition, "reduced_position", 0, kLeaf,  kLeaf, kAny, "reduced_position") \
  X(kStore,           "store",            1, kStore, kSame, kAny, "")

// Builders have a method for each of these: the last column is its name.
#define MITHRIL_TILE_BASIC(X)                                                                                                \
  X(kAdd,               "add",                 2, kPointwise, kSame,    kNumber, "add",                 add)                 \
  X(kSub,               "sub",                 2, kPointwise, kSame,    kNumber, "subtract",            sub)                 \
  X(kMul,               "mul",                 2, kPointwise, kSame,    kNumber, "multiply",            mul)                 \
  X(kDiv,               "div",                 2, kPointwise, kSame,    kFloat,  "divide",              div)                 \
  X(kFloorDiv,          "floordiv",            2, kPointwise, kSame,    kNumber, "floor_divide",        floordiv)            \
  X(kMod,               "mod",                 2, kPointwise, kSame,    kNumber, "remainder",           mod)                 \
  X(kIntegerPow,        "ipow",                2, kPointwise, kSame,    kBits,   "integer_power",       ipow)                \
  X(kMin,               "min",                 2, kPointwise, kSame,    kNumber, "minimum",             min)                 \
  X(kMax,               "max",                 2, kPointwise, kSame,    kNumber, "maximum",             max)                 \
  X(kAtLeast,           "at_least",            2, kPointwise, kSame,    kNumber, "at_least",            at_least)            \
  X(kAtMost,            "at_most",             2, kPointwise, kSame,    kNumber, "at_most",             at_most)             \
  X(kNeg,               "neg",                 1, kPointwise, kSame,    kNumber, "negate",              neg)                 \
  X(kAbs,               "abs",                 1, kPointwise, kSame,    kNumber, "abs",                 abs)                 \
  X(kSign,              "sign",                1, kPointwise, kSame,    kNumber, "sign",                sign)                \
  X(kSqrt,              "sqrt",                1, kPointwise, kSame,    kFloat,  "sqrt",                sqrt)                \
  X(kFma,               "fma",                 3, kPointwise, kSame,    kFloat,  "fma",                 fma)                 \
  X(kFms,               "fms",                 3, kPointwise, kSame,    kFloat,  "fms",                 fms)                 \
  X(kFnma,              "fnma",                3, kPointwise, kSame,    kFloat,  "fnma",                fnma)                \
  X(kScale,             "scale",               2, kPointwise, kSame,    kFloat,  "scale",               scale)               \
  X(kFloor,             "floor",               1, kPointwise, kSame,    kFloat,  "floor",               floor)               \
  X(kCeil,              "ceil",                1, kPointwise, kSame,    kFloat,  "ceil",                ceil)                \
  X(kRound,             "round",               1, kPointwise, kSame,    kFloat,  "round",               round)               \
  X(kTrunc,             "trunc",               1, kPointwise, kSame,    kFloat,  "trunc",               trunc)               \
  X(kIsNan,             "isnan",               1, kPointwise, kCompare, kFloat,  "isnan",               isnan)               \
  X(kEqual,             "equal",               2, kPointwise, kCompare, kAny,    "equal",               equal)               \
  X(kNotEqual,          "not_equal",           2, kPointwise, kCompare, kAny,    "not_equal",           not_equal)           \
  X(kLess,              "less",                2, kPointwise, kCompare, kAny,    "less",                less)                \
  X(kLessEqual,         "less_equal",          2, kPointwise, kCompare, kAny,    "less_equal",          less_equal)          \
  X(kGreater,           "greater",             2, kPointwise, kCompare, kAny,    "greater",             greater)             \
  X(kGreaterEqual,      "greater_equal",       2, kPointwise, kCompare, kAny,    "greater_equal",       greater_equal)       \
  X(kAnd,               "and",                 2, kPointwise, kSame,    kBits,   "bitwise_and",         bit_and)             \
  X(kOr,                "or",                  2, kPointwise, kSame,    kBits,   "bitwise_or",          bit_or)              \
  X(kXor,               "xor",                 2, kPointwise, kSame,    kBits,   "bitwise_xor",         bit_xor)             \
  X(kNot,               "not",                 1, kPointwise, kSame,    kBits,   "bitwise_not",         bit_not)             \
  X(kShiftLeft,         "shift_left",          2, kPointwise, kSame,    kBits,   "shift_left",          shift_left)          \
  X(kShiftRight,        "shift_right",         2, kPointwise, kSame,    kBits,   "shift_right",         shift_right)         \
  X(kShiftRightLogical, "shift_right_logical", 2, kPointwise, kSame,    kBits,   "shift_right_logical", shift_right_logical) \
  X(kSelect,            "select",              3, kPointwise, kSelect,  kAny,    "where",               select)

// Those whose type is given: a builder has its own method for each.
#define MITHRIL_TILE_TYPED(X)                                           \
  X(kCast,     "cast",     1, kPointwise, kConvert,  kAny,  "astype")   \
  X(kBitcast,  "bitcast",  1, kPointwise, kConvert,  kAny,  "bitcast")  \
  X(kThreefry, "threefry", 3, kPointwise, kThreefry, kAny,  "threefry") \
  X(kLookup,   "lookup",   1, kPointwise, kLookup,   kBits, "")

// Functions of tile/math.h, of the name in the last column and of one operand: by them they are
// evaluated, expanded and run in vectors.
#define MITHRIL_TILE_FORMULAS(X)                                           \
  X(kExp,      "exp",      1, kMacro, kSame, kFloat, "exp",      exp)      \
  X(kExpm1,    "expm1",    1, kMacro, kSame, kFloat, "expm1",    expm1)    \
  X(kExp2,     "exp2",     1, kMacro, kSame, kFloat, "exp2",     exp2)     \
  X(kLog,      "log",      1, kMacro, kSame, kFloat, "log",      log)      \
  X(kLog1p,    "log1p",    1, kMacro, kSame, kFloat, "log1p",    log1p)    \
  X(kLog2,     "log2",     1, kMacro, kSame, kFloat, "log2",     log2)     \
  X(kSin,      "sin",      1, kMacro, kSame, kFloat, "sin",      sin)      \
  X(kCos,      "cos",      1, kMacro, kSame, kFloat, "cos",      cos)      \
  X(kTanh,     "tanh",     1, kMacro, kSame, kFloat, "tanh",     tanh)     \
  X(kSigmoid,  "sigmoid",  1, kMacro, kSame, kFloat, "sigmoid",  sigmoid)  \
  X(kErf,      "erf",      1, kMacro, kSame, kFloat, "erf",      erf)      \
  X(kErfc,     "erfc",     1, kMacro, kSame, kFloat, "erfc",     erfc)     \
  X(kSilu,     "silu",     1, kMacro, kSame, kFloat, "silu",     silu)     \
  X(kSoftplus, "softplus", 1, kMacro, kSame, kFloat, "softplus", softplus) \
  X(kRsqrt,    "rsqrt",    1, kMacro, kSame, kFloat, "rsqrt",    rsqrt)

// The other macros: the interpreter has its own loop for each.
#define MITHRIL_TILE_OWN(X)                                                   \
  X(kGelu,     "gelu",      1, kMacro, kSame, kFloat, "gelu",      gelu)      \
  X(kGeluTanh, "gelu_tanh", 1, kMacro, kSame, kFloat, "gelu_tanh", gelu_tanh) \
  X(kPow,      "pow",       2, kMacro, kSame, kFloat, "power",     pow)

// Functions of tile/extern_lane.h, reductions and scans.
#define MITHRIL_TILE_REST(X)                                                      \
  X(kTrigTurns,    "trig_turns",    1, kExtern, kSame,  kFloat,  "")              \
  X(kTrigRest,     "trig_rest",     1, kExtern, kSame,  kFloat,  "")              \
  X(kTrigRestLow,  "trig_rest_low", 1, kExtern, kSame,  kFloat,  "")              \
  X(kPowLane,      "pow_lane",      2, kExtern, kSame,  kFloat,  "")              \
  X(kGeluFar,      "gelu_far",      2, kExtern, kSame,  kFloat,  "")              \
  X(kGeluTanhFar,  "gelu_tanh_far", 2, kExtern, kSame,  kFloat,  "")              \
  X(kReduceSum,    "reduce_sum",    1, kReduce, kSame,  kNumber, "reduce_sum")    \
  X(kReduceProd,   "reduce_prod",   1, kReduce, kSame,  kNumber, "reduce_prod")   \
  X(kReduceMax,    "reduce_max",    1, kReduce, kSame,  kNumber, "reduce_max")    \
  X(kReduceMin,    "reduce_min",    1, kReduce, kSame,  kNumber, "reduce_min")    \
  X(kReduceArgMax, "reduce_argmax", 1, kReduce, kIndex, kNumber, "reduce_argmax") \
  X(kReduceArgMin, "reduce_argmin", 1, kReduce, kIndex, kNumber, "reduce_argmin") \
  X(kReduceAny,    "reduce_any",    1, kReduce, kSame,  kBool,   "reduce_any")    \
  X(kReduceAll,    "reduce_all",    1, kReduce, kSame,  kBool,   "reduce_all")    \
  X(kCumSum,       "cumsum",        1, kScan,   kSame,  kNumber, "cumsum")

#define MITHRIL_TILE_NAMED(X) MITHRIL_TILE_BASIC(X) MITHRIL_TILE_FORMULAS(X) MITHRIL_TILE_OWN(X)
#define MITHRIL_TILE_INSTRUCTIONS(X)                                     \
  MITHRIL_TILE_LEAVES(X) MITHRIL_TILE_BASIC(X) MITHRIL_TILE_TYPED(X)     \
  MITHRIL_TILE_FORMULAS(X) MITHRIL_TILE_OWN(X) MITHRIL_TILE_REST(X)
// clang-format on

enum class Opcode : uint8_t {
#define X(name, ...) name,
  MITHRIL_TILE_INSTRUCTIONS(X)
#undef X
};

struct OpcodeInfo {
  std::string_view text;
  uint8_t arity;
  Family family;
  Rule rule;
  Domain domain;
  std::string_view python;  // empty: never printed in framework text
};

inline constexpr std::array kOpcodes = {
#define X(name, text, arity, family, rule, domain, python, ...) \
  OpcodeInfo{text, arity, Family::family, Rule::rule, Domain::domain, python},
    MITHRIL_TILE_INSTRUCTIONS(X)
#undef X
};
inline constexpr int kOpcodeCount = static_cast<int>(kOpcodes.size());

constexpr const OpcodeInfo& info(Opcode opcode) { return kOpcodes[static_cast<size_t>(opcode)]; }

/// Tells whether operands of `opcode` may have type `dtype`; abstract types never.
bool accepts(Domain domain, core::DType dtype);

/// Tells how often a value differs: once per program, once per kept index, at each point.
enum class Level : uint8_t { kUniform, kRow, kLane };

/// The order in which a sum or product runs over r, the row-major index of the reduced axes.
/// kLanes (the last axis is reduced): blocks of 4096; in a block lane l combines, in rising r, the
/// elements with r mod 16 = l, starting with the first; then for s = 8, 4, 2, 1 lane l takes lane
/// l + lane l+s for l < s, empty lanes being skipped. kRows (otherwise): blocks of 64 in rising r
/// from the first element. Blocks: while more than one is left neighbours (0,1), (2,3) … are
/// combined; an odd last one moves up unchanged. What rounding takes from a sum of two blocks of
/// floats is kept beside it (TwoSum) and added in the end. Empty: the identity.
/// All other reductions have one result for any order and carry the attribute unused.
enum class Order : uint8_t { kLanes, kRows };

inline constexpr int64_t kLanesBlock = 4096;
inline constexpr int64_t kLanesWidth = 16;
inline constexpr int64_t kRowsBlock = 64;

}  // namespace mithril::tile

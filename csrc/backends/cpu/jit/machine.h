// Lane programs in vector instructions: every op is one machine instruction or two, on values that
// have no registers yet. What differs between AVX2 and AVX-512 is decided here, but for encodings.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/schedule/isa_table.h"
#include "backends/cpu/schedule/lane_program.h"

namespace mithril::cpu::jit {

/// One lane of a value. Integers below 32 bits live as 32-bit ones, extended by their own type.
/// A mask is a k-register (AVX-512), or lanes of the program's widest size, all ones or zeros.
enum class Form : uint8_t { k16, k32, k64, kMask };

enum class Code : uint8_t {
  kLoad,  // leaves, brought into registers where they are used
  kRow,
  kUniform,
  kConstant,
  kAccumulator,
  kPrefetch,  // asks for what the next tile has in `slot`
  kStore,     // args[0] to `slot` as `dtype`; imm kStreamedStore: past the caches
  kUpdate,    // args[0] becomes the accumulator of reduction `slot`
  kAddF,
  kSubF,
  kMulF,
  kDivF,
  kMinF,
  kMaxF,  // min, max: the second operand where unordered, equal
  kRangeF,
  kScaleF,  // AVX-512
  kSqrtF,
  kRoundF,
  kFma,
  kFms,
  kFnma,
  kCompareF,
  kCopy,
  kAnd,
  kOr,
  kXor,
  kAndNot,  // kAndNot: ~a & b
  kNot,     // AVX-512 masks
  kAddI,
  kSubI,
  kMulI,
  kMinI,
  kMaxI,
  kAbsI,
  kMultiplyLow32,
  kCompareI,  // AVX-512
  kEqualI,
  kGreaterI,
  kShiftLeft,
  kShiftRight,
  kShiftRightLogical,
  kShiftLeftBy,
  kShiftRightBy,
  kShiftRightLogicalBy,  // imm
  kBlend,                // mask ? b : c
  kF32ToF64,
  kF64ToF32,
  kI32ToF32,
  kI32ToF64,
  kF32ToI32,
  kF64ToI32,
  kF32ToI64,
  kF64ToI64,
  kI64ToF32,
  kI64ToF64,  // AVX-512
  kI32ToI64,
  kI64ToI32,
  kI32ToI16,
  kU16ToI32,
  kI16ToI32,
  kF16ToF32,
  kF32ToF16,
  kLookup,  // element args[0] mod 32 of table imm; AVX2: mod 8 of its quarter `bits`
  kExtern,  // args[2]; where args[0] holds of any lane, `function` of args[1] and args[2]
};

/// kI32ToI16 of values from -32768 to 32767; else they are 0 to 65535.
inline constexpr uint8_t kSigned = 1;
inline constexpr uint8_t kStreamedStore = 1;

struct Op {
  Code code = Code::kLoad;
  Form form = Form::k32;  // of the result
  uint8_t size = 4;       // bytes a lane that the instruction works on
  uint8_t imm = 0;
  core::DType dtype = core::DType::kFloat32;  // leaves and stores: in memory
  std::array<int32_t, 3> args{-1, -1, -1};
  int32_t slot = -1;  // kAccumulator, kUpdate: the reduction
  uint64_t bits = 0;  // kConstant: one lane
  LaneFn function = nullptr;
};

inline bool is_leaf(const Op& op) { return op.code <= Code::kAccumulator; }

struct Accumulated {
  int32_t slot = -1;
  int32_t size = 4;
  uint64_t identity = 0;  // x combined with it is x, bit for bit
  bool ordered = false;   // lane r mod 16 takes element r
};

struct Machine {
  bool wide = false;   // AVX-512
  int32_t widest = 4;  // bytes of the widest lane
  int32_t lanes = 8;   // elements of an iteration
  std::vector<Op> ops;
  std::vector<int32_t> order;  // what is emitted: ops that are no leaves
  std::vector<Accumulated> reductions;
};

/// Tells whether lower() knows that instruction; `from` is the type of the last operand.
bool can_lower(tile::Opcode opcode, core::DType result, core::DType from, Isa isa);
/// Tells whether reductions of that kind can be compiled.
bool can_lower_reduction(tile::Opcode opcode, core::DType dtype);
/// Elements that one iteration of the program's loop takes at once.
int32_t lanes_of(const LaneProgram& program, Isa isa);

/// `table` has the functions that code calls.
Machine lower(const LaneProgram& program, Isa isa, const IsaTable& table);

}  // namespace mithril::cpu::jit

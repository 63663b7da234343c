// Writes tile programs: `[](tile::Builder& t, tile::Reg x) { return t.log1p(x); }`.
#pragma once
#include <initializer_list>
#include <span>
#include <unordered_map>
#include <vector>

#include "tile/program.h"
#include "tile/tables.h"

namespace mithril::tile {

class Builder;

/// A value of the program that a Builder is writing. Copied freely; dies with the builder.
class Reg {
 public:
  Reg() = default;
  core::DType dtype() const;
  Level level() const;
  RegId id() const { return id_; }
  Builder& builder() const { return *builder_; }
  bool valid() const { return builder_ != nullptr; }

 private:
  friend class Builder;
  Reg(Builder* builder, RegId id) : builder_(builder), id_(id) {}
  Builder* builder_ = nullptr;
  RegId id_ = kNoReg;
};

/// Appends instructions; equal ones are written once. A wrong type or level is a bug of the caller
/// and throws an internal error (MITHRIL_CHECK).
class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  /// The next input of the program, read at each point (or, load_row, once per kept index; or,
  /// load_uniform, once). Inputs are numbered in the order of the calls: give each its own
  /// statement, because C++ evaluates the operands of `t.load(a) - t.load(b)` in either order.
  Reg load(core::DType dtype) { return load(dtype, Level::kLane); }
  Reg load_row(core::DType dtype) { return load(dtype, Level::kRow); }
  Reg load_uniform(core::DType dtype) { return load(dtype, Level::kUniform); }
  Reg load(core::DType dtype, Level level);
  /// Run-time scalar number k, converted from double as cast does.
  Reg scalar(core::DType dtype, uint32_t k);
  /// A constant; integers are exact, floats rounded to the type, out of range as in casts.
  Reg constant(core::DType dtype, double value);
  Reg constant_int(core::DType dtype, int64_t value);
  Reg constant_bits(core::DType dtype, uint64_t bits);
  /// Row-major index in the domain (kept dims, then reduced dims), int64. In a pointwise program
  /// that is the index in the output.
  Reg position();
  /// Row-major index in the kept dims (a row value), in the reduced dims (a lane value).
  Reg row_position();
  Reg reduced_position();
  /// Makes `value` the next output of the program: a row output (one element per kept index) if it
  /// is a row value, else a lane output. The second form stores a value of any lower level as well.
  void store(Reg value);
  void store(Reg value, Level level);

  /// Any pointwise or macro instruction but cast, bitcast, threefry and lookup.
  Reg emit(Opcode opcode, std::initializer_list<Reg> operands);
  Reg emit(Opcode opcode, std::span<const Reg> operands);
  Reg cast(Reg x, core::DType dtype);
  Reg bitcast(Reg x, core::DType dtype);  // same size
  /// Any reduction, of a value of any level (one that does not vary counts at every point).
  Reg reduce(Opcode opcode, Reg x, Order order = Order::kLanes);
  Reg cumsum(Reg x);

  /// Word 0 or 1 of Threefry-2x32-20 under the key (key0, key1), both int32, as int32. An int64
  /// counter gives the low and the high word of the block, an int32 one the low word.
  Reg threefry(Reg key0, Reg key1, Reg counter, uint32_t word);
  /// Element `index` mod 32 of the table, float32; `index` is int32.
  Reg lookup(Reg index, Table table);
  /// Uniform in [0, 1): float32: the top 24 bits of word 0 (float16: 11, bfloat16: 8)
  /// times 2^-24; float64: the top 27 bits of word 0, then the top 26 of word 1, times 2^-53.
  Reg uniform(core::DType dtype, Reg key0, Reg key1, Reg counter);
  /// Standard normal by Box and Muller, z = sqrt(-2 ln(1 - u)) cos(2 pi v), computed in float32
  /// (float64: in float64) with u and v from the words of counters 2c and 2c + 1.
  Reg normal(core::DType dtype, Reg key0, Reg key1, Reg counter);

#define MITHRIL_TILE_METHOD1(name, opcode) \
  Reg name(Reg x) { return emit(Opcode::opcode, {x}); }
#define MITHRIL_TILE_METHOD2(name, opcode)                                               \
  Reg name(Reg x, Reg y) { return emit(Opcode::opcode, {x, y}); }                        \
  Reg name(Reg x, double y) { return emit(Opcode::opcode, {x, constant(dtype(x), y)}); } \
  Reg name(double x, Reg y) { return emit(Opcode::opcode, {constant(dtype(y), x), y}); }
#define MITHRIL_TILE_METHOD3(name, opcode) \
  Reg name(Reg x, Reg y, Reg z) { return emit(Opcode::opcode, {x, y, z}); }
#define X(opcode, text, arity, family, rule, domain, python, name) \
  MITHRIL_TILE_METHOD##arity(name, opcode)
  MITHRIL_TILE_NAMED(X)
#undef X
#undef MITHRIL_TILE_METHOD1
#undef MITHRIL_TILE_METHOD2
#undef MITHRIL_TILE_METHOD3

  /// Writes `body` here: input k becomes inputs[k], scalar k becomes scalars[k]; returns what it
  /// stores. A row input needs a row or uniform value. Reductions keep their orders. A position is
  /// that of this program's domain.
  std::vector<Reg> append(const Program& body, std::span<const Reg> inputs,
                          std::span<const Reg> scalars = {});

  /// The program, without instructions that reach no store. The builder is empty afterwards.
  Program finish();

  core::DType dtype(Reg reg) const { return program_.code[reg.id()].dtype; }
  Level level(Reg reg) const { return program_.code[reg.id()].level; }

 private:
  struct InstructionHash {
    size_t operator()(const Instruction& i) const;
  };
  Reg intern(const Instruction& instruction);
  Reg leaf(Opcode opcode, core::DType dtype, Level level, uint32_t index = 0, uint64_t bits = 0);
  Reg derived(Opcode opcode, core::DType dtype, std::span<const Reg> operands, uint32_t index = 0);
  Reg copy(const Instruction& instruction, std::span<const Reg> operands);
  RegId own(Reg reg) const;  // its id, after checking that it is one of ours

  Program program_;
  std::unordered_map<Instruction, RegId, InstructionHash> seen_;
};

inline core::DType Reg::dtype() const { return builder_->dtype(*this); }
inline Level Reg::level() const { return builder_->level(*this); }

/// `number` in the type of `like`.
inline Reg constant_like(Reg like, double number) {
  return like.builder().constant(like.dtype(), number);
}

// Free functions: exp(x), max(a, b), max(a, 0.0), select(c, a, b), a + b, 2.0 * a, -a, a < 0.0 …
#define MITHRIL_TILE_FREE1(name, opcode) \
  inline Reg name(Reg x) { return x.builder().emit(Opcode::opcode, {x}); }
#define MITHRIL_TILE_FREE2_(name, opcode)                                            \
  inline Reg name(Reg x, Reg y) { return x.builder().emit(Opcode::opcode, {x, y}); } \
  inline Reg name(Reg x, double y) { return name(x, constant_like(x, y)); }          \
  inline Reg name(double x, Reg y) { return name(constant_like(y, x), y); }
#define MITHRIL_TILE_FREE2(name, opcode) MITHRIL_TILE_FREE2_(name, opcode)
#define MITHRIL_TILE_FREE3(name, opcode) \
  inline Reg name(Reg x, Reg y, Reg z) { return x.builder().emit(Opcode::opcode, {x, y, z}); }
#define X(opcode, text, arity, family, rule, domain, python, name) \
  MITHRIL_TILE_FREE##arity(name, opcode)
MITHRIL_TILE_NAMED(X)
#undef X
MITHRIL_TILE_FREE2_(operator+, kAdd)
MITHRIL_TILE_FREE2_(operator-, kSub)
MITHRIL_TILE_FREE2_(operator*, kMul)
MITHRIL_TILE_FREE2_(operator/, kDiv)
MITHRIL_TILE_FREE2_(operator<, kLess)
MITHRIL_TILE_FREE2_(operator<=, kLessEqual)
MITHRIL_TILE_FREE2_(operator>, kGreater)
MITHRIL_TILE_FREE2_(operator>=, kGreaterEqual)
inline Reg operator-(Reg x) { return neg(x); }
inline Reg operator&(Reg x, Reg y) { return bit_and(x, y); }
inline Reg operator|(Reg x, Reg y) { return bit_or(x, y); }
inline Reg operator^(Reg x, Reg y) { return bit_xor(x, y); }
inline Reg operator~(Reg x) { return bit_not(x); }
inline Reg select(Reg c, Reg x, double y) { return select(c, x, constant_like(x, y)); }
inline Reg select(Reg c, double x, Reg y) { return select(c, constant_like(y, x), y); }
inline Reg cast(Reg x, core::DType dtype) { return x.builder().cast(x, dtype); }
inline Reg bitcast(Reg x, core::DType dtype) { return x.builder().bitcast(x, dtype); }
inline Reg reduce_sum(Reg x, Order order = Order::kLanes) {
  return x.builder().reduce(Opcode::kReduceSum, x, order);
}
inline Reg reduce_max(Reg x) { return x.builder().reduce(Opcode::kReduceMax, x); }
inline Reg reduce_min(Reg x) { return x.builder().reduce(Opcode::kReduceMin, x); }
#undef MITHRIL_TILE_FREE1
#undef MITHRIL_TILE_FREE2_
#undef MITHRIL_TILE_FREE2
#undef MITHRIL_TILE_FREE3

}  // namespace mithril::tile

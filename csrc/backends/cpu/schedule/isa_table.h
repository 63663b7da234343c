// What each instruction-set build offers to the interpreter: functions over blocks of elements.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "plan/kernel.h"
#include "tile/instruction.h"

namespace mithril::cpu {

/// One instruction over `n` elements. `out` may be one of the operands (same element size).
using LaneFn = void (*)(void* out, const void* a, const void* b, const void* c, int64_t n);

/// Reduces each of `rows` rows of `n` > 0 elements, which lie one after the other, to one element;
/// n is at most one block of Order::kLanes (64 blocks of kRows). `rest`: for what rounding takes
/// from sums of blocks of floats, one for each row; null: it is added to them.
using RowReduceFn = void (*)(void* out, void* rest, const void* x, int64_t rows, int64_t n,
                             tile::Order order);

/// Sums of blocks of floats, n of them, each with its rest; null for other types.
struct BlockSums {
  /// sum = left + sum, and all rests together.
  void (*join)(const void* left, const void* left_rest, void* sum, void* rest, int64_t n) = nullptr;
  /// Adds the rest.
  void (*settle)(void* sum, const void* rest, int64_t n) = nullptr;
};

/// Takes n_r further elements of each of n_rows rows into the running extremes and their indices;
/// r0 is the index of the first; at r0 == 0 the state is begun.
struct ExtremeArgs {
  void* values;
  int64_t* indices;
  const void* x;
  int64_t rows, count, row_stride, r_stride, r0;
};
using ExtremeFn = void (*)(const ExtremeArgs& args);

/// Running sums over r of each of `rows` rows. `carry` has room for two numbers of 8 bytes for each
/// row: those of float32 and integers one, the last sum; of float64 also what rounding took from
/// it.
struct ScanArgs {
  void* out;
  void* carry;
  const void* x;
  int64_t rows, count, row_stride, r_stride, r0;
};
using ScanFn = void (*)(const ScanArgs& args);

/// Tells which operand of a two-operand instruction is a single element.
enum class Shape : uint8_t { kBoth, kFirstSingle, kSecondSingle };

/// Null where there is no such function. float16 and bfloat16 occur in casts only (the interpreter
/// runs widened programs).
struct IsaTable {
  /// `from` is the type of the (last) operand, `index` the instruction's.
  LaneFn (*lane)(tile::Opcode opcode, core::DType result, core::DType from, uint32_t index,
                 Shape shape);
  RowReduceFn (*row_reduce)(tile::Opcode opcode, core::DType dtype);
  BlockSums (*block_sums)(core::DType dtype);
  ExtremeFn (*extreme)(tile::Opcode opcode, core::DType dtype);
  ScanFn (*scan)(core::DType dtype);
  plan::KernelFn run;
};

namespace generic {
const IsaTable& isa_table();
}
namespace avx2 {
const IsaTable& isa_table();
}
namespace avx512 {
const IsaTable& isa_table();
}

}  // namespace mithril::cpu

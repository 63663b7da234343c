// What one compiled step of a schedule computes: a run of lane instructions as straight-line code
// over slots. Plain data.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "tile/instruction.h"

namespace mithril::cpu::jit {

/// Tells where a value comes from.
enum class Source : uint8_t {
  kLane,      // a lane slot: one element per point
  kRow,       // a row slot
  kUniform,   // a uniform slot: one element
  kConstant,  // `bits`
  kComputed,  // `opcode` of `operands`
};

struct Value {
  Source source = Source::kComputed;
  tile::Opcode opcode = tile::Opcode::kConstant;
  core::DType dtype = core::DType::kFloat32;
  std::array<int32_t, 3> operands{-1, -1, -1};  // indices of values before this one
  int32_t slot = -1;
  uint64_t bits = 0;
  uint32_t index = 0;  // kLookup: the table
  bool ahead = false;  // kLane: the next tile's elements are asked for as these are read
};

struct Output {
  int32_t value = -1, slot = -1;
  bool streams = false;  // past the caches; the slot lies on a line's beginning
};

/// Elements combined along r. kInside: every row's partial results, `partials` of them (see
/// Compiled), go to the row slot; kAcross: the row slot holds running values, which the caller
/// begins.
struct LaneReduction {
  int32_t value = -1;
  tile::Opcode opcode = tile::Opcode::kReduceSum;
  tile::Order order = tile::Order::kLanes;
  int32_t slot = -1;
  int32_t reduction = -1;  // of the schedule
};

struct LaneProgram {
  std::vector<Value> values;
  std::vector<Output> outputs;
  std::vector<LaneReduction> reductions;
};

/// Tells how the points of a tile lie.
enum class Walk : uint8_t {
  kFlat,    // outer × inner points in a row; no row values, no reductions
  kInside,  // [outer][inner]; a row is one outer index
  kAcross,  // [outer][inner]; a row is one inner index
  kBlock,   // [outer][inner]; as kInside, but rows of a slot are as far apart as the caller says
};

/// `pointers`: of each slot; kBlock: behind them the bytes between its rows, and pointers of lanes
/// move. Points are outer indices [begin, end) × `inner`; only kAcross may begin elsewhere than 0.
using CompiledFn = void (*)(void* const* pointers, int64_t end, int64_t inner, int64_t begin);

}  // namespace mithril::cpu::jit

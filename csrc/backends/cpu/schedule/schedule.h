// A tile program in the order in which the interpreter runs it: sections, steps, slots. Shared with
// the instruction-set builds, so it is plain data.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/schedule/isa_table.h"
#include "backends/cpu/schedule/lane_program.h"
#include "tile/sections.h"

namespace mithril::cpu {

enum class Isa : uint8_t;
namespace jit {
class CodeMemory;
}

/// Tells how the points of a tile lie.
enum class Layout : int64_t {
  kPointwise,  // a tile is a run of the kept domain
  kRowInside,  // a tile is rows × r, r innermost
  kRowAcross,  // a tile is r × rows, rows innermost
  // A tile is rows × r of operands in place: rows are as far apart as each one's stride says. Only
  // for schedules that are one compiled step (is_in_place).
  kBlock,
};
inline constexpr int kLayouts = 4;

/// Says what runs a schedule's steps over lanes.
enum class Mode : int64_t {
  kInterpreted,
  kCompiled,
  kStreaming,  // compiled; outputs go past the caches, which takes tiles of whole lines
};
inline constexpr int kModes = 3;

/// A buffer of scratch that holds one value: one element, one per row of the tile, or one per
/// point.
struct Slot {
  tile::Level level = tile::Level::kLane;
  int32_t size = 4;  // bytes an element
};

enum class StepKind : uint8_t {
  kConstant,  // a constant's bits into a uniform slot
  kScalar,    // run-time scalar into a uniform slot (as double; a cast follows)
  kFill,      // uniform slot over a row or lane slot
  kFetch,     // an operand's elements: in place where they lie side by side, else copied
  kExpand,    // row slot over a lane slot
  kCall,      // an instruction
  kBind,      // lets the producer of an output write to it directly where that is possible
  kStore,     // a slot to an operand
  kReduce,    // a lane slot into the running state of a reduction
  kScan,
  kCompiled,  // a run of kCall, kExpand and kReduce as machine code
};

struct TileStep {
  StepKind kind = StepKind::kCall;
  tile::Level level = tile::Level::kLane;
  int32_t size = 0;                          // bytes an element of `out` (of the stored value)
  int32_t out = -1, a = -1, b = -1, c = -1;  // slots
  int32_t index = 0;                         // operand, scalar, reduction, or compiled step
  int32_t instruction = -1;                  // of the program; kCall and kReduce
  int32_t partner =
      -1;  // kBind: position of the first hazard in `hazards`; kStore: same slot bound
  int32_t hazard_count = 0;
  LaneFn fn = nullptr;
  uint64_t bits = 0;
};

/// A reduction or scan: how elements join the state, and where the result goes.
struct Reduction {
  LaneFn combine = nullptr;  // two elements; null for arg* and scans
  RowReduceFn row_reduce = nullptr;
  BlockSums sums;  // of floats: more than one block
  ExtremeFn extreme = nullptr;
  ScanFn scan = nullptr;
  tile::Order order = tile::Order::kLanes;
  int32_t size = 4;      // bytes an element
  int32_t out = -1;      // row slot of the result (scan: lane slot)
  int32_t running = -1;  // row slot of the running values, if not in the state
  uint64_t identity = 0;
  uint64_t beginning = 0;  // of compiled steps: what it is combined with stays bit for bit
};

/// A step as a function. Its reductions leave `partials` elements of each row in the row slot.
struct CompiledStep {
  struct Reduced {
    int32_t reduction, slot, partials;
  };
  jit::CompiledFn fn = nullptr;
  jit::Walk walk = jit::Walk::kFlat;
  std::vector<int32_t> reads, writes;  // slots, but for those of reductions
  std::vector<Reduced> reductions;
  jit::LaneProgram program;  // until it is compiled
};

struct StepRange {
  int32_t begin = 0, end = 0;
};

/// Row values first, then the lane values of each chunk, then the reductions are finished.
struct Section {
  StepRange rows, lanes, reductions;  // reductions: indices into Schedule::reductions
};

struct TileSchedule {
  std::vector<Slot> slots;
  std::vector<TileStep> steps;
  std::vector<Section> sections;
  std::vector<Reduction> reductions;
  std::vector<int32_t> hazards;  // input operands
  StepRange setup;               // once per call
  std::vector<CompiledStep> compiled;
  std::shared_ptr<const jit::CodeMemory> code;  // of the compiled steps
};

/// `recompute`: lane values do not outlive their section (a row is visited in several chunks, once
/// per section); else they do (whole rows fit the tile).
TileSchedule make_schedule(const tile::Program& widened, const IsaTable& isa, bool recompute);

/// Says what compiled steps are for.
struct CodeTarget {
  Isa isa;
  Layout layout = Layout::kPointwise;
  bool recompute = false;
  bool streams = false;
  bool operator==(const CodeTarget&) const = default;
};

/// Steps of a schedule that is being built: every slot is written by one step of a section only.
struct Unfused {
  std::vector<TileStep>& setup;
  std::vector<std::vector<TileStep>>& rows;   // by section
  std::vector<std::vector<TileStep>>& lanes;  // by section
};

/// Joins steps into compiled ones; see jit/fuse_steps.h.
using FuseSteps = void (*)(const tile::Program& program, const CodeTarget& target,
                           const Unfused& steps, TileSchedule& schedule);

/// The same with the compiled steps that `fuse` makes for that target, without their code; see
/// jit/compile.h. `expanded` has no macros but those that are called.
TileSchedule make_fused_schedule(const tile::Program& expanded, const IsaTable& isa,
                                 const CodeTarget& target, FuseSteps fuse);

/// Tells whether a schedule for Layout::kBlock reads and writes operands where they lie, by one
/// compiled step.
bool is_in_place(const TileSchedule& schedule);

/// Layout of KernelArgs::params, then dims and operands.
struct LoopHeader {
  int64_t layout, recompute, mode;  // which schedule
  int64_t kept, reduced;            // points
  int64_t tile_rows, tile_r;        // most of a tile; pointwise: tile_rows 1, tile_r the block
  int64_t unit;                     // rows (pointwise: points) a unit
  int64_t kept_dims, reduced_dims;
  int64_t capacity;      // points of a tile
  int64_t depth;         // of the stacks of partial results
  int64_t state_offset;  // bytes of scratch before the reductions' states
  int64_t operands;
};
inline constexpr int64_t kHeaderWords = sizeof(LoopHeader) / sizeof(int64_t);

/// Per operand: flags, kept strides, reduced strides. After the operands: byte offset of each slot.
/// Scratch begins with a pointer to each slot, for kBlock also with the bytes between its rows.
enum OperandFlag : int64_t {
  kInnerContiguous = 1,  // the inner dims lie row-major with unit stride
  kOuterChained = 2,     // … and the outer ones continue them
  kKeptContiguous = 4,   // the kept dims lie row-major with unit stride
  kSingle = 8,           // all strides are zero
  kInvariant = 16,       // a tile's block is the same in every tile
  kStreamed = 32,        // an output that no cache could hold: stores go past them
};

/// Pseudo operands after inputs and outputs.
enum Pseudo : int32_t {
  kPositionOperand,
  kRowPositionOperand,
  kReducedPositionOperand,
  kPseudoCount
};

}  // namespace mithril::cpu

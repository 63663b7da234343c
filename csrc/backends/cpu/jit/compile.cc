#include "backends/cpu/jit/compile.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "backends/cpu/jit/code_memory.h"
#include "backends/cpu/jit/function.h"
#include "backends/cpu/jit/fuse_steps.h"
#include "backends/cpu/jit/schedule_cache.h"
#include "core/env.h"
#include "tile/expand.h"

namespace mithril::cpu::jit {
namespace {

constexpr size_t kSmallest = size_t{32} << 10, kLargest = size_t{4} << 20;

// Never taken back.
std::atomic<bool> refused{false}, told{false};

// Code is aligned where it is written as where it will run.
struct alignas(64) Line {
  uint8_t bytes[64];
};

struct Emitted {
  std::vector<size_t> offsets;
  std::vector<std::vector<int32_t>> partials;
  size_t size = 0;
};

Emitted emit(TileSchedule& schedule, Isa isa, const IsaTable& table, uint8_t* buffer, size_t size) {
  Emitted out;
  Assembler as(buffer, size);
  for (const CompiledStep& step : schedule.compiled) {
    as.align(64);
    out.offsets.push_back(as.getSize());
    const Machine machine = lower(step.program, isa, table);
    const auto slots = static_cast<int>(schedule.slots.size());
    out.partials.push_back(emit_function(as, machine, step.walk, slots));
    for (size_t r = 0; r < machine.reductions.size(); ++r) {
      const int32_t index = step.program.reductions[r].reduction;
      schedule.reductions[static_cast<size_t>(index)].beginning = machine.reductions[r].identity;
    }
  }
  as.finish();
  out.size = as.getSize();
  return out;
}

}  // namespace

bool is_refused() { return refused.load(std::memory_order_relaxed); }

bool take_jit_denied() { return is_refused() && !told.exchange(true); }

bool is_on(Isa isa) { return isa != Isa::kGeneric && core::env().jit && !is_refused(); }

bool can_compile(const tile::Program& widened, int fewest) {
  int calls = 0;
  for (const tile::Instruction& i : widened.code) {
    // Formulas of tile/math.h scale by numbers within bounds; only those are compiled.
    if (i.opcode == tile::Opcode::kScale) return false;
    const tile::Family family = tile::info(i.opcode).family;
    const bool works = family != tile::Family::kLeaf && family != tile::Family::kStore;
    if (works && (i.level == tile::Level::kLane || family == tile::Family::kReduce)) ++calls;
    for (const tile::RegId r : i.operands) {
      const bool expands = r != tile::kNoReg && i.level == tile::Level::kLane &&
                           widened.code[r].level == tile::Level::kRow;
      if (expands) ++calls;
    }
  }
  return calls >= fewest;
}

namespace {

/// Gives every entry of schedule.compiled its function, all in one block of memory.
bool compile(TileSchedule& schedule, Isa isa, const IsaTable& table) {
  if (schedule.compiled.empty()) return true;
  Emitted emitted;
  std::unique_ptr<Line[]> buffer;
  const auto begin = [&] { return reinterpret_cast<uint8_t*>(buffer.get()); };
  for (size_t size = kSmallest;; size *= 2) {
    buffer = std::make_unique_for_overwrite<Line[]>(size / sizeof(Line));
    try {
      emitted = emit(schedule, isa, table, begin(), size);
      break;
    } catch (const Xbyak::Error& error) {
      if (static_cast<int>(error) != Xbyak::ERR_CODE_IS_TOO_BIG || size >= kLargest) throw;
    }
  }
  auto code = CodeMemory::seal({begin(), emitted.size});
  if (code == nullptr) {
    refused.store(true, std::memory_order_relaxed);
    return false;
  }
  for (size_t k = 0; k < schedule.compiled.size(); ++k) {
    CompiledStep& step = schedule.compiled[k];
    step.fn = code->function<CompiledFn>(emitted.offsets[k]);
    for (size_t r = 0; r < step.program.reductions.size(); ++r) {
      const LaneReduction& reduction = step.program.reductions[r];
      const int32_t partials = emitted.partials[k][r];
      step.reductions.push_back({reduction.reduction, reduction.slot, partials});
      schedule.slots[static_cast<size_t>(reduction.slot)].size *= partials;
    }
    step.program = {};
  }
  schedule.code = std::move(code);
  return true;
}

}  // namespace

using Made = ScheduleCache::Made;

std::shared_ptr<const TileSchedule> compiled_schedule(const tile::Program& widened,
                                                      const IsaTable& table,
                                                      const CodeTarget& target) {
  return ScheduleCache::process().get({widened, target}, [&]() -> Made {
    const tile::Expansion expansion{
        .trigonometric = false, .scale = target.isa == Isa::kAvx512, .extern_far = true};
    auto schedule = std::make_shared<TileSchedule>(
        make_fused_schedule(tile::expand(widened, expansion), table, target, fuse_steps));
    if (!compile(*schedule, target.isa, table)) return nullptr;
    return schedule;
  });
}

}  // namespace mithril::cpu::jit

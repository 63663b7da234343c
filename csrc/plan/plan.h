// Where every temporary lives: one arena, lifetimes from first write to last read.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "plan/steps.h"

namespace mithril::plan {

/// An operand's address: the base pointer number `base` of a run, plus bytes. Bases are the
/// arena, then inputs, outputs and constants (see Plan).
struct Address {
  int32_t base = 0;
  int64_t offset = 0;
};

/// A step with every address fixed but the bases.
struct PlannedStep {
  Step step;
  std::vector<Address> operands;
};

/// Immutable; shared by concurrent runs, each with its own arena.
struct Plan {
  std::vector<PlannedStep> steps;
  std::vector<BufferSpec> buffers;  // what the uses of steps name
  std::vector<std::shared_ptr<const core::TensorData>> constants;
  std::vector<Donation> donations;  // that a caller may make: steps change parts of these inputs
  int64_t arena_bytes = 0;
  int32_t input_count = 0;
  int32_t output_count = 0;
  size_t scratch_bytes = 0;  // the most that a step wants

  static constexpr int32_t kArena = 0;
  int32_t input_base(int32_t index) const { return 1 + index; }
  int32_t output_base(int32_t index) const { return 1 + input_count + index; }
  int32_t constant_base(int32_t index) const { return 1 + input_count + output_count + index; }
  int32_t base_count() const { return constant_base(static_cast<int32_t>(constants.size())); }
};

/// Bytes of the buffers that a step reads and writes, each once.
int64_t bytes_of(const Plan& plan, const Step& step);

/// For people: sizes, then a line a step with its operands as base+offset.
std::string print(const Plan& plan);

/// Temporaries with disjoint lifetimes share bytes; an output takes over the dying operand that
/// its step allows (`inplace`). Offsets are multiples of 64. Regions are planned first, each with
/// an arena of its own. Deterministic.
core::Result<Plan> make_plan(Steps steps);

}  // namespace mithril::plan

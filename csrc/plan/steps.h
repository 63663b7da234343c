// What select hands to planning: steps over virtual buffers, in order of execution.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/host_value.h"
#include "core/location.h"
#include "plan/call.h"
#include "plan/kernel.h"

namespace mithril::plan {

using BufferId = int32_t;

/// Memory of one value, contiguous and row-major.
struct BufferSpec {
  enum class Kind : uint8_t { kInput, kOutput, kConstant, kTemporary };
  Kind kind = Kind::kTemporary;
  int32_t index = 0;  // which input, output or constant
  int64_t bytes = 0;
  core::DType dtype = core::DType::kFloat32;
  std::vector<int64_t> shape;
  std::string path;    // in the model, of the node that makes it; inputs: ""
  int32_t value = -1;  // of the graph, for who asks what lies there; -1: a copy
};

/// An operand of a step: a place inside a buffer. Views of a value differ in the offset only;
/// their strides are among the step's params.
struct OperandRef {
  BufferId buffer = -1;
  int64_t offset = 0;  // bytes
  bool write = false;
};

/// An operand whose bytes an output may take, element by element; which of the outputs it is.
struct InPlace {
  int32_t output = 0;
  int32_t operand = 0;
};

struct Plan;
struct Steps;

/// A graph of a loop's or a branch's own: steps, until planning has made a plan of them.
struct Region {
  Region() = default;
  Region(std::shared_ptr<const Steps> selected) : steps(std::move(selected)) {}  // NOLINT
  Region(std::shared_ptr<const Plan> made) : plan(std::move(made)) {}            // NOLINT

  bool is_there() const { return steps != nullptr || plan != nullptr; }
  const Plan& operator*() const { return *plan; }

  std::shared_ptr<const Steps> steps;
  std::shared_ptr<const Plan> plan;
};

/// A step that runs a plan of its own at each place of an axis, or while a condition holds.
/// Operands of the step: carries, xs, constants, then the last carries and the ys; those of the
/// body the same with one place of the xs and ys, those of the condition carries, constants and a
/// bool.
struct RegionLoop {
  Region body;
  Region condition;  // none: `length` steps
  int64_t length = 0;
  bool reverse = false;
  int32_t constants = 0;
  std::vector<int64_t> carry_bytes;
  std::vector<int64_t> x_bytes, y_bytes;  // of one place
};

/// A step that runs one of two plans. Operands of the step: inputs of both, a bool, then outputs.
struct Branch {
  Region taken, other;  // where the bool is true, and where it is not
  int32_t inputs = 0;
};

/// Counts what a step computes, for rates; an amount of 0 is not known.
struct Work {
  enum class Unit : uint8_t {
    kFlops,  // additions and multiplications as the textbook counts them, a fused pair as two
    kOps,    // elements times instructions of a loop's program
  };
  double amount = 0;
  Unit unit = Unit::kOps;
};

/// A step of a plan that one kernel runs as a whole, for who asks what went wrong.
struct Part {
  std::string label;
  core::Location location;
};

/// One call of a kernel over `units` units, a loop or a branch.
struct Step {
  KernelFn kernel = nullptr;
  std::shared_ptr<const Call> call;  // for targets that print plans: instead of a kernel
  std::vector<OperandRef> operands;  // inputs, then outputs, in the kernel's order
  std::vector<int64_t> params;
  std::vector<double> scalars;
  std::shared_ptr<const void> data;
  std::vector<Part> parts;  // which of them failed is ErrorSlot::step; empty: it is one
  std::shared_ptr<const RegionLoop> loop;  // instead of a kernel
  std::shared_ptr<const Branch> branch;    // instead of a kernel
  int64_t units = 1;
  int64_t grain = 1;  // units of one chunk
  size_t scratch_bytes = 0;
  /// Memory that all units share, and nobody else reads: select makes it the last operand.
  int64_t workspace_bytes = 0;
  std::vector<InPlace> inplace;
  /// The first output is the operand of inplace[0] but for a part, and where both are one memory
  /// that part alone is written.
  bool partial_update = false;
  /// Buffers that are written before it runs although it reads none of them.
  std::vector<BufferId> depends_on;
  std::vector<int32_t> nodes;     // of the graph, for who asks what runs here
  bool may_fail_on_data = false;  // it may fail for what the data are: an index out of bounds
  std::string label;              // kernel and ops, for people
  core::Location location;
  Work work;
  double nanoseconds = 0;  // of computing on one thread, roughly; 0: not known (see plan/cost.h)
};

/// An output in the memory of an input that the caller gives away: nothing reads the input
/// afterwards.
struct Donation {
  int32_t output = 0, input = 0;
};

struct Steps {
  std::vector<BufferSpec> buffers;
  std::vector<Step> steps;
  std::vector<std::shared_ptr<const core::TensorData>> constants;
};

}  // namespace mithril::plan

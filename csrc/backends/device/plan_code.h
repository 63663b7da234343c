// Plans as text for a device: one source for all loops and functions of a plan, and what is
// launched of it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/device/dialect.h"
#include "core/status.h"
#include "plan/plan.h"

namespace mithril::device {

struct PlanCode;

/// Says how often a kernel runs at once.
struct Launch {
  int64_t items = 0;
  int threads = 0;  // that do an item together; 0: an item is one thread
};

/// A kernel of the source, with the operands of its step that are passed.
struct KernelLaunch {
  std::string kernel;
  Launch launch;
  std::vector<size_t> operands;
};

/// Small steps that follow each other, which one item of a CPU does in one kernel: to start a
/// kernel takes as long as some of them.
struct Chain {
  size_t count = 0;  // steps
  std::string kernel;
  double nanoseconds = 0;  // estimated
  /// Those that are passed, each as memory and offset; behind them, where a step has them, its
  /// scratch and where it reports what is wrong with data.
  std::vector<size_t> bases;
  bool has_scratch = false, is_checked = false;
};

/// Says how a step runs on the device.
struct StepCode {
  enum class Kind : uint8_t {
    kNothing,  // there are no elements
    kLaunch,   // a kernel of the source
    kHost,     // a kernel of the engine, on memory that is mapped
    kLoop,     // plans of its own, with a condition that the host reads
    kBranch,
  };
  Kind kind = Kind::kNothing;
  /// A product of the first operands that the library does before that; or null.
  std::shared_ptr<const plan::LibraryProduct> product;
  /// kLaunch: what runs before the kernel, one after the other.
  std::vector<KernelLaunch> before;
  std::string kernel;  // kLaunch
  Launch launch;       // kLaunch
  /// kLaunch: those that are passed, each as memory and offset; behind them, where the step has
  /// them, its scratch and where it reports what is wrong with data.
  std::vector<size_t> operands;
  bool has_scratch = false;  // behind the plan's arena
  bool is_checked = false;   // it may find an index that is out of bounds
  /// The chain that begins with the step, or null; each of its steps can be launched alone, too.
  std::shared_ptr<const Chain> chain;
  /// kLoop: body and condition (may be null); kBranch: where the bool is true, and where not.
  std::shared_ptr<const PlanCode> first, second;
};

/// Bytes up to where memory of its own may begin.
inline int64_t rounded_up(int64_t bytes) { return (bytes + 127) / 128 * 128; }

/// The steps of one plan. Memory: the plan's arena, then what its steps take for themselves.
struct PlanCode {
  const plan::Plan* plan = nullptr;  // lives as long as who prints it says
  std::vector<StepCode> steps;
  int64_t bytes = 0;
};

/// Holds the first bad index that a kernel finds, once in a run, as it lies in memory.
struct Report {
  int64_t is_there = 0;
  int64_t step = 0;  // its place in Source::checked
  int64_t position = 0, value = 0;
};

/// A step that reports; the plan lives as long as the source's.
struct CheckedStep {
  const plan::Plan* plan = nullptr;
  size_t step = 0;
  int64_t bound = 0;  // that indices must be below
};

/// A whole plan, with those in it.
struct Source {
  std::string text;  // empty: no step is a kernel of the device
  std::shared_ptr<const PlanCode> code;
  std::vector<CheckedStep> checked;
  int64_t host_steps = 0;  // steps that fall back to the engine, those of inner plans included
};

/// Prints a plan whose steps have a call, a kernel of the host, a loop or a branch.
core::Result<Source> print_plan(const plan::Plan& plan, const PrintOptions& options);

}  // namespace mithril::device

// Runs a plan: pointers in, pointers out, nothing else known.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "plan/plan.h"
#include "runtime/profile.h"
#include "runtime/recording.h"
#include "runtime/thread_pool.h"

namespace mithril::runtime {

/// Tells a run when to stop.
struct RunControl {
  const std::atomic<bool>* cancel = nullptr;
  void (*poll)(void*) = nullptr;  // called by the calling thread at least every 50 ms
  void* poll_context = nullptr;
  ThreadPool* pool = nullptr;      // null: the process's
  Recording* recording = nullptr;  // null: nobody looks
};

/// The error of an index in data, by the step at `location`, for an axis of `bound` places.
core::Error index_error(int64_t value, int64_t bound, const core::Location& location);

/// A plan made ready for a device. Immutable; any number of threads may run it at once.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;
  virtual const plan::Plan& plan() const = 0;
  /// Tells whether a run takes microseconds: nobody need be let in, or asked, before it is over.
  virtual bool is_brief() const { return false; }

  /// `inputs[i]` and `outputs[i]`, in the memory of the host or at addresses of the device
  /// (device::Storage), belong to the graph's inputs and outputs (null for host values); outputs
  /// must not overlap anything, but for the inputs that they may update (Plan::donations). On
  /// failure outputs hold unspecified numbers. Those at addresses of a device may still be on their
  /// way.
  virtual core::Status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                           const RunControl& control = {}) const = 0;
};

/// Calls the kernels of a plan on the threads of this machine; each run has an arena of its own.
class HostExecutable final : public Executable {
 public:
  explicit HostExecutable(plan::Plan plan);
  const plan::Plan& plan() const override { return plan_; }
  bool is_brief() const override { return is_brief_; }
  core::Status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                   const RunControl& control = {}) const override;

 private:
  class Frame;
  /// A step as a run wants it; all of them side by side. Pointers are into the plan.
  struct Dispatch {
    plan::KernelFn kernel;  // null: a loop or a branch
    const int64_t* params;
    const double* scalars;
    const void* data;
    int64_t units, grain;
    size_t scratch_bytes;  // of each thread
    size_t first_operand;  // among the addresses
    double nanoseconds;
    bool is_shared;  // by threads
  };
  /// Holds what a step runs by itself: the body of a loop and its condition, or two branches.
  struct Inner {
    std::shared_ptr<const HostExecutable> first, second;
  };
  /// Holds what a counter of the profile is told of one step.
  struct Counted {
    Profile::Counter* counter;
    int64_t bytes;
  };

  void add_dispatch(const plan::PlannedStep& planned);
  core::Status run_steps(Frame& frame, const RunControl& control) const;
  core::Status run_region(size_t at, void* const* operands, const RunControl& control) const;
  core::Status run_loop(size_t at, void* const* operands, const RunControl& control) const;
  core::Status run_branch(size_t at, void* const* operands, const RunControl& control) const;
  void note(size_t step, int64_t start, const RunControl& control, const ThreadPool& pool) const;
  core::Status failure(plan::KernelStatus status, size_t step, const plan::ErrorSlot& slot) const;
  static plan::KernelStatus run_kernel(const Dispatch& step, const plan::KernelArgs& args,
                                       const RunControl& control, ThreadPool& pool);

  plan::Plan plan_;
  std::vector<Dispatch> dispatch_;        // by step
  std::vector<plan::Address> addresses_;  // of all operands, step by step
  std::vector<Inner> inner_;              // by step
  std::vector<Counted> counted_;          // by step; empty unless MITHRIL_PROFILE is set
  bool is_brief_ = false;
};

}  // namespace mithril::runtime

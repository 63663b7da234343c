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

/// What a run may be told.
struct RunControl {
  const std::atomic<bool>* cancel = nullptr;
  void (*poll)(void*) = nullptr;  // called by the calling thread at least every 50 ms
  void* poll_context = nullptr;
  ThreadPool* pool = nullptr;      // null: the process's
  Recording* recording = nullptr;  // null: nobody looks
};

/// Immutable; any number of threads may run it at once, each with an arena of its own.
class Executable {
 public:
  explicit Executable(plan::Plan plan);
  const plan::Plan& plan() const { return plan_; }
  /// Whether steps run plans of their own: how long that takes the sizes do not tell.
  bool has_regions() const { return has_regions_; }

  /// `inputs[i]` and `outputs[i]` belong to the graph's inputs and outputs (null for host values);
  /// outputs must not overlap anything, but for the inputs that they may update (Plan::updates). On
  /// failure outputs hold unspecified numbers.
  core::Status run(std::span<const void* const> inputs, std::span<void* const> outputs,
                   const RunControl& control = {}) const;

 private:
  class Bases;
  class Workspace;
  core::Status run_steps(Bases& bases, std::byte* scratch, const RunControl& control) const;
  core::Status run_loop(size_t at, void* const* operands, const RunControl& control) const;
  core::Status run_branch(size_t at, void* const* operands, const RunControl& control) const;
  void note(size_t step, int64_t start, const RunControl& control, const ThreadPool& pool) const;
  core::Status failure(plan::KernelStatus status, size_t step, const plan::ErrorSlot& slot) const;
  plan::KernelStatus run_step(const plan::Step& step, const plan::KernelArgs& args,
                              const RunControl& control, ThreadPool& pool) const;
  /// What a counter of the profile is told of one step.
  struct Counted {
    Profile::Counter* counter;
    int64_t bytes;
  };
  plan::Plan plan_;
  /// What a step runs by itself: the body of a loop and its condition, or two branches.
  struct Inner {
    std::shared_ptr<const Executable> first, second;
  };
  std::vector<Inner> inner_;  // by step
  bool has_regions_ = false;
  std::vector<Counted> counted_;  // by step; empty unless MITHRIL_PROFILE is set
};

}  // namespace mithril::runtime

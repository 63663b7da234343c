// The engine's own threads: one pool a process, chunks of a loop taken dynamically.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <pthread.h>

#include "core/interrupt.h"
#include "plan/kernel.h"

namespace mithril::runtime {

using plan::KernelStatus;

/// Holds what one thread has while it runs a chunk.
struct WorkerContext {
  int32_t worker = 0;       // 0: the thread that called parallel_for
  void* scratch = nullptr;  // RunOptions::scratch_bytes of its own, 64-byte aligned
};

struct RunOptions {
  size_t scratch_bytes = 0;                   // for each worker; not cleared
  const std::atomic<bool>* cancel = nullptr;  // looked at before and after each chunk
  void (*poll)(void*) = nullptr;              // called by the calling thread between chunks and
  void* poll_context = nullptr;               //   while it waits; it may set the cancel flag

  /// Tells a chunk that takes long whether to end: on the calling thread, and on others.
  core::Interrupt interrupt(bool calling) const {
    return calling ? core::Interrupt{cancel, poll, poll_context} : core::Interrupt{cancel};
  }
};

/// Runs loops on the calling thread and on those workers that come in time. A caller never waits
/// for a worker that has not taken a chunk, so a busy machine costs its share and no more.
/// Safe for concurrent callers; a call from inside a chunk runs inline. Each chunk runs with the
/// default floating-point environment, and the caller's is restored.
class ThreadPool {
 public:
  /// `threads` counts the calling one. Workers start at the first loop that can use them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The pool of the process: as many threads as MITHRIL_THREADS or the processors say. A forked
  /// child finds it empty, and it starts workers of its own.
  static ThreadPool& shared();

  int thread_count() const { return limit_.load(std::memory_order_relaxed); }
  /// Takes effect for loops that start later; clamped to [1, kMostThreads].
  void set_thread_count(int threads);

  /// Calls body(context, begin, end) for disjoint ranges that cover [0, units), each of `grain`
  /// units but the last. A grain should take between 10 us and 10 ms; units <= grain run inline.
  /// Returns the first status that is not kOk (the chunks not begun by then are left out), or
  /// kCancelled. An exception out of `body` becomes kFailed or kNoMemory.
  template <class Body>
  KernelStatus parallel_for(int64_t units, int64_t grain, const RunOptions& options,
                            const Body& body) {
    const auto call = [](const void* context, const WorkerContext& worker, int64_t begin,
                         int64_t end) noexcept {
      try {
        return (*static_cast<const Body*>(context))(worker, begin, end);
      } catch (const std::bad_alloc&) {
        return KernelStatus::kNoMemory;
      } catch (...) {
        return KernelStatus::kFailed;
      }
    };
    return run({call, &body, units, grain, 0, &options});
  }

  /// The same for a kernel: `args` is copied for each worker, with its scratch and number.
  KernelStatus run_kernel(plan::KernelFn kernel, const plan::KernelArgs& args, int64_t units,
                          int64_t grain, const RunOptions& options);

  static constexpr int kMostThreads = 1024;

 private:
  struct Task {
    KernelStatus (*call)(const void*, const WorkerContext&, int64_t, int64_t) noexcept;
    const void* body;
    int64_t units;
    int64_t grain;
    uint32_t chunks;
    const RunOptions* options;
  };
  // One loop under way. `remaining` alone hands out chunks; whoever has taken one may read `task`
  // until it has counted the chunk as finished. Slots live as long as the pool, so a late worker
  // reads valid memory: it takes a chunk of whatever loop the slot holds then, or none.
  struct alignas(64) Slot {
    std::atomic<uint32_t> remaining{0};
    alignas(64) std::atomic<uint32_t> finished{0};
    std::atomic<int32_t> status{0};
    const Task* task = nullptr;
  };
  static constexpr int kSlots = 32;  // more loops at once than this run inline

  KernelStatus run(Task task);
  static KernelStatus call(const Task& task, const WorkerContext& worker, int64_t begin,
                           int64_t end) noexcept;
  KernelStatus run_inline(const Task& task);
  KernelStatus run_shared(Task& task, int slot);
  static bool run_one_chunk(Slot& slot, const WorkerContext& worker, bool own_scratch);
  void wait_for_finish(Slot& slot, const Task& task);
  int claim_slot();
  void wake_workers(uint32_t wanted);
  void start_workers();
  void work(int worker);
  bool help_once(int worker);
  void sleep(int worker);
  static void* thread_main(void* start);
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  std::atomic<int> limit_;
  std::atomic<int> started_{0};                 // workers running, or about to
  alignas(64) std::atomic<uint32_t> open_{0};   // bit i: slot i may have chunks left
  alignas(64) std::atomic<uint32_t> owned_{0};  // bit i: a caller holds slot i
  alignas(64) std::atomic<uint32_t> epoch_{0};  // workers sleep on this
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::array<Slot, kSlots> slots_;
  std::mutex start_mutex_;                       // guards threads_
  std::array<pthread_t, kMostThreads> threads_;  // the first started_ are valid
};

/// Sets the default floating-point environment (round to nearest, denormals kept, no traps) and
/// restores the previous one, sticky flags included.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment();
  ~ScopedFloatEnvironment();
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  uint64_t saved_ = 0;
};

}  // namespace mithril::runtime

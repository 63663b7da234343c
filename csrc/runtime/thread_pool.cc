#include "runtime/thread_pool.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/env.h"
#include "runtime/arena_pool.h"

namespace mithril::runtime {

namespace {

constexpr int kSpinsBeforeSleep = 2000;  // about 50 us: longer than the gap between two steps
constexpr int kSpinsBeforeYield = 1000;
constexpr int kYieldsBeforeNap = 200;
constexpr size_t kWorkerStack = size_t{1} << 20;
constexpr size_t kMostScratch = size_t{1} << 39;

thread_local int task_depth = 0;  // > 0 inside a chunk: loops started there run inline

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct FreeScratch {
  void operator()(void* block) const { std::free(block); }
};

// A thread keeps its last block. A nested loop finds none, brings its own, and the larger stays.
struct ThreadScratch {
  std::unique_ptr<void, FreeScratch> block;
  size_t bytes = 0;
};
thread_local ThreadScratch kept_scratch;

class ScopedScratch {
 public:
  explicit ScopedScratch(size_t bytes) {
    if (bytes == 0) return;
    held_ = std::exchange(kept_scratch, {});
    if (held_.bytes < bytes) allocate(bytes);
    if (core::env().poison) poison(held_.block.get(), held_.bytes);
  }
  ~ScopedScratch() {
    if (held_.bytes > kept_scratch.bytes) kept_scratch = std::move(held_);
  }
  ScopedScratch(const ScopedScratch&) = delete;
  ScopedScratch& operator=(const ScopedScratch&) = delete;
  bool failed() const { return failed_; }
  void* get() const { return held_.block.get(); }

 private:
  void allocate(size_t bytes) {
    const size_t rounded = (bytes + 63) / 64 * 64;
    held_.block.reset(bytes > kMostScratch ? nullptr : std::aligned_alloc(64, rounded));
    held_.bytes = held_.block == nullptr ? 0 : rounded;
    failed_ = held_.block == nullptr;
  }

  ThreadScratch held_;
  bool failed_ = false;
};

class ScopedTask {
 public:
  ScopedTask(const RunOptions& options, bool calling) : interrupt_(options.interrupt(calling)) {
    ++task_depth;
  }
  ~ScopedTask() { --task_depth; }
  ScopedTask(const ScopedTask&) = delete;
  ScopedTask& operator=(const ScopedTask&) = delete;

 private:
  core::ScopedInterrupt interrupt_;
  ScopedFloatEnvironment float_environment_;
};

bool is_cancelled(const RunOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

void poll(const RunOptions& options) {
  if (options.poll != nullptr) options.poll(options.poll_context);
}

int processor_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

#if defined(__x86_64__)
ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
ScopedFloatEnvironment::~ScopedFloatEnvironment() { _mm_setcsr(static_cast<uint32_t>(saved_)); }
#elif defined(__aarch64__)
ScopedFloatEnvironment::ScopedFloatEnvironment() {
  asm volatile("mrs %0, fpcr\n\tmsr fpcr, xzr" : "=r"(saved_));
}
ScopedFloatEnvironment::~ScopedFloatEnvironment() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }
#else
ScopedFloatEnvironment::ScopedFloatEnvironment() = default;
ScopedFloatEnvironment::~ScopedFloatEnvironment() = default;
#endif

ThreadPool::ThreadPool(int threads) : limit_(std::clamp(threads, 1, kMostThreads)) {}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (int i = 0; i < started_.load(); ++i) pthread_join(threads_[static_cast<size_t>(i)], nullptr);
}

ThreadPool& ThreadPool::shared() {
  static ThreadPool* pool = [] {
    const int wanted = core::env().threads;
    // Never destroyed: at exit other threads may still be in a loop.
    auto* made = new ThreadPool(wanted > 0 ? wanted : processor_count());
    pthread_atfork([] { shared().before_fork(); }, [] { shared().after_fork_in_parent(); },
                   [] { shared().after_fork_in_child(); });
    return made;
  }();
  return *pool;
}

void ThreadPool::set_thread_count(int threads) {
  limit_.store(std::clamp(threads, 1, kMostThreads));
  epoch_.fetch_add(1);
  epoch_.notify_all();  // those that an earlier limit had put aside look again
}

KernelStatus ThreadPool::run_kernel(plan::KernelFn kernel, const plan::KernelArgs& args,
                                    int64_t units, int64_t grain, const RunOptions& options) {
  return parallel_for(units, grain, options,
                      [&](const WorkerContext& worker, int64_t begin, int64_t end) {
                        plan::KernelArgs own = args;
                        own.worker = worker.worker;
                        own.scratch = worker.scratch;
                        return kernel(own, begin, end);
                      });
}

KernelStatus ThreadPool::run(Task task) {
  if (task.units <= 0) return KernelStatus::kOk;
  constexpr int64_t kMostChunks = int64_t{1} << 30;
  const int64_t least_grain = (task.units - 1) / kMostChunks + 1;
  task.grain = std::min(std::max({task.grain, least_grain, int64_t{1}}), task.units);
  task.chunks = static_cast<uint32_t>((task.units - 1) / task.grain + 1);
  if (task.chunks == 1 || task_depth > 0 || thread_count() == 1) return run_inline(task);
  const int slot = claim_slot();
  return slot < 0 ? run_inline(task) : run_shared(task, slot);
}

// A body that was told to end early did not do what it says it did.
KernelStatus ThreadPool::call(const Task& task, const WorkerContext& worker, int64_t begin,
                              int64_t end) noexcept {
  const KernelStatus status = task.call(task.body, worker, begin, end);
  return is_cancelled(*task.options) ? KernelStatus::kCancelled : status;
}

KernelStatus ThreadPool::run_inline(const Task& task) {
  const ScopedScratch scratch(task.options->scratch_bytes);
  if (scratch.failed()) return KernelStatus::kNoMemory;
  const ScopedTask scope(*task.options, true);
  const WorkerContext worker{0, scratch.get()};
  for (int64_t begin = 0; begin < task.units;) {
    if (is_cancelled(*task.options)) return KernelStatus::kCancelled;
    const int64_t end = begin + std::min(task.grain, task.units - begin);
    const KernelStatus status = call(task, worker, begin, end);
    if (status != KernelStatus::kOk) return status;
    begin = end;
    poll(*task.options);
  }
  return KernelStatus::kOk;
}

KernelStatus ThreadPool::run_shared(Task& task, int index) {
  const uint32_t bit = uint32_t{1} << index;
  const ScopedScratch scratch(task.options->scratch_bytes);
  if (scratch.failed()) {
    owned_.fetch_and(~bit);
    return KernelStatus::kNoMemory;
  }
  start_workers();
  Slot& slot = slots_[static_cast<size_t>(index)];
  slot.task = &task;
  slot.finished.store(0, std::memory_order_relaxed);
  slot.status.store(0, std::memory_order_relaxed);
  slot.remaining.store(task.chunks, std::memory_order_release);
  open_.fetch_or(bit);
  wake_workers(task.chunks - 1);
  const WorkerContext worker{0, scratch.get()};
  while (run_one_chunk(slot, worker, true)) poll(*task.options);
  open_.fetch_and(~bit);
  wait_for_finish(slot, task);
  const auto status = static_cast<KernelStatus>(slot.status.load(std::memory_order_relaxed));
  owned_.fetch_and(~bit, std::memory_order_release);
  return status;
}

bool ThreadPool::run_one_chunk(Slot& slot, const WorkerContext& context, bool own_scratch) {
  uint32_t left = slot.remaining.load(std::memory_order_relaxed);
  do {
    if (left == 0) return false;
  } while (!slot.remaining.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                                 std::memory_order_relaxed));
  const Task& task = *slot.task;
  KernelStatus status = KernelStatus::kOk;
  if (slot.status.load(std::memory_order_relaxed) == 0) {
    if (is_cancelled(*task.options)) {
      status = KernelStatus::kCancelled;
    } else {
      const ScopedScratch scratch(own_scratch ? 0 : task.options->scratch_bytes);
      const ScopedTask scope(*task.options, own_scratch);
      const int64_t begin = static_cast<int64_t>(task.chunks - left) * task.grain;
      const int64_t end = begin + std::min(task.grain, task.units - begin);
      const WorkerContext worker{context.worker, own_scratch ? context.scratch : scratch.get()};
      status = scratch.failed() ? KernelStatus::kNoMemory : call(task, worker, begin, end);
    }
  }
  uint32_t settled = 1;
  if (status != KernelStatus::kOk) {
    int32_t none = 0;
    slot.status.compare_exchange_strong(none, static_cast<int32_t>(status),
                                        std::memory_order_relaxed);
    settled += slot.remaining.exchange(0, std::memory_order_acquire);  // nobody begins these
  }
  slot.finished.fetch_add(settled, std::memory_order_release);  // from here on `task` may be gone
  return true;
}

void ThreadPool::wait_for_finish(Slot& slot, const Task& task) {
  for (int turn = 0; slot.finished.load(std::memory_order_acquire) != task.chunks; ++turn) {
    if (turn < kSpinsBeforeYield) {
      pause_briefly();
    } else if (turn < kSpinsBeforeYield + kYieldsBeforeNap) {
      sched_yield();
    } else {
      const timespec nap{0, 50'000};
      nanosleep(&nap, nullptr);
      poll(*task.options);
    }
  }
}

int ThreadPool::claim_slot() {
  uint32_t owned = owned_.load(std::memory_order_relaxed);
  while (owned != ~uint32_t{0}) {
    const int free = std::countr_one(owned);
    const uint32_t bit = uint32_t{1} << free;
    if (owned_.compare_exchange_weak(owned, owned | bit, std::memory_order_acquire)) return free;
  }
  return -1;
}

void ThreadPool::wake_workers(uint32_t wanted) {
  const int asleep = sleepers_.load();
  if (asleep == 0) return;
  epoch_.fetch_add(1);
  if (wanted >= static_cast<uint32_t>(asleep)) {
    epoch_.notify_all();
    return;
  }
  for (uint32_t i = 0; i < wanted; ++i) epoch_.notify_one();
}

namespace {

struct WorkerStart {
  ThreadPool* pool;
  int worker;
};

bool start_thread(pthread_t& thread, void* (*main)(void*), WorkerStart* start) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kWorkerStack);
  // Signals belong to the threads of the host program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&thread, &attributes, main, start) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace

void ThreadPool::start_workers() {
  if (started_.load(std::memory_order_acquire) >= thread_count() - 1) return;
  const std::lock_guard lock(start_mutex_);
  const int wanted = thread_count() - 1;
  for (int i = started_.load(std::memory_order_relaxed); i < wanted; ++i) {
    std::unique_ptr<WorkerStart> start(new (std::nothrow) WorkerStart{this, i + 1});
    pthread_t& thread = threads_[static_cast<size_t>(i)];
    if (start == nullptr || !start_thread(thread, thread_main, start.get())) return;
    static_cast<void>(start.release());  // the thread owns it
    started_.store(i + 1, std::memory_order_release);
  }
}

void* ThreadPool::thread_main(void* argument) {
  const std::unique_ptr<WorkerStart> start(static_cast<WorkerStart*>(argument));
  start->pool->work(start->worker);
  return nullptr;
}

void ThreadPool::work(int worker) {
  int idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool wanted = worker < thread_count();
    if (wanted && help_once(worker)) {
      idle = 0;
    } else if (wanted && ++idle < kSpinsBeforeSleep) {
      pause_briefly();
    } else {
      sleep(worker);
      idle = 0;
    }
  }
}

bool ThreadPool::help_once(int worker) {
  bool helped = false;
  // Start at another slot on each worker, so that concurrent loops share the workers.
  const uint32_t open = open_.load(std::memory_order_relaxed);
  uint32_t rotated = std::rotr(open, worker % kSlots);
  while (rotated != 0) {
    const int index = (std::countr_zero(rotated) + worker) % kSlots;
    Slot& slot = slots_[static_cast<size_t>(index)];
    while (run_one_chunk(slot, {worker, nullptr}, false)) helped = true;
    rotated &= rotated - 1;
  }
  return helped;
}

// The order of the two counters matters (both sequentially consistent): either the caller sees
// the sleeper, or the sleeper sees the open slot.
void ThreadPool::sleep(int worker) {
  const uint32_t before = epoch_.load();
  sleepers_.fetch_add(1);
  bool work_waits = false;
  const uint32_t open = open_.load();
  const bool wanted = worker < limit_.load();
  for (uint32_t left = wanted ? open : 0; left != 0; left &= left - 1) {
    const auto index = static_cast<size_t>(std::countr_zero(left));
    work_waits = work_waits || slots_[index].remaining.load(std::memory_order_relaxed) != 0;
  }
  if (!stop_.load() && !work_waits) epoch_.wait(before);
  sleepers_.fetch_sub(1);
}

void ThreadPool::before_fork() { start_mutex_.lock(); }
void ThreadPool::after_fork_in_parent() { start_mutex_.unlock(); }

void ThreadPool::after_fork_in_child() {
  // The workers and all other callers are gone with the parent's threads.
  started_.store(0);
  open_.store(0);
  owned_.store(0);
  sleepers_.store(0);
  for (Slot& slot : slots_) slot.remaining.store(0);
  start_mutex_.unlock();
}

}  // namespace mithril::runtime
